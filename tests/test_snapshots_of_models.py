"""Snapshots of models and of analog layers with another value for one argument: results, or which error it is.

``PYTHONPATH=src:tests/shared python tests/test_snapshots_of_models.py`` writes both files anew, where a change is meant; it
first compares the results with those of another engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_objects import INDICES, LAYERS, ramp
from snapshots import Call, differences, write

import firebrick as fb
from firebrick import analog, models, nn

VALUES = (None, True, False, 0, 1, 2, 0.25, "text", (2,))
PERFECT = analog.IOParameters(is_perfect=True)
IDEAL = analog.RPUConfig(analog.FloatingPointDevice(), PERFECT, PERFECT)
IMAGES, SERIES = ramp(2, 1, 8, 8), ramp(2, 12, 2)

# what a model is made with, and the array that it is called with
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "mlp": ({"in_features": 64, "hidden": (3,), "classes": 4}, IMAGES),
    "lenet": ({"image": 12}, ramp(2, 1, 12, 12)),
    "cnn": ({"image": 8, "width": 2, "features": 4}, IMAGES),
    "resnet18": ({"channels": 1, "width": 1}, IMAGES),
    "transformer": ({"image": 8, "patch": 4, "dim": 8, "heads": 2, "layers": 1}, IMAGES),
    "patch_transformer_forecaster": ({"window": 12, "horizon": 2, "patch": 4, "dim": 8, "layers": 1}, ramp(2, 12)),
    "patchtst": (
        {"series": 2, "window": 12, "horizon": 2, "patch": 4, "stride": 2, "dim": 8, "heads": 2, "hidden": 4, "layers": 1},
        SERIES,
    ),
    "lstm_forecaster": ({"series": 2, "window": 12, "horizon": 2, "hidden": 3}, SERIES),
    "GPT": ({"vocabulary": 7, "length": 8, "dim": 8, "heads": 2, "layers": 1}, INDICES),
}  # fmt: skip
TEXTS = {"norm": ("layer", "rms"), "feed_forward": ("gelu", "gelu_tanh", "swiglu"), "positions": ("learned", "rotary"),
         "nonlinearity": ("tanh", "relu")}  # fmt: skip
RECURRENT = ("RNN", "LSTM", "GRU")
ANALOG = ("Linear", *(f"Conv{r}d" for r in (1, 2, 3)), *RECURRENT, *(f"{r}Cell" for r in RECURRENT), "MultiheadAttention")


def call(name: str, made: Any, given: dict[str, Any], device: str, *arrays: Any) -> Call:
    def run(arguments: dict[str, Any]) -> Any:
        fb.random.seed(1)
        model = made(**arguments, **({} if "device" in arguments else {"device": device}))
        found = model(*(fb.asarray(a, device=device) for a in arrays))
        model.eval()
        return found, model(*(fb.asarray(a, device=device) for a in arrays)), sum(p.size for p in model.parameters())

    names = [n for n in inspect.signature(made).parameters if n not in ("config", "seed")]
    return Call(name, run, given, made, settings={n: VALUES + TEXTS.get(n, ()) for n in names})


def of_models(device: str) -> Iterator[Call]:
    for name, (given, array) in MODELS.items():
        yield call(name, getattr(models, name), given, device, array)


def of_analog_layers(device: str) -> Iterator[Call]:
    for name in ANALOG:
        made, (args, arrays) = getattr(analog, name), LAYERS[name]
        given = dict(zip(inspect.signature(getattr(nn, name)).parameters, args, strict=False)) | {"config": IDEAL}
        yield call(f"analog.{name}", made, given, device, *arrays)


FILES = {"snapshots_of_models.txt": of_models, "snapshots_of_analog_layers.txt": of_analog_layers}


@pytest.mark.parametrize("file", FILES)
def test_calls_have_the_outcomes_of_their_snapshots(file: str) -> None:
    assert differences(Path(__file__).with_name(file), FILES[file]("numpy")) == [], f"if this is meant: {__doc__}"


if __name__ == "__main__":
    for file, calls in FILES.items():
        write(Path(__file__).with_name(file), calls("numpy"), calls("cpu" if calls is of_analog_layers else "torch:cpu"))
