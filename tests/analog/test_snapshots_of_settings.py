"""What tiles do when one setting of their devices, periphery, updates or inference is another one, or which error it is.

``PYTHONPATH=src:tests/shared python tests/analog/test_snapshots_of_settings.py`` writes
``snapshots_of_settings.txt`` anew, where a change is meant; it first compares the results with those of the engine ``numpy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from snapshots import Call, differences, write

import firebrick as fb
from firebrick import analog

FILE = Path(__file__).with_name("snapshots_of_settings.txt")
VALUES = (0.3, 2, "text")
LIMITS = (-1, 0, 1, 1e-9, 1.5, math.nan, math.inf, True, None, "text", (), (1.0, 2.0))
W = np.asarray([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.25]], np.float32)
X = np.asarray([[0.5, -0.25], [0.75, 0.5], [1.5, -2.0]], np.float32)
D = np.asarray([[0.1, -0.2, 0.3], [0.2, 0.1, -0.3], [0.05, 0.4, -0.1]], np.float32)
SOFT = analog.SoftBoundsDevice(dw_min=0.02)
PAIR = (SOFT, SOFT)

# class → what it is made with
DEVICES: dict[str, dict[str, Any]] = {  # the other devices, each of which has a kernel of its own, are compared with formulas
    "ConstantStepDevice": {"dw_min": 0.02}, "FloatingPointDevice": {}, "IdealDevice": {},
}  # fmt: skip
CELLS = ("VectorUnitCell", "ReferenceUnitCell", "OneSidedUnitCell", "TransferCompound", "BufferedTransferCompound",
         "ChoppedTransferCompound", "DynamicTransferCompound", "MixedPrecisionCompound")  # fmt: skip
MODELS = ("PCMLikeNoiseModel", "StateIndependentNoiseModel", "HermesNoiseModel", "ReRamWan2022NoiseModel", "ReRamCMONoiseModel",
          "CustomDriftPCMLikeNoiseModel")  # fmt: skip
PARTS = {"clip": "WeightClipParameter", "remap": "WeightRemapParameter", "modifier": "WeightModifierParameter",
         "input_range": "InputRangeParameter"}  # fmt: skip


KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "WeightClipParameter": tuple({"type": t} for t in analog.WeightClipType),
    "WeightRemapParameter": tuple({"type": t} for t in analog.WeightRemapType),
    "WeightModifierParameter": tuple(
        {"type": t, "res": 0.2, "std_dev": 0.3, "coeffs": (0.1, 0.2), "pdrop": 0.25} for t in analog.WeightModifierType
    ),
    "InputRangeParameter": ({"enable": True},),
}


RARE = ("g_max", "pcm_t_inference", "pcm_t0", "pcm_zero_thres", "pcm_prob_at_reset", "pcm_prob_at_gmax", "pcm_prob_at_random",
        "enable_during_test", "assumed_wmax")  # fmt: skip
"""Settings that matter to modifiers by phase-change memory, or to all in the same way."""


def of(name: str, given: dict[str, Any], used: Callable[[Any], Any], left_out: frozenset[str] = frozenset()) -> Call:
    """A call with values for each setting of a class, of the setting's kind."""
    made, settings = getattr(analog, name), {}
    usual = made(**given)
    for field in fields(made):
        value = getattr(usual, field.name)
        if field.init and field.name not in left_out and not field.name.endswith(("device", "devices", "converter")):
            of_kind = tuple(type(value)) if isinstance(value, Enum) else (True, False) if isinstance(value, bool) else VALUES
            settings[field.name] = of_kind
    return Call(name, lambda a: used(made(**a)), given, made, settings=settings)


