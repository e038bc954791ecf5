"""Passes before the first step leave what a model and a loss keep outside of buffers as it was.

The passes run on the model itself, since a loss may ask it for something that its call left there. For their time each module
has another ``__dict__``, with copies of its plain attributes; parameters, buffers, generators and parts are shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from firebrick.graph import Jit
from firebrick.nn import Module
from firebrick.train.loss_state import modules_of

_NO_STATE = (FunctionType, BuiltinFunctionType, MethodType, type, partial, Jit)  # of losses, whose attributes stay


@contextmanager
def on_trial(model: Module, loss: Any) -> Iterator[None]:
    """A ``with`` block after which plain attributes of the model's and the loss's modules, and of a loss that is an object, are
    as they were before it.

    An attribute that cannot be copied, such as an open file, is shared. Buffers and generators may be changed by the block.
    """
    modules = [m for root in (model, *modules_of(loss).values()) for _, m in root.modules()]
    owner = loss.__self__ if isinstance(loss, MethodType) else loss
    objects = [] if isinstance(owner, _NO_STATE) or not hasattr(owner, "__dict__") else [owner]
    holders: dict[int, Any] = {id(h): h for h in (*modules, *objects)}
    memo: dict[int, Any] = dict(holders)
    for root in (model, *modules_of(loss).values()):
        memo |= {id(v): v for v in (*root.parameters(), *root.buffers(), *root.generators().values())}
    before = [(h, vars(h)) for h in holders.values()]
    aside = [(h, {name: _copy(value, memo) for name, value in held.items()}) for h, held in before]
    try:
        _give(aside)
        yield
    finally:
        _give(before)


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Jit):
        return value
    try:
        return deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - whatever a class of the user's raises that cannot be copied
        return value


def _give(attributes: list[tuple[Any, dict[str, Any]]]) -> None:
    for holder, held in attributes:
        object.__setattr__(holder, "__dict__", held)
