"""Models by name, as the command line and recipes ask for them: built for a data set's images and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.models.classifiers import cnn, mlp
from firebrick.models.transformers import transformer
from firebrick.nn import Module


def _mlp(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return mlp(channels * image * image, classes=classes, **settings)


def _cnn(image: int, channels: int, classes: int, **settings: Any) -> Module:
    return cnn(channels, image, classes, **settings)


def _transformer(image: int, channels: int, classes: int, **settings: Any) -> Module:
    settings.setdefault("patch", image // 4 if image % 4 == 0 else image)
    return transformer(image, classes=classes, channels=channels, **settings)


MODELS: dict[str, Callable[..., Module]] = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}


def names() -> list[str]:
    """The names that ``build`` knows.

    Example:
        >>> import firebrick as fb
        >>> fb.models.names()
        ['mlp', 'cnn', 'transformer']
    """
    return list(MODELS)


def build(name: str, image_size: int, channels: int = 1, classes: int = 10, **settings: Any) -> Module:
    """A classifier by name.

    Args:
        name: One of ``names()``.
        image_size: Height and width of an image.
        channels: Channels of an image.
        classes: Number of logits.
        settings: Further arguments of the function of that name (``hidden=``, ``dim=``, ``dtype=``, ``device=``, …).

    Returns:
        Module from [batch, channels, image_size, image_size] to logits [batch, classes].

    Raises:
        ConfigError: The name is unknown, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.models.build("mlp", 8, hidden=(16,))(fb.zeros((2, 1, 8, 8))).shape
        (2, 10)
    """
    made = MODELS.get(name)
    if made is None:
        raise ConfigError(f"a model is one of {', '.join(MODELS)}", repr(name), "use one of these, or build a module yourself")
    return made(image_size, channels, classes, **settings)
