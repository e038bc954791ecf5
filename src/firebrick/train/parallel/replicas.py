"""What makes a replica one of a model: the same layers in the same places, with the same settings."""

from __future__ import annotations

from copy import deepcopy
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

from firebrick.core.dtypes import DType
from firebrick.nn import Module

_ABSENT = object()
_ATOMS = (bool, int, float, complex, str, bytes, type(None), Enum, DType, range, slice, type, FunctionType, BuiltinFunctionType)


def layout(model: Module) -> list[Any]:
    """What two models have in common that can be replicas of each other."""
    tensors = [(n, t.shape, t.dtype) for n, t in [*model.named_parameters(), *model.named_buffers()]]
    return [*tensors, *((n, type(m)) for n, m in model.modules())]


def follow(model: Module, replica: Module) -> None:
    """Give a replica the model's modes, frozen parameters and settings: plain attributes, and collections of them."""
    for (_, a), (_, b) in zip(model.modules(), replica.modules(), strict=True):
        if a.training is not b.training:
            b.training = a.training
        theirs = vars(b)
        for name, value in vars(a).items():
            held = theirs.get(name, _ABSENT)
            if value is not held and _plain(value) and not _equal(value, held):
                setattr(b, name, deepcopy(value))
    for (_, p), (_, q) in zip(model.named_parameters(), replica.named_parameters(), strict=True):
        if p.frozen is not q.frozen:
            q.frozen = p.frozen


def _plain(value: Any) -> bool:
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return isinstance(value, _ATOMS)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
