"""Updates by random settings, sizes and values have the same pulses and weights in each of the ways that an update may run."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import column_lists, device_array
from firebrick.analog.presets import DEVICES

CLASSES = (
    analog.ConstantStepDevice, analog.LinearStepDevice, analog.SoftBoundsDevice, analog.SoftBoundsPmaxDevice,
    analog.SoftBoundsReferenceDevice, analog.ExpStepDevice, analog.PowStepDevice, analog.PowStepReferenceDevice,
    analog.PiecewiseStepDevice,
)  # fmt: skip
SETTINGS: dict[str, tuple[float, ...]] = {
    "dw_min": (0.0001, 0.001, 0.01, 0.3), "dw_min_std": (0.0, 0.3, 3.0), "dw_min_dtod": (0.0, 0.7), "up_down": (-0.5, 0.5),
    "write_noise_std": (0.5, 20.0), "w_max_dtod": (1.0,), "pow_gamma": (0.0, 0.5, 7.0), "pow_gamma_dtod": (0.5,),
    "gamma_up": (0.0, 0.3),
}  # fmt: skip
RATES = (0.0, 1e-6, 0.0001, 0.001, 0.01, 0.1, 3.0, 1000.0, 1e8)


def device(rng: Any) -> Any:
    presets = sorted(DEVICES)
    if rng.random() < 0.4:
        return analog.preset(presets[rng.integers(len(presets))])
    of = CLASSES[rng.integers(len(CLASSES))]
    known = {f.name for f in fields(of) if f.init}
    return of(**{n: float(rng.choice(v)) for n, v in SETTINGS.items() if n in known and rng.random() < 0.4})


def parameters(rng: Any) -> analog.UpdateParameters:
    kinds = ("STOCHASTIC_COMPRESSED",) * 4 + ("STOCHASTIC", "MEAN_COUNT", "DETERMINISTIC_IMPLICIT")
    flags = {n: bool(rng.integers(2)) for n in ("update_management", "update_bl_management", "sto_round")}
    return analog.UpdateParameters(
        pulse_type=analog.PulseType[kinds[rng.integers(len(kinds))]], desired_bl=int(rng.choice([1, 2, 7, 31, 32, 33, 127])),
        res=float(rng.choice([0.0, 0.0, 0.01, 30.0])), um_grad_scale=float(rng.choice([1.0, 1.0, 0.5, 4.0])),
        fixed_bl=bool(rng.random() < 0.8), **flags,
    )  # fmt: skip


def vectors(rng: Any, samples: int, lines: int) -> Any:
    """Dense, sparse, positive, of one line each, of many magnitudes, large, denormal or zeros."""
    v, kind = rng.normal(size=(samples, lines)), rng.integers(9)
    if kind == 0:
        v = v * (rng.random(v.shape) < 0.1)
    elif kind == 1:
        v = np.maximum(v, 0.0)
    elif kind == 2:
        v = v * (np.arange(lines) == rng.integers(lines, size=(samples, 1)))
    elif kind == 3:
        v = v * 10.0 ** rng.integers(-6, 3, size=(samples, 1))
    elif kind < 8:
        v = v * (0.001, 1e15, 1e-39, 0.0)[kind - 4]
    return v.astype(np.float32)


def updates(seed: int) -> tuple[analog.RPUConfig, tuple[int, int], list[tuple[Any, Any, float]], Any]:
    rng = np.random.default_rng(seed)
    config = analog.RPUConfig(device(rng), update=parameters(rng))
    rows, columns = (int(n) for n in rng.choice([1, 2, 31, 32, 33, 65], size=2))
    given = []
    for samples in rng.choice([0, 1, 2, 3, 17], size=2):
        rate = float(rng.choice(RATES, p=[0.03, 0.05, 0.1, 0.2, 0.3, 0.2, 0.06, 0.04, 0.02]))
        rate = -rate if rng.random() < 0.2 else rate
        given.append((vectors(rng, samples, columns), vectors(rng, samples, rows), rate))
    return config, (rows, columns), given, rng.uniform(-0.9, 0.9, (rows, columns))


def results(seed: int, engine: str = "cpu") -> list[Any]:
    """Pulses, weights and the place of the generator after each update; weights are in their bounds."""
    config, size, given, begin = updates(seed)
    tile = analog.Tile(*size, config, seed=seed, device=engine)
    tile.place(begin)
    (array,), found = tile.arrays, []
    for x, d, rate in given:
        counts = tile.update(fb.asarray(x, device=engine), fb.asarray(d, device=engine), rate).numpy()
        low, high = (v.numpy() for v in config.device.limits(array.devices.hidden))
        w = array.acted_on.numpy()
        assert np.all((w >= low) & (w <= high))
        found += [counts, w, tile.weight.numpy(), tile.generator.mark()]
    return found


def hold(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        wanted = results(seed)
        config, (rows, columns), given, _ = updates(seed)
        ways = {}
        if config.update.fixed_bl and rows * columns * sum(len(x) for x, *_ in given) < 4000:  # it takes seconds for more
            ways["interpreter"] = results(seed, "numpy")
        with fb.config.scope(num_threads=2):
            ways["two threads"] = results(seed)
        with monkeypatch.context() as m:
            m.setattr(column_lists, "LARGE", 0)
            m.setattr(column_lists, "SPARSE", 0)
            ways["lists of columns"] = results(seed)
        with monkeypatch.context() as m:
            m.setattr(device_array, "COMPILED", 0)
            ways["programs"] = results(seed)
        for name, found in ways.items():
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"{name}, seed {seed}: {config}")


def test_updates_have_the_same_pulses_and_weights_in_each_way(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    hold(range(2 * seed + 4, 2 * seed + 6), monkeypatch)


@pytest.mark.soak
def test_many_updates_have_the_same_pulses_and_weights_in_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(range(1000, 1100), monkeypatch)
