"""Settings of models at their limits, and the distributions that their initial values have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import models

LAST = math.nextafter(1.0, 0.0)
COUNT, REFUSED = (1, 2), (0, -1, True, 1.0, "1", None)


def forecaster(**changed: Any) -> Any:
    small = {"window": 8, "horizon": 2, "patch": 4, "dim": 4, "heads": 2, "layers": 1}
    return models.patch_transformer_forecaster(**{**small, **changed})


def transformer(**changed: Any) -> Any:
    return models.transformer(**{"image": 8, "patch": 4, "dim": 4, "heads": 2, "layers": 1, **changed})


def patchtst(**changed: Any) -> Any:
    small = {"series": 2, "window": 12, "horizon": 2, "patch": 4, "stride": 2, "dim": 4, "heads": 2, "hidden": 4, "layers": 1}
    return models.patchtst(**{**small, **changed})


def lstm(**changed: Any) -> Any:
    return models.lstm_forecaster(**{"series": 2, "window": 8, "horizon": 2, "hidden": 3, **changed})


# a model, one of its settings, values that are allowed, and values that are not
LIMITS: list[tuple[Callable[..., Any], str, tuple[Any, ...], tuple[Any, ...]]] = [
    *((lambda **n: models.mlp(**{"in_features": 2, **n}), name, COUNT, REFUSED) for name in ("in_features", "classes")),
    (lambda **n: models.mlp(2, **n), "hidden", ((), (1,), [3, 2]), ((0,), (3, -1), (True,), 3, "ab")),
    *((models.lenet, name, COUNT, REFUSED) for name in ("channels", "classes")),
    (models.lenet, "image", (12, 28), (11, 0, True)),
    *((models.cnn, name, COUNT, REFUSED) for name in ("channels", "classes", "width", "features")),
    (models.cnn, "image", (4, 5), (3, 0, True)),
    (models.cnn, "dropout", (0.0, LAST), (-1e-9, 1.0, True)),
    *((lambda **n: models.resnet18(**{"width": 1, **n}), name, COUNT, REFUSED) for name in ("channels", "classes", "width")),
    *((lambda **n: models.resnet18(width=1, **n), name, (True, False), (0, 1, None)) for name in ("zero_init", "large_images")),
    *((transformer, name, COUNT, REFUSED) for name in ("classes", "channels")),
    (transformer, "image", (4, 8), (6, *REFUSED)),
    (transformer, "patch", (1, 8), (3, *REFUSED)),
    (transformer, "dim", (2, 4), (3, *REFUSED)),
    (transformer, "heads", (1, 4), (3, 8, *REFUSED)),
    (transformer, "layers", (0, 2), (-1, True, 1.0)),
    (transformer, "dropout", (0.0, LAST), (-1e-9, 1.0)),
    (forecaster, "window", (4, 8), (6, *REFUSED)),
    (forecaster, "patch", (1, 8), (3, 16, *REFUSED)),
    (forecaster, "horizon", COUNT, REFUSED),
    (forecaster, "heads", (1, 4), (3, 8, *REFUSED)),
    (forecaster, "layers", (0, 2), (-1, True, 1.0)),
    *((patchtst, name, COUNT, REFUSED) for name in ("series", "horizon", "stride", "hidden", "layers")),
    (patchtst, "window", (4, 12), (3, *REFUSED)),
    (patchtst, "patch", (1, 12), (13, *REFUSED)),
    (patchtst, "heads", (1, 4), (3, 8, *REFUSED)),
    (patchtst, "dropout", (0.0, LAST), (-1e-9, 1.0)),
    *((lstm, name, COUNT, REFUSED) for name in ("series", "window", "horizon", "hidden", "layers")),
    (lstm, "dropout", (0.0, LAST), (-1e-9, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "name", "allowed", "refused"), LIMITS)
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(
    make: Callable[..., Any], name: str, allowed: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    for value in allowed:
        make(**{name: value})
    for value in refused:
        with pytest.raises(fb.ConfigError):
            make(**{name: value})


MADE: dict[str, Callable[..., Any]] = {
    "mlp": lambda **how: models.mlp(2, (3,), **how),
    "lenet": models.lenet,
    "cnn": lambda **how: models.cnn(image=4, width=2, dropout=0.5, **how),
    "resnet18": lambda **how: models.resnet18(width=1, **how),
    "transformer": lambda **how: transformer(dropout=0.5, **how),
    "forecaster": forecaster,
    "patchtst": lambda **how: patchtst(dropout=0.5, **how),
    "lstm": lambda **how: lstm(dropout=0.5, **how),
}


@pytest.mark.parametrize("name", MADE)
def test_a_generator_of_ones_own_gives_all_initial_values_and_masks_and_moves_no_other(name: str) -> None:
    before = fb.random.state()["initial"]["counter"].tolist()
    first, second, other = (MADE[name](generator=fb.random.Generator(n)) for n in (1, 1, 2))
    assert fb.random.state()["initial"]["counter"].tolist() == before
    for n, p in first.named_parameters():
        assert p.numpy().tobytes() == dict(second.named_parameters())[n].numpy().tobytes(), n
    assert repr(first.generator_states()) == repr(second.generator_states())
    if first.generators():
        assert repr(first.generator_states()) != repr(other.generator_states())
    drawn = [n for n, p in first.named_parameters() if p.numpy().std() > 0 and p.size > 1]
    assert all(first.state_dict()[n].tolist() != other.state_dict()[n].tolist() for n in drawn)
    assert len(drawn) > 1


def test_positions_and_kernels_have_the_spread_of_their_papers() -> None:
    fb.random.seed(0)
    bounded = patchtst(window=64, dim=32).position.numpy()
    assert 0.0198 < np.abs(bounded).max() <= np.float32(0.02)
    assert abs(bounded.std() / (0.02 / 3**0.5) - 1) < 0.1
    for model in (transformer(image=32, dim=32), forecaster(window=256, dim=32)):
        assert abs(model.position.numpy().std() / 0.02 - 1) < 0.1
    kernels = models.resnet18(width=16).stages[1].layers[0]
    for conv, size in ((kernels.conv1, 9), (kernels.shortcut.layers[0], 1)):
        assert abs(conv.weight.numpy().std() / (2 / (32 * size)) ** 0.5 - 1) < 0.1


def test_a_forecast_of_an_lstm_starts_at_the_last_value_of_each_series() -> None:
    model = lstm(dtype=fb.float64).eval()
    x = fb.random.Generator(0).normal((3, 8, 2), dtype=fb.float64)
    shift = fb.asarray([5.0, -3.0], dtype=fb.float64)
    np.testing.assert_allclose(model(x + shift).numpy(), (model(x) + shift).numpy(), rtol=1e-12)
    moved = model(x * 1.0 + fb.asarray(np.eye(8)[-1][None, :, None])).numpy() - model(x).numpy()
    assert np.abs(moved).min() > 0.1  # the level is the last value, not the mean


def test_a_model_takes_its_own_windows_only() -> None:
    for model, text in ((lstm(), "lstm_forecaster: x is"), (patchtst(), "patchtst: x is")):
        length = model.window
        for shape in ((2, length + 1, 2), (2, length, 3), (length, 2), (1, 2, length, 2)):
            with pytest.raises(fb.ShapeError, match=text):
                model(fb.zeros(shape))
    with pytest.raises(fb.ConfigError, match="patchtst takes windows of series"):
        models.build("patchtst", image_size=8)
