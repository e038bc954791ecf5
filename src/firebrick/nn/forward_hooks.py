"""Forward hooks: functions that are called with a module, its arguments and its result after each call.

The hooks of a module are an attribute of it, so a graph of ``jit`` is made anew when one is added or removed, and copies of
the module have the same hooks. A hook runs where the module runs: once for each call eagerly, once while a graph is traced,
and again when a checkpointed function runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

Function = Callable[[Any, tuple[Any, ...], Any], Any]
"""``(module, args, result) -> None``, or what the call returns in place of the result."""


class Entry:
    """One function of a module's hooks; each registration has an entry of its own, also of one function twice."""

    __slots__ = ("fn",)

    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def __deepcopy__(self, memo: dict[int, Any]) -> Entry:
        return self  # a copy of a module calls the same function, whose owner is no part of the module


class Hooked(Protocol):
    """A module, as its hooks see it."""

    _forward_hooks: tuple[Entry, ...]


class ForwardHook:
    """A registered forward hook, which ``remove`` takes out again; ``Module.register_forward_hook`` makes it.

    In a ``with`` statement it is removed at the end of the block.

    Args:
        module: The module that calls it.
        entry: Its place among the module's hooks.
    """

    def __init__(self, module: Hooked, entry: Entry) -> None:
        self._module, self._entry = module, entry

    def remove(self) -> None:
        """Call the function no longer. A second call does nothing, and copies of the module keep the hook."""
        kept = tuple(e for e in self._module._forward_hooks if e is not self._entry)
        if len(kept) < len(self._module._forward_hooks):
            self._module._forward_hooks = kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def after(module: Hooked, args: tuple[Any, ...], result: Any) -> Any:
    """The result of a call after the module's hooks, in the order of their registration."""
    for entry in module._forward_hooks:
        found = entry.fn(module, args, result)
        if found is not None:
            result = found
    return result
