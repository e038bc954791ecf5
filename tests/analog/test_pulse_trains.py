from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from combinations import turns_of
from poisoned_memory import poisoned_memory

import firebrick as fb
from firebrick import analog
from firebrick.analog import device_array
from firebrick.analog.pulse_trains import (
    FULL,
    Slots,
    Trains,
    arranged,
    levels,
    made_trains,
    power_of_two,
    quotient,
    ratios,
    root,
    schedule,
    set_bits,
    trains,
)
from firebrick.analog.pulsed_update import fitting, rounded
from firebrick.analog.typed_kernel import reads, results, typed_kernel
from firebrick.core.dtypes import float32, int64, uint32
from firebrick.ops import OPS

ENGINES = ("cpu", "numpy")


def number(value: float, engine: str) -> fb.Tensor:
    return fb.asarray(value, dtype=float32, device=engine)


def scheduled(x: Any, d: Any, lr: float, g: float, engine: str = "cpu", **settings: Any) -> tuple[Any, Any, Any]:
    """Lengths, and levels of x and d as shares."""
    p = analog.UpdateParameters(**settings)
    xs, ds = (fb.asarray(np.float32(v), device=engine) for v in (x, d))
    top, of_d = fb.max(fb.abs(xs), axis=1), fb.max(fb.abs(ds), axis=1)
    ratio = ratios(fb.full((1,), lr, dtype=fb.float32, device=engine), number(g, engine))
    length, xf, xs_, df, ds_ = schedule(
        top, of_d, ratio, p.desired_bl, p.update_management, p.update_bl_management, p.fixed_bl
    )  # fmt: skip
    each = schedule(
        top, of_d, fb.concat([ratio] * top.shape[0]), p.desired_bl, p.update_management, p.update_bl_management, p.fixed_bl
    )
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip((length, xf, xs_, df, ds_), each, strict=True))
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_factor_of_the_largest_error_that_overflows_gives_the_pulses_of_the_largest_number(engine: str) -> None:
    x, d = (fb.asarray(np.float32(v), device=engine) for v in ([[1.0, 0.5]], [[3e38, 1e38]]))

    def updated(factor: float, compiled: bool) -> Any:
        config = analog.RPUConfig(analog.ConstantStepDevice(), update=analog.UpdateParameters(um_grad_scale=factor))
        tile = analog.Tile(2, 2, config, seed=0, device=engine)
        update = fb.jit(tile.update) if compiled else tile.update
        with pytest.raises(fb.FirebrickError, match="finite"):  # what is not finite stays an error
            update(x, d * 10.0, fb.asarray(np.float32(0.1), device=engine))
        return update(x, d, fb.asarray(np.float32(0.1), device=engine)).numpy()

    for compiled in (False, True):
        wanted = updated(1.1, compiled)  # 3.3e38 is less than the largest number
        assert np.sum(wanted) > 0
        for factor in (4.0, 1e300):
            np.testing.assert_array_equal(updated(factor, compiled), wanted)


