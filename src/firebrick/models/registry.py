"""Models by name, as the command line and recipes ask for them: built for images and classes, or for windows of series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.models.classifiers import cnn, lenet, mlp
from firebrick.models.patchtst import patchtst
from firebrick.models.recurrent import lstm_forecaster
from firebrick.models.resnet import resnet18
from firebrick.models.transformers import transformer
from firebrick.nn import Module


def _mlp(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return mlp(channels * image * image, classes=classes, **settings)


def _cnn(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return cnn(channels, image, classes, **settings)


def _lenet(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return lenet(channels, image, classes, **settings)


def _resnet18(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return resnet18(channels, classes, **settings)


def _transformer(image: int, channels: int, classes: int, **settings: Any) -> Module:
    settings.setdefault("patch", image // 4 if image % 4 == 0 else image)
    return transformer(image, classes=classes, channels=channels, **settings)


CLASSIFIERS: dict[str, Callable[..., Module]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "lenet": _lenet,
    "resnet18": _resnet18,
    "transformer-classifier": _transformer,
}
FORECASTERS: dict[str, Callable[..., Module]] = {"lstm-forecaster": lstm_forecaster, "patchtst": patchtst}
ALIASES = {"transformer": "transformer-classifier"}  # names of earlier versions
TASKS = {"classification": CLASSIFIERS, "forecasting": FORECASTERS}


def names(task: str | None = None) -> list[str]:
    """The names that ``build`` knows, all of them or those of a task.

    Args:
        task: "classification" (of images) or "forecasting" (of series); None for both.

    Raises:
        ConfigError: The task is unknown.

    Example:
        >>> import firebrick as fb
        >>> fb.models.names("classification")
        ['mlp', 'cnn', 'lenet', 'resnet18', 'transformer-classifier']
        >>> fb.models.names("forecasting")
        ['lstm-forecaster', 'patchtst']
    """
    if task is not None and task not in TASKS:
        raise ConfigError(f"a task is one of {', '.join(TASKS)}", repr(task), "use one of these, or None for all names")
    return [name for kind, table in TASKS.items() if task in (None, kind) for name in table]


def canonical(name: str) -> str:
    """The present name of a model that an earlier version called otherwise; any other name as it is."""
    return ALIASES.get(name, name)


def build(name: str, image_size: int | None = None, channels: int = 1, classes: int = 10, **settings: Any) -> Module:
    """A model by name: a classifier of images, or a forecaster of series.

    Args:
        name: One of ``names()``.
        image_size: Height and width of an image; for classifiers only, which need it.
        channels: Channels of an image; for classifiers only.
        classes: Number of logits; for classifiers only.
        settings: Further arguments of the function of that name (``hidden=``, ``dim=``, ``dtype=``, ``device=``, …); a
            forecaster takes ``series=``, ``window=`` and ``horizon=`` here.

    Returns:
        Module from [batch, channels, image_size, image_size] to logits [batch, classes], or from
        [batch, window, series] to [batch, horizon, series].

    Raises:
        ConfigError: The name is unknown, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.models.build("mlp", 8, hidden=(16,))(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
        >>> fb.models.build("lstm-forecaster", series=2, window=12, horizon=3)(fb.zeros((4, 12, 2))).shape
        (4, 3, 2)
    """
    key = canonical(name)
    if key not in CLASSIFIERS and key not in FORECASTERS:
        raise ConfigError(f"a model is one of {', '.join(names())}", repr(name), "use one of these, or build a module yourself")
    try:
        if key in FORECASTERS:
            if image_size is not None:
                raise ConfigError(
                    f"{key} takes windows of series", f"image_size = {image_size}", "pass series=, window= and horizon="
                )
            return FORECASTERS[key](**settings)
        if image_size is None:
            raise ConfigError(f"{key} takes images", "no image_size", "pass the height and width of an image")
        return CLASSIFIERS[key](image_size, channels, classes, **settings)
    except TypeError as e:
        if "unexpected keyword" not in str(e):
            raise
        raise ConfigError(f"{key} has its own settings", str(e).split(") ")[-1], f"see the arguments of models.{key}") from e
