"""Models by name, as the command line and recipes ask for them: for images and classes, for windows of series, or for text."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.models.checks import check_counts
from firebrick.models.classifiers import cnn, lenet, mlp
from firebrick.models.gpt import GPT
from firebrick.models.patchtst import patchtst
from firebrick.models.recurrent import lstm_forecaster
from firebrick.models.resnet import resnet18
from firebrick.models.transformers import transformer
from firebrick.nn import Module

CLASSIFIERS: dict[str, Callable[..., Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lenet": lenet,
    "resnet18": resnet18,
    "transformer-classifier": transformer,
}
FORECASTERS: dict[str, Callable[..., Module]] = {"lstm-forecaster": lstm_forecaster, "patchtst": patchtst}
LANGUAGE_MODELS: dict[str, Callable[..., Module]] = {"gpt": GPT}
ALIASES = {"transformer": "transformer-classifier"}  # names of earlier versions
TASKS = {"classification": CLASSIFIERS, "forecasting": FORECASTERS, "language": LANGUAGE_MODELS}
_OF_IMAGES = ("in_features", "image", "channels", "classes")  # arguments that the data decide
_OF_SERIES = ("series", "window", "horizon")
_OF_TEXT = ("vocabulary", "length")
_OF_PLACE = ("generator", "dtype", "device")


def names(task: str | None = None) -> list[str]:
    """The names that ``build`` knows, all of them or those of a task.

    Args:
        task: "classification" (of images), "forecasting" (of series) or "language" (of text); None for all.

    Raises:
        ConfigError: The task is unknown.

    Example:
        >>> import firebrick as fb
        >>> fb.models.names("classification")
        ['mlp', 'cnn', 'lenet', 'resnet18', 'transformer-classifier']
        >>> fb.models.names("forecasting")
        ['lstm-forecaster', 'patchtst']
        >>> fb.models.names("language")
        ['gpt']
    """
    if task is not None and task not in TASKS:
        raise ConfigError(f"a task is one of {', '.join(TASKS)}", repr(task), "use one of these, or None for all names")
    return [name for kind, table in TASKS.items() if task in (None, kind) for name in table]


def canonical(name: str) -> str:
    """The current name of a model for a name of an earlier version; any other name unchanged.

    Args:
        name: Name of a model.

    Example:
        >>> import firebrick as fb
        >>> fb.models.canonical("cnn")
        'cnn'
    """
    return ALIASES.get(name, name)


def settings(name: str) -> list[str]:
    """The settings of a model, without those that its data and its device determine.

    Args:
        name: One of ``names()``.

    Raises:
        ConfigError: The name is unknown.

    Example:
        >>> import firebrick as fb
        >>> fb.models.settings("cnn")
        ['width', 'features', 'dropout']
    """
    given = (*_OF_IMAGES, *_OF_SERIES, *_OF_TEXT, *_OF_PLACE)
    return [n for n in signature(_function(name)).parameters if n not in given]


def _function(name: str) -> Callable[..., Module]:
    key = canonical(name)
    for table in TASKS.values():
        if key in table:
            return table[key]
    raise ConfigError(f"a model is one of {', '.join(names())}", repr(name), "use one of these, or build a module yourself")


def build(name: str, image_size: int | None = None, channels: int = 1, classes: int = 10, **choices: Any) -> Module:
    """A model by name: a classifier of images, a forecaster of series, or a language model.

    Args:
        name: One of ``names()``.
        image_size: Height and width of an image; for classifiers only, which need it.
        channels: Channels of an image; for classifiers only.
        classes: Number of logits; for classifiers only.
        choices: Its ``settings(name)``, and ``generator=``, ``dtype=`` and ``device=``; a forecaster takes
            ``series=``, ``window=`` and ``horizon=`` here too, a language model ``vocabulary=`` and ``length=``.

    Returns:
        Module from [batch, channels, image_size, image_size] to logits [batch, classes]; from
        [batch, window, series] to [batch, horizon, series]; or from tokens [batch, n] to logits [batch, n, vocabulary].

    Raises:
        ConfigError: The name is unknown, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.models.build("mlp", 8, hidden=(16,))(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
        >>> fb.models.build("lstm-forecaster", series=2, window=12, horizon=3)(fb.zeros((4, 12, 2))).shape
        (4, 3, 2)
    """
    function, key = _function(name), canonical(name)
    sizes_of = _OF_SERIES if key in FORECASTERS else _OF_TEXT if key in LANGUAGE_MODELS else ()
    own = [*settings(name), *sizes_of, *_OF_PLACE]
    if unknown := [k for k in choices if k not in own]:
        raise ConfigError(f"{key} has the settings {', '.join(own)}", ", ".join(unknown), f"see models.{function.__name__}")
    if sizes_of:
        kind = "windows of series" if key in FORECASTERS else "tokens"
        if image_size is not None:
            needed = " and ".join(f"{n}=" for n in sizes_of)
            raise ConfigError(f"{key} takes {kind}", f"image_size = {image_size}", f"pass {needed} in its place")
        parameters = signature(function).parameters
        if missing := [n for n in sizes_of if n not in choices and parameters[n].default is Parameter.empty]:
            raise ConfigError(f"{key} takes {kind}", f"no {', '.join(missing)}", f"pass {missing[0]}=")
        return function(**choices)
    if image_size is None:
        raise ConfigError(f"{key} takes images", "no image_size", "pass the height and width of an image")
    check_counts(key, image_size=image_size, channels=channels, classes=classes)
    sizes = {"in_features": channels * image_size**2, "image": image_size, "channels": channels, "classes": classes}
    if function is transformer:
        choices.setdefault("patch", image_size // 4 if image_size % 4 == 0 else image_size)
    return function(**{n: v for n, v in sizes.items() if n in signature(function).parameters}, **choices)