def test_trains_fire_as_often_as_their_levels_say() -> None:
    values = fb.asarray(np.array([[0.0, 0.25, -0.5, 1.0]], np.float32))
    factor, scale = fb.asarray(np.array([1 << 30], np.int64)), fb.asarray(np.array([[2.0**12, 2.0**13]], np.float32))
    assert levels(values, factor, scale, fb.random.Generator(0).key(), 0, False).tolist() == [[0, FULL // 4, FULL // 2, FULL]]
    length = fb.asarray(np.array([70], np.int64))
    slots = Slots(length, *arranged(length, 3))
    counts = np.zeros(4)
    for seed in range(200):
        key, needed = fb.random.Generator(seed).key(), fb.full((3,), 0xFFFFFFFF, dtype=uint32)
        fires, negative = trains(values, factor, scale, key, 0, False, *slots.places, *slots.samples, needed, seed % 2 == 0)
        words = fires.numpy()
        counts += [sum(int(w).bit_count() for w in words[:, line]) for line in range(4)]
        assert not np.any(words[2] >> 6)  # nothing fires after the last slot
        assert [int(w) for w in negative.numpy()[:, 2]] == [0xFFFFFFFF, 0xFFFFFFFF, 0b111111]
        assert not np.any(negative.numpy()[:, [0, 1, 3]])
    np.testing.assert_allclose(counts / 200 / 70, [0.0, 0.25, 0.5, 1.0], atol=5 * 0.5 / np.sqrt(14000))
    assert counts[0] == 0
    assert counts[3] == 14000


def test_whether_a_line_fires_does_not_depend_on_how_its_level_was_rounded() -> None:
    settings = analog.UpdateParameters(
        desired_bl=1, update_bl_management=False, update_management=False, res=0.5, sto_round=True
    )
    tile = analog.Tile(1, 4, analog.RPUConfig(analog.ConstantStepDevice(), update=settings), seed=0)
    x, d, updates = fb.full((2, 4), 0.25), fb.full((2, 1), -1.0), 500
    counts = sum(tile.update(x, d, tile.config.device.granularity).numpy() for _ in range(updates))
    np.testing.assert_allclose(counts / updates, 0.5, atol=5 * math.sqrt(2 * 0.25 * 0.75 / updates))


def places(length: Any, words: int) -> list[tuple[int, int, int]]:
    """(word, slot of the word, sample) of each slot of all samples, by the rule of ``Slots``."""
    found, at = [], 0
    for b, slots in enumerate(length.tolist()):
        if at % 32 + slots > 32:
            at = -(-at // 32) * 32
        found += [((at + s) // 32, (at + s) % 32, b) for s in range(slots)]
        at += slots if slots <= 32 else -(-slots // 32) * 32
    assert all(w < words for w, _, _ in found)
    return found


def by_samples(words: Any, made: Trains) -> Any:
    """In which slots lines fire: bool [samples, slots, lines]."""
    length, bits = made.slots.length.numpy(), words.numpy()
    fires = np.zeros((len(length), max(1, int(length.max(initial=0))), bits.shape[1]), bool)
    count = np.zeros(len(length), int)
    for w, s, b in places(length, len(bits)):
        fires[b, count[b]] = bits[w] >> s & 1
        count[b] += 1
    assert fires.sum() == sum(int(v).bit_count() for v in bits.ravel())  # and in no others
    return fires


@pytest.mark.parametrize("most", [1, 3, 6, 32, 70])
def test_a_line_fires_in_a_slot_where_the_word_of_its_address_is_below_its_level(most: int) -> None:
    rng = np.random.default_rng(most)
    samples, lines, room = 11, 3, -(-most // 32)
    length = rng.integers(0, most + 1, samples)
    values, key = fb.asarray(rng.normal(size=(samples, lines)).astype(np.float32)), fb.random.Generator(most).key()
    factor, scale = fb.full((samples,), 1 << 30, dtype=int64), fb.full((samples, 2), 2.0**12.5, dtype=float32)
    slots = Slots(fb.asarray(length), *arranged(fb.asarray(length), samples * room))
    needed = fb.full((samples * room,), 0xFFFFFFFF, dtype=uint32)
    fires, negative = trains(values, factor, scale, key, 0, False, *slots.places, *slots.samples, needed, False)
    level = levels(values, factor, scale, key, 0, False).numpy()
    stream = OPS["random_bits"].reference(key.numpy(), shape=(4 * 36 * 3 * lines * room,), offset=0)
    words = stream.reshape(room, 3, 36, lines, 4)  # 32 slots of a sample, four samples, block, line, word of a block
    at = dict.fromkeys(range(samples), 0)
    for w, slot, b in places(length, samples * room):
        part, s = divmod(at[b], 32)
        block, word = (s, b % 4) if length[b] <= 4 else (4 + 8 * (b % 4) + s // 4, s % 4)
        np.testing.assert_array_equal(fires.numpy()[w] >> slot & 1, words[part, b // 4, block, :, word] < level[b])
        np.testing.assert_array_equal(negative.numpy()[w] >> slot & 1, values.numpy()[b] < 0.0)
        at[b] += 1
    assert 0 < sum(at.values()) == length.sum()


@pytest.mark.parametrize("most", [1, 5, 31, 32, 100])
def test_a_sample_of_at_most_a_word_is_in_one_word_and_a_longer_one_begins_with_one(most: int) -> None:
    length = np.random.default_rng(most).integers(0, most + 1, 200)
    words = 200 * -(-most // 32)
    start, first, begins, used, before, active = (t.numpy() for t in arranged(fb.asarray(length), words))
    where = places(length, words)
    assert used[0] == max(w for w, _, _ in where) + 1
    for b in range(200):
        own = [(w, s) for w, s, of in where if of == b]
        assert not own or divmod(int(start[b]), 32) == own[0]
        assert len({w for w, _ in own}) == -(-int(length[b]) // 32)
    for w in range(int(used[0])):
        samples = sorted({b for at, _, b in where if at == w})
        assert first[w] == active[before[w]] == samples[0]
        assert int(begins[w]) == sum(1 << int(start[b] % 32) for b in samples if start[b] >= 32 * w)
    assert not begins[used[0] :].any()
    having = np.flatnonzero(length)
    np.testing.assert_array_equal(active, np.pad(having, (0, 200 - len(having))))


def test_pulses_are_those_of_the_lines_that_fire_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x, d = (fb.asarray(rng.normal(size=(3, n)).astype(np.float32)) for n in (4, 6))
    kept: list[Any] = []

    def recorded(*args: Any) -> Any:
        kept.append(made_trains(*args))
        return kept[-1]

    monkeypatch.setattr(device_array, "made_trains", recorded)
    for length in (1, 8, 31, 32, 33, 100):
        for management in (True, False):
            update = analog.UpdateParameters(desired_bl=length, update_bl_management=management)
            pulses = analog.Tile(6, 4, analog.RPUConfig(update=update), seed=3).update(x, d, 0.05)
            made = kept[-1]
            xs, ds = by_samples(made.x, made), by_samples(made.d, made)
            both = xs[:, :, None, :] & ds[:, :, :, None]
            np.testing.assert_array_equal(pulses.numpy(), both.sum((0, 1)))
            assert both.any()


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
        xs, ds, fired = (by_samples(words, made) for words in (made.x, made.d, made.fired))
        lengths = made.slots.length.numpy()
        np.testing.assert_array_equal(fired.sum(1), np.any(ds, axis=1) * lengths[:, None])
        fires = np.any(ds, axis=(1, 2))
        np.testing.assert_array_equal(np.any(xs, axis=(1, 2))[~fires], False)
        assert 5 < fires.sum() < 64
        found.append((fires, xs))
    both = found[0][0] & found[1][0]
    np.testing.assert_array_equal(found[0][1][both], found[1][1][both])
    assert found[1][1][found[1][0]].any()


@pytest.fixture
def poisoned() -> Iterator[None]:
    """What is read before it is written shows."""
    with poisoned_memory(0xA5):
        yield


@pytest.mark.parametrize("length", [31, 70])
@pytest.mark.usefixtures("poisoned")
def test_trains_that_leave_a_program_are_those_of_operations_in_every_word(length: int) -> None:
    rng = np.random.default_rng(8)
    x, d = (fb.asarray(rng.normal(size=(4096, n)).astype(np.float32) * 0.1) for n in (40, 30))
    d = d * fb.asarray((np.arange(4096) % 7 > 0).astype(np.float32))[:, None]  # samples without slots
    settings = 0.01, analog.UpdateParameters(desired_bl=length, update_bl_management=length < 32), length
    operands = x, d, fb.asarray(0.01, dtype=float32)
    keys = fb.random.Generator(1).key(), fb.random.Generator(2).key()
    program = device_array._program_of_trains(*settings, x.aval, d.aval, "cpu")
    for _ in range(2):
        found, want = program(*operands, keys=keys), made_trains(*operands, *settings, keys)
        assert 0 < want.slots.used.item() < want.x.shape[0]
        for name in ("x", "d", "x_negative", "d_negative", "fired"):
            np.testing.assert_array_equal(getattr(found, name).numpy(), getattr(want, name).numpy(), err_msg=name)
        for name in Slots._fields:
            np.testing.assert_array_equal(getattr(found.slots, name).numpy(), getattr(want.slots, name).numpy(), err_msg=name)


@pytest.mark.parametrize("length", [3, 31, 70])
def test_trains_of_some_samples_are_those_of_all_in_their_slots(length: int) -> None:
    rng = np.random.default_rng(7)
    x, d = (fb.asarray(rng.normal(size=(40, n)).astype(np.float32)) for n in (5, 4))
    made = made_trains(
        x, d, fb.asarray(0.05, dtype=float32), 0.001, analog.UpdateParameters(desired_bl=length), length,
        (fb.random.Generator(1).key(), fb.random.Generator(2).key()),
    )  # fmt: skip
    chosen, kept = rng.random(40) < 0.5, rng.random((40, 5)) < 0.5
    some = made.of_samples(fb.asarray(chosen))
    for before, after in ((made.d, some.d), (made.fired, some.fired)):
        np.testing.assert_array_equal(by_samples(after, made), by_samples(before, made) & chosen[:, None, None])
    lines = by_samples(made.kept(made.x, fb.asarray(kept)), made)
    np.testing.assert_array_equal(lines, by_samples(made.x, made) & kept[:, None])
    assert lines.any()


@typed_kernel(
    "count", fired=reads(uint32, "count"), begins=reads(uint32, "count"), room=reads(int64, "count"),
    samples=reads(int64, "count"), part=results(uint32, "count"), slots=results(int64, "count"), many=results(int64, "count"),
)  # fmt: skip
def first_samples(
    fired: Any, begins: Any, room: Any, samples: Any, part: Any, slots: Any, many: Any
) -> None:  # fmt: skip
    i = fb.kernel.index()
    part[i], slots[i], many[i] = fitting(fired[i], begins[i], room[i], samples[i])


def test_a_queue_takes_whole_samples_as_long_as_there_is_room() -> None:
    rng = np.random.default_rng(2)
    given, want = [], []
    for _ in range(200):
        cuts = [0, *sorted(rng.choice(np.arange(1, 31), rng.integers(0, 8), replace=False).tolist()), 31]
        parts = [((1 << b) - (1 << a), b - a) for a, b in itertools.pairwise(cuts)]
        fires = [p for p in parts if rng.random() < 0.7]
        room, most = int(rng.integers(0, 34)), int(rng.integers(0, 9))
        given.append((sum(p for p, _ in fires), sum(1 << a for a in cuts[:-1]), room, most))
        fit = [0, 0, 0]
        for bits, slots in fires:
            if fit[1] + slots > room or fit[2] == most:
                break
            fit = [fit[0] | bits, fit[1] + slots, fit[2] + 1]
        want.append(fit)
    fired, begins, room_, most_ = zip(*given, strict=True)
    words = (fb.asarray(np.array(v, np.uint32)) for v in (fired, begins))
    found = first_samples(*words, fb.asarray(np.array(room_)), fb.asarray(np.array(most_)))
    assert np.array([t.numpy() for t in found]).T.tolist() == want


@typed_kernel(
    a=reads(int64, "count"), b=reads(int64, "count"), ratio=results(int64, "count"), square_root=results(int64, "count"),
    power=results(float32, "count"),
)  # fmt: skip
def numbers_of(a: Any, b: Any, ratio: Any, square_root: Any, power: Any) -> None:
    i = fb.kernel.index()
    mantissa, exponent = quotient(a[i], 0, b[i], 0)
    ratio[i] = mantissa << (exponent + 31)
    mantissa, exponent = root(a[i], 0)
    square_root[i] = mantissa
    power[i] = power_of_two(a[i] % 300 - 160)


def test_quotients_and_roots_are_rounded_down_and_powers_of_two_are_exact() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(1 << 30, 1 << 31, 4000) for _ in range(2))
    side = rng.integers(1 << 15, 46341, 2000)
    a[:1000] = side[:1000] ** 2 % (1 << 30) + (1 << 30)
    a[1000:2000] = np.clip(side[1000:] ** 2 + rng.integers(-1, 2, 1000), 1 << 30, (1 << 31) - 1)
    b[2000:2500] = a[2000:2500] - rng.integers(0, 2, 500) * (a[2000:2500] > 1 << 30)
    a[:3], b[:3] = (1 << 30, (1 << 31) - 1, 1 << 30), (1 << 30, 1 << 30, (1 << 31) - 1)
    for engine in ENGINES:
        ratio, square_root, power = numbers_of(*(fb.asarray(v, device=engine) for v in (a, b)))
        exact = [(int(n) << 31) // int(m) for n, m in zip(a, b, strict=True)]
        assert ratio.tolist() == [v if v < 1 << 31 else v >> 1 << 1 for v in exact]
        assert square_root.tolist() == [math.isqrt(int(n) << 30) for n in a]
        exponents = [max(int(n) % 300 - 160, -150) for n in a]
        assert power.tolist() == [float(np.float32(math.ldexp(1.0, min(e, 127)))) for e in exponents]


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


@pytest.mark.parametrize(("kind", "length"), turns_of(["plain", "joined", "write noise", "cell"], [70, 8]))
@pytest.mark.usefixtures("poisoned")
def test_updates_in_a_program_read_no_memory_without_values(kind: str, length: int) -> None:
    soft = analog.SoftBoundsDevice()
    devices = {
        "plain": soft, "joined": analog.ConstantStepDevice(), "write noise": analog.SoftBoundsDevice(write_noise_std=1.0),
        "cell": analog.BufferedTransferCompound((soft, soft)),
    }  # fmt: skip
    rng = np.random.default_rng(length)
    x, d = (rng.normal(size=(40, n)).astype(np.float32) for n in (160, 130))  # as many devices as a sparse update needs
    x[::5], d[::7] = 0.0, 0.0
    for management, scale in ((True, 0.01), (True, 1.0), (False, 1.0)):
        update = analog.UpdateParameters(desired_bl=length, update_bl_management=management)
        config = analog.RPUConfig(devices[kind], update=update)
        one, other = (analog.Tile(130, 160, config, seed=3) for _ in range(2))
        step = fb.jit(other.update)
        for k in range(2):
            operands = fb.asarray(np.roll(x, k, 0)), fb.asarray(np.roll(d, k, 0) * scale), 0.05
            assert one.update(*operands).tolist() == step(*operands).tolist()
            assert one.weight.numpy().tobytes() == other.weight.numpy().tobytes()
