from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import device_array
from firebrick.analog.pulse_trains import FULL, levels, made_trains, schedule, trains
from firebrick.analog.pulsed_update import rounded, set_bits
from firebrick.analog.typed_kernel import reads, results, typed_kernel
from firebrick.core.dtypes import float32, int64, uint32

ENGINES = ("cpu", "numpy")


def number(value: float, engine: str) -> fb.Tensor:
    return fb.asarray(value, dtype=float32, device=engine)


def scheduled(x: Any, d: Any, lr: float, g: float, engine: str = "cpu", **settings: Any) -> tuple[Any, Any, Any]:
    """Lengths, and levels of x and d as shares."""
    p = analog.UpdateParameters(**settings)
    xs, ds = (fb.asarray(np.float32(v), device=engine) for v in (x, d))
    top, of_d = fb.max(fb.abs(xs), axis=1), fb.max(fb.abs(ds), axis=1)
    length, xf, xs_, df, ds_ = schedule(
        top, of_d, fb.full(top.shape, lr, dtype=fb.float32, device=engine), number(g, engine), p.desired_bl,
        p.update_management, p.update_bl_management, p.fixed_bl,
    )  # fmt: skip
    key = fb.random.Generator(0).key(device=engine)
    of_x, of_d = (levels(v, f, s, key, 0, False).numpy() / FULL for v, f, s in ((xs, xf, xs_), (ds, df, ds_)))
    return length.numpy(), of_x, of_d