def calls(where: str) -> Iterator[Call]:
    x, d, w = (fb.asarray(v, device=where) for v in (X, D, W))
    io, free = analog.IOParameters(), analog.IOParameters(is_perfect=True)

    def updated(device: Any, parameters: Any = None, steps: tuple[str, ...] = ()) -> Any:
        """Weights after an update and what else changes them."""
        more = {} if parameters is None else {"update": parameters}
        tile = analog.Tile(3, 2, analog.RPUConfig(device, free, free, **more), seed=1, device=where)
        tile.set_weights(w)
        found = [tile.weight.detach()]
        tile.update(x, d, 0.3)
        found.append(tile.weight.detach())
        for step in steps:
            getattr(tile, step)()
            found.append(tile.weight.detach())
        return found

    def multiplied(parameters: Any) -> Any:
        """Products with weights, both ways."""
        tile = analog.Tile(3, 2, analog.RPUConfig(SOFT, parameters, parameters), seed=1, device=where)
        tile.set_weights(w)
        return tile.forward(x), tile.backward(d), tile.forward(x * 8.0)

    def inferred(**parts: Any) -> Any:
        """Products of a tile for inference: while it is trained, programmed, and a day later."""
        forward = analog.IOParameters(noise_management=analog.NoiseManagementType.NONE) if "input_range" in parts else io
        tile = analog.InferenceTile(3, 2, analog.InferenceRPUConfig(forward=forward, **parts), seed=1, device=where)
        tile.set_weights(w)
        found = [tile.forward(x)]
        tile.end_mini_batch()
        found.append(tile.scaled_weights().detach())
        tile.eval()
        for change in (tile.program_weights, lambda: tile.drift_weights(86400.0)):
            change()
            found.append(tile.forward(x))
        return found

    def mapped(mapping: Any) -> Any:
        layer = analog.Linear(2, 3, config=analog.RPUConfig(SOFT, free, free, mapping=mapping), seed=1, device=where)
        return layer(x), repr(analog.mapping_report(layer))

    seen: set[str] = set()  # settings that classes have in common are those of the first one
    for name, given in DEVICES.items():
        steps = () if seen else ("decay", "diffuse", "reset")
        yield of(name, given, lambda m, steps=steps: updated(m, None, steps), frozenset(seen))
        seen |= {f.name for f in fields(analog.PulsedDevice)}
    for name in CELLS:
        cells = PAIR[:1] if name == "MixedPrecisionCompound" else PAIR
        yield of(name, {"unit_cell_devices": cells}, lambda m: updated(m, None, ("end_mini_batch",)), frozenset(seen))
        seen |= {f.name for f in fields(analog.TransferCompound)} if name == "TransferCompound" else set()
    yield of("UpdateParameters", {}, lambda p: updated(SOFT, p), frozenset({"pulse_type"}))
    yield of("IOParameters", {}, multiplied)
    for name in MODELS:
        yield of(name, {}, lambda m: inferred(noise_model=m))
    for part, name in PARTS.items():
        for given in KINDS[name]:
            rare = frozenset(RARE) if given.get("type") is not analog.WeightModifierType.PCM_NOISE else frozenset()
            yield of(name, given, lambda p, part=part: inferred(**{part: p}), rare)._replace(
                name=f"{name} {next(iter(given.values()))}"
            )
    yield of("MappingParameter", {}, mapped)


def limits() -> Iterator[Call]:
    """Settings at and beyond their limits: which are taken, and what is said of the others."""
    for name in dir(analog):
        made = getattr(analog, name)
        if isinstance(made, type) and is_dataclass(made) and made.__module__.startswith("firebrick.analog"):
            given = {"unit_cell_devices": PAIR[: 1 + (name != "MixedPrecisionCompound")]} if name in CELLS else {}
            try:
                usual = made(**given)
            except (TypeError, fb.ConfigError):  # what has no defaults is a result or a base class
                continue
            settings = {f.name: LIMITS for f in fields(usual) if f.init}
            yield Call(f"limits {name}", lambda a, m=made: m(**a) and "taken", given, made, settings=settings)


def test_settings_have_the_outcomes_of_their_snapshots() -> None:
    assert differences(FILE, calls("cpu")) == [], f"if this is meant: {__doc__}"


def test_limits_of_settings_are_those_of_their_snapshots() -> None:
    assert differences(FILE.with_name("limits_of_settings.txt"), limits()) == [], f"if this is meant: {__doc__}"


if __name__ == "__main__":
    write(FILE, calls("cpu"), calls("numpy"))
    write(FILE.with_name("limits_of_settings.txt"), limits(), limits())
