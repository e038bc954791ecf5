"""What the settings of a model are checked for, before any part of it is built."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.settings import whole


def check_counts(where: str, least: int = 1, /, **values: Any) -> None:
    """Raise ConfigError unless all are ints of at least ``least``."""
    for name, value in values.items():
        whole(where, name, value, least)


def check_flag(where: str, name: str, value: Any) -> None:
    """Raise ConfigError unless it is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {name} is True or False", f"{name}={value!r}", "pass one of them", op=where)


def check_heads(where: str, dim: int, heads: int) -> None:
    """Raise ConfigError unless ``heads`` divides ``dim``."""
    if dim % heads:
        raise ConfigError(f"{where}: heads divides dim", f"dim = {dim}, heads = {heads}", "change one of them", op=where)