def expected(x: Any, d: Any, lr: float, g: float, p: analog.UpdateParameters) -> tuple[int, Any, Any]:
    """The same by the formulas in float64."""
    x, d, lr, g = np.float32(x).astype(float), np.float32(d).astype(float), float(np.float32(abs(lr))), float(np.float32(g))
    x_top, d_top = np.abs(x).max(), np.abs(d).max()
    if lr == 0.0 or x_top == 0.0 or d_top == 0.0:
        return 0, x * 0.0, d * 0.0
    k, length = lr * x_top * d_top / g, p.desired_bl
    if p.update_bl_management:
        length = min(int(np.ceil(k)), length)
    a = b = np.sqrt(lr / (g * length))
    if not p.update_bl_management and not p.fixed_bl and g * length < lr:
        length, a, b = int(np.ceil(lr / g)), 1.0, 1.0
    if p.update_management or p.update_bl_management:
        if k > p.desired_bl:
            d_top *= p.desired_bl / k
        a, b = a * np.sqrt(x_top / d_top), b * np.sqrt(d_top / x_top)
    return length, np.minimum(np.abs(x) * b, 1.0), np.minimum(np.abs(d) * a, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"update_bl_management": False}, {"update_bl_management": False, "update_management": False},
        {"desired_bl": 5}, {"desired_bl": 1, "update_bl_management": False},
        {"update_bl_management": False, "update_management": False, "fixed_bl": False},
    ],
    ids=str,
)  # fmt: skip
def test_levels_are_the_probabilities_of_the_formulas(engine: str, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    for lr, g, size in ((0.05, 0.001, 1.0), (0.05, 0.001, 30.0), (1e-3, 0.01, 0.01), (1e-30, 1e-3, 1e-8), (3.0, 1e-4, 1e15)):
        x, d = rng.normal(size=(4, 7)) * size, rng.normal(size=(4, 3)) / size
        d[0], d[1] = d[0] * 100.0, d[1] * 1e-4
        length, of_x, of_d = scheduled(x, d, lr, g, engine, **settings)
        for b in range(4):
            n, want_x, want_d = expected(x[b], d[b], lr, g, analog.UpdateParameters(**settings))
            assert length[b] == n
            np.testing.assert_allclose(of_x[b], want_x, rtol=3e-7, atol=1e-7)
            np.testing.assert_allclose(of_d[b], want_d, rtol=3e-7, atol=1e-7)


def test_levels_are_equal_on_the_engine_and_in_the_interpreter() -> None:
    rng = np.random.default_rng(2)
    x, d = rng.normal(size=(50, 9)), rng.normal(size=(50, 4)) * 10.0 ** rng.uniform(-6, 2, (50, 1))
    for first, second in zip(*(scheduled(x, d, 0.03, 0.0013, e) for e in ENGINES), strict=True):
        np.testing.assert_array_equal(first, second)


def test_numbers_at_the_ends_of_float32_give_pulses_or_none() -> None:
    for x, d, lr in ((1e-38, 1e38, 1e-2), (1e38, 1e-38, 1e-2), (3e38, 3e38, 1e30), (1e-40, 1e-40, 1e-30), (1.0, 1.0, 3e38)):
        length, of_x, of_d = scheduled([[x, x / 2]], [[d]], lr, 1e-3)
        n, want_x, want_d = expected([x, x / 2], [d], lr, 1e-3, analog.UpdateParameters())
        assert length[0] == n
        np.testing.assert_allclose(of_x[0], want_x, rtol=1e-6, atol=2**-31)
        np.testing.assert_allclose(of_d[0], want_d, rtol=1e-6, atol=2**-31)


def test_without_inputs_errors_or_rate_there_are_no_pulses() -> None:
    for x, d, lr in (([[0.0, 0.0]], [[1.0]], 0.1), ([[1.0, 1.0]], [[0.0]], 0.1), ([[1.0, 1.0]], [[1.0]], 0.0)):
        assert scheduled(x, d, lr, 1e-3)[0].tolist() == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_by_numbers_that_are_not_finite_is_an_error(bad: float) -> None:
    for x, d, lr, named in (
        ([[1.0, bad]], [[1.0]], 0.1, "x is finite"), ([[1.0, 1.0]], [[bad]], 0.1, "d is finite"),
        ([[1.0, 1.0]], [[1.0]], bad, "lr is finite"),
    ):  # fmt: skip
        tile = analog.Tile(1, 2, seed=0)
        with pytest.raises(fb.FirebrickError, match=named):
            tile.update(fb.asarray(np.float32(x)), fb.asarray(np.float32(d)), lr).numpy()
        compiled = fb.jit(tile.update)
        with pytest.raises(fb.FirebrickError, match="of an update"):
            compiled(fb.asarray(np.float32(x)), fb.asarray(np.float32(d)), fb.asarray(np.float32(lr))).numpy()


def test_trains_fire_as_often_as_their_levels_say() -> None:
    values = fb.asarray(np.array([[0.0, 0.25, -0.5, 1.0]], np.float32))
    factor, scale = fb.asarray(np.array([1 << 30], np.int64)), fb.asarray(np.array([[2.0**12, 2.0**13]], np.float32))
    assert levels(values, factor, scale, fb.random.Generator(0).key(), 0, False).tolist() == [[0, FULL // 4, FULL // 2, FULL]]
    length, needed = fb.asarray(np.array([70], np.int64)), fb.asarray(np.array([1], np.uint32))
    counts = np.zeros(4)
    for seed in range(200):
        words = trains(values, factor, scale, fb.random.Generator(seed).key(), 0, False, length, needed, 3).numpy()
        counts += [sum(int(w).bit_count() for w in words[0, :, line]) for line in range(4)]
        assert not np.any(words[0, 2] >> 6)  # nothing fires after the last slot
    np.testing.assert_allclose(counts / 200 / 70, [0.0, 0.25, 0.5, 1.0], atol=5 * 0.5 / np.sqrt(14000))
    assert counts[0] == 0
    assert counts[3] == 14000


def test_pulses_are_those_of_the_lines_that_fire_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x, d = (fb.asarray(rng.normal(size=(3, n)).astype(np.float32)) for n in (4, 6))
    kept: list[Any] = []

    def recorded(*args: Any) -> Any:
        kept.append(made_trains(*args))
        return kept[-1]

    monkeypatch.setattr(device_array, "made_trains", recorded)
    for length in (1, 31, 32, 33, 100):
        update = analog.UpdateParameters(desired_bl=length)
        pulses = analog.Tile(6, 4, analog.RPUConfig(update=update), seed=3).update(x, d, 0.5)
        xs, ds = kept[-1].x.numpy(), kept[-1].d.numpy()
        assert xs.shape == (3, -(-length // 32), 4)
        both = xs[:, :, None, :] & ds[:, :, :, None]
        np.testing.assert_array_equal(pulses.numpy(), np.vectorize(lambda w: int(w).bit_count())(both).sum((0, 1)))


def test_columns_have_no_pulses_in_samples_in_which_no_row_fires() -> None:
    """And the pulses in other samples are those that all columns would have."""
    rng = np.random.default_rng(6)
    x, d = rng.normal(size=(70, 20)).astype(np.float32), rng.normal(size=(70, 3)).astype(np.float32) * 0.05
    d[:7] = 0.0
    found = []
    for rows in (1, 3):
        keys = fb.random.Generator(1).key(), fb.random.Generator(2).key()
        made = made_trains(
            fb.asarray(x), fb.asarray(d[:, :rows]), fb.asarray(0.01, dtype=float32), 0.001,
            analog.UpdateParameters(update_bl_management=False, update_management=False), 31, keys,
        )  # fmt: skip
        fires = np.any(made.d.numpy() != 0, axis=(1, 2))
        words = made.fired.numpy()
        bits = [[bool(words[b // 32, i] >> (b % 32) & 1) for i in range(rows)] for b in range(70)]
        np.testing.assert_array_equal(bits, np.any(made.d.numpy() != 0, axis=1))
        np.testing.assert_array_equal(np.any(made.x.numpy() != 0, axis=(1, 2))[~fires], False)
        assert 5 < fires.sum() < 64
        found.append((fires, made.x.numpy()))
    both = found[0][0] & found[1][0]
    np.testing.assert_array_equal(found[0][1][both], found[1][1][both])
    assert found[1][1][found[1][0]].any()


@typed_kernel(
    x=reads(uint32, "count"),
    n=reads(int64, "count"),
    q=reads(int64, "count"),
    bits=results(int64, "count"),
    out=results(int64, "count"),
)
def integers(x: Any, n: Any, q: Any, bits: Any, out: Any) -> None:
    i = fb.kernel.index()
    bits[i] = int(set_bits(x[i]))
    out[i] = rounded(n[i], q[i])


def test_set_bits_and_rounded_quotients_are_exact() -> None:
    words = np.concatenate([[0, 1, 0xFFFFFFFF, 0x80000001], np.random.default_rng(0).integers(0, 1 << 32, 396)])
    n, q = np.repeat(np.arange(100), 4), np.tile([1, 2, 5, 8], 100)
    bits, quotients = integers(*(fb.asarray(v) for v in (words.astype(np.uint32), n, q)))
    assert bits.tolist() == [int(w).bit_count() for w in words]
    assert quotients.tolist() == [round(a / b) for a, b in zip(n.tolist(), q.tolist(), strict=True)]


def test_a_negative_rate_turns_all_pulses_round() -> None:
    rng = np.random.default_rng(4)
    x, d = (fb.asarray(rng.normal(size=(3, n)).astype(np.float32)) for n in (4, 6))
    for kind in analog.PulseType:
        device = analog.ConstantStepDevice(dw_min_std=0.0, dw_min_dtod=0.0, up_down_dtod=0.0)
        config = analog.RPUConfig(device, update=analog.UpdateParameters(pulse_type=kind))
        found = []
        for rate in (0.02, -0.02):
            tile = analog.Tile(6, 4, config, seed=3)
            tile.update(x, d, rate)
            found.append(tile.weight.numpy())
        np.testing.assert_allclose(found[0], -found[1], atol=1e-7)
        assert np.abs(found[0]).max() > 0.005


def test_trains_grow_with_the_rate_whether_it_is_a_number_a_tensor_or_that_of_a_graph() -> None:
    update = analog.UpdateParameters(fixed_bl=False, update_bl_management=False, update_management=False)
    device = analog.ConstantStepDevice(dw_min_std=0.0, dw_min_dtod=0.0, up_down_dtod=0.0, w_max=10.0, w_min=-10.0)
    tile = analog.Tile(1, 1, analog.RPUConfig(device, update=update), seed=0)
    one = fb.ones((1, 1))
    assert tile.update(one, one, 0.1).tolist() == [[100]]
    assert tile.update(one, one, fb.asarray(0.1)).tolist() == [[100]]
    step = fb.jit(lambda t, lr: t.update(one, one, lr))
    for rate in (0.1, 0.25):
        assert step(tile, fb.asarray(np.float32(rate))).tolist() == step(tile, rate).tolist() == [[round(rate * 1000)]]
