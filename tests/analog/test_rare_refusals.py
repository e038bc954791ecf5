"""Refusals of tiles and their tools that nothing else meets, each by its kind and the beginning of its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn
from firebrick.analog.pictures import check_picture
from firebrick.nn.saved import StateError

X = fb.ones((2, 3))
RANGED = analog.InferenceRPUConfig(
    forward=analog.IOParameters(noise_management=analog.NoiseManagementType.NONE),
    input_range=analog.InputRangeParameter(enable=True),
)
CURVE = analog.AccuracyOverTime((1.0, 60.0), np.ones((2, 2)), 1.0, "accuracy")


def tile() -> analog.Tile:
    return analog.Tile(2, 3, seed=0)


def ranged() -> analog.Linear:
    return analog.Linear(3, 2, config=RANGED, seed=0)


def calibrate(*batches: Any, **settings: Any) -> Any:
    return analog.calibrate_input_ranges(ranged(), list(batches), **settings)


def of_half() -> Any:
    return tile().astype(fb.float16).forward(X)


def weights_alone() -> Any:
    made = tile()
    made.load_state_dict({"weight": made.state_dict()["weight"]}, strict=False)


Z = analog.SoftBoundsDevice()
CELL = {"visible": 2, "parts": 1, "update": 4}  # what a cell of one's own writes, with its number of arguments
REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "texts": (fb.OperandError, "Tile.set_weights: .* are numbers in rows", lambda: tile().set_weights([["a", "b", "c"]] * 2)),
    "complex weights": (fb.DTypeError, "Tile.set_weights: .* are real", lambda: tile().set_weights(np.ones((2, 3)) * 1j)),
    "a vector that is none": (fb.OperandError, "Tile: x", lambda: tile().forward([1.0, 2.0, 3.0])),  # type: ignore[arg-type]
    "another time": (fb.ConfigError, "AccuracyOverTime.at: one of the times 1, 60", lambda: CURVE.at(2.0)),
    "batches without classes": (
        fb.ConfigError,
        "analog.accuracy_over_time: pairs of inputs and classes",
        lambda: analog.accuracy_over_time(analog.Linear(3, 2, config=analog.InferenceRPUConfig(), seed=0).eval(), [X]),
    ),
    "no range": (fb.ConfigError, "analog.calibrate_input_ranges: tiles with an input range",
        lambda: analog.calibrate_input_ranges(analog.Linear(3, 2, config=analog.InferenceRPUConfig(), seed=0), [X])),
    "another calibration": (fb.ConfigError, "analog.calibrate_input_ranges: calibration_type is an InputRangeCalibrationType: ",
        lambda: calibrate(X, calibration_type="max")),
    **{f"quantile {q}": (fb.ConfigError, r"analog.calibrate_input_ranges: quantile in \(0, 1\], std_alpha above 0",
        lambda q=q: calibrate(X, quantile=q)) for q in (0.0, 1.5, "1")},
    **{f"std_alpha {a}": (fb.ConfigError, r"analog.calibrate_input_ranges: quantile in \(0, 1\], std_alpha above 0",
        lambda a=a: calibrate(X, std_alpha=a)) for a in (0.0, float("inf"))},
    "no list": (fb.ConfigError, "analog.calibrate_input_ranges: batches is a list of tensors",
        lambda: analog.calibrate_input_ranges(ranged(), 3)),  # type: ignore[arg-type]
    "no batches": (fb.ConfigError, "analog.calibrate_input_ranges: batches on which each tile runs", lambda: calibrate()),
    "batches of zeros": (fb.ConfigError, "analog.calibrate_input_ranges: inputs of tiles.* that are finite and not all 0",
        lambda: calibrate(X * 0.0)),
    "an empty tuple": (fb.ConfigError, "a batch is a tensor, or a tuple whose first element it is", lambda: calibrate(())),
    **{f"range {r}": (fb.ConfigError, "InferenceTile.set_input_range: a positive number",
        lambda r=r: ranged().tiles.tiles[0][0].set_input_range(r)) for r in (0.0, True, float("inf"), "1")},
    **{f"piecewise {v}": (fb.ConfigError, "PiecewiseStepDevice: piecewise_down is a tuple of finite numbers",
        lambda v=v: analog.PiecewiseStepDevice(piecewise_down=v)) for v in ((), 1.0, (float("nan"),))},
    **{f"reset {a}": (fb.ConfigError, "Tile.reset: columns below 3, and a probability",
        lambda a=a: tile().reset(*a)) for a in ((3, 1, 1.0), (-1, 1, 1.0), (0, 4, 1.0), (0, -1, 1.0), (0, 1, 1.5), (0, 1, -0.5))
    },
    "weights of half precision": (fb.DTypeError, "Tile: weights are float32", of_half),
    "weights without devices": (StateError, "a state with the weights of a tile has its devices too", weights_alone),
    "a write to weights": (fb.ConfigError, "the weights of a tile change by pulses",
        lambda: tile().weight.__setitem__(0, 1.0)),
    "an optimizer of a list": (fb.ConfigError, "SGD: the model with the tile that", lambda: fb.optim.SGD([tile().weight], 0.1)),
    "an analog optimizer of a list": (fb.ConfigError, "SGD: a module, whose tiles it updates",
        lambda: analog.SGD([tile().weight], 0.1)),  # type: ignore[arg-type]
    **{f"a cell without {m}": (NotImplementedError, f"UnitCell has no {m}",
        lambda m=m, n=n: getattr(analog.UnitCell((Z, Z)), m)(*[None] * n)) for m, n in CELL.items()
    },
    "a policy": (fb.ConfigError, "VectorUnitCell: update_policy is one of ALL, ",
        lambda: analog.VectorUnitCell((Z, Z), update_policy="all")),  # type: ignore[arg-type]
    "a picture of a digital model": (fb.ConfigError, "analog.plot_weights: a model with analog layers",
        lambda: analog.plot_weights(nn.Linear(3, 2), "weights.png")),
    "a picture of another kind": (fb.ConfigError, r"plot: a file that ends in \.png, \.svg, \.pdf",
        lambda: check_picture("plot", "picture.txt")),
    "a picture in no folder": (fb.ConfigError, "plot: a file in a folder that exists",
        lambda: check_picture("plot", "/none/picture.png")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    kind, text, call = REFUSED[name]
    with pytest.raises(kind, match=f"^{text}"):
        call()


def test_a_response_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "response.csv"
    file.write_bytes(b"direction,weight\n1,\xff\n")
    with pytest.raises(fb.ConfigError, match=r"analog\.fit: a CSV file in UTF-8"):
        analog.read_response(file)
