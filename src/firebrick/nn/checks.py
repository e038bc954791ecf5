"""Checks of layers' settings and inputs: each raises the error of the standard kind, by the user's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.tensor import Tensor


def check_sizes(layer: str, least: int = 1, **sizes: Any) -> None:
    """Every size is an int ≥ ``least``."""
    for name, n in sizes.items():
        if not isinstance(n, int) or isinstance(n, bool) or n < least:
            raise ConfigError(f"{layer}: {name} is an int ≥ {least}", f"{name} = {n!r}", "change it")


def check_probability(layer: str, **given: Any) -> None:
    """Every value is a probability of dropping something, in [0, 1)."""
    for name, p in given.items():
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0.0 <= p < 1.0:
            raise ConfigError(f"{layer}: {name} lies in [0, 1)", f"{name} = {p!r}", "pass the share to drop, e.g. 0.1")


def check_choice(layer: str, name: str, value: Any, choices: Iterable[str]) -> None:
    """A setting is one of a few words."""
    words = list(choices)
    if value not in words:
        shown = " or ".join([", ".join(f'"{w}"' for w in words[:-1]), f'"{words[-1]}"']) if len(words) > 1 else f'"{words[0]}"'
        raise ConfigError(f"{layer}: {name} is {shown}", f"{name} = {value!r}", "use one of these")


def check_floating(layer: str, name: str, x: Any) -> None:
    """x is a tensor of floating (or complex) dtype."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(layer, name, x, None)
    if not x.dtype.is_inexact:
        raise DTypeError(
            f"{layer}: {name} needs a floating dtype", describe(name, x), f"cast it: fb.astype({name}, fb.float32)"
        )


def check_shape(layer: str, name: str, x: Any, axes: str, features: int, ndim: int | None = None) -> None:
    """x is a floating tensor whose last axis has ``features`` (and with ``ndim`` axes); ``axes`` shows the shape wanted."""
    check_floating(layer, name, x)
    if x.ndim == 0 or x.shape[-1] != features or (ndim is not None and x.ndim != ndim):
        raise ShapeError(
            f"{layer}: {name} is [{axes}]", describe(name, x), "reshape it, or build the layer with its number of features"
        )
