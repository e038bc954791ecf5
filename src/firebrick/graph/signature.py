"""The key of a call: everything that a graph has built in.

Equal keys, equal graphs. A key is made of the call's arguments without the values of tensors and numbers (``spec``), the number
of the walk through all that the function captures, which arguments are one tensor, which tensors are tracked, and the context
(``AMBIENT``: whether gradients are on, the default device, …).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from firebrick.autodiff.distributed import reduction
from firebrick.autodiff.residuals import strategy
from firebrick.autodiff.tape import grad_enabled
from firebrick.backends.registry import default_device
from firebrick.core.autocast import autocast_dtype
from firebrick.core.config import config
from firebrick.core.errors import ConfigError, DeviceError, OperandError
from firebrick.core.slots import untracked
from firebrick.core.tensor import Tensor
from firebrick.graph.arguments import Flat
from firebrick.graph.plain import PLAIN, Same, plain_key
from firebrick.graph.walk import Walk


def _default() -> Hashable:
    """The device of new tensors, also that of a ``use_device`` scope; what names it if it cannot be used."""
    try:
        return default_device()
    except DeviceError:
        return str(config.device)


AMBIENT: list[Callable[[], Hashable]] = [
    grad_enabled,
    autocast_dtype,
    _default,
    lambda: config.fallback,
    lambda: s if isinstance(s := strategy.get(), str) else ("budget", s.limit),
    lambda: None if (r := reduction()) is None else Same(r),
]
"""What a graph depends on besides arguments and captured objects; higher floors add theirs."""


class Signature:
    """A function under ``jit`` and how its arguments are called.

    Attributes:
        fn: The function.
        name: Its name, for messages.
        static: Names of the arguments whose values are built into a graph.
    """

    def __init__(self, fn: Callable[..., Any], static_argnames: str | Sequence[str]) -> None:
        self.fn = fn
        self.name = getattr(fn, "__qualname__", type(fn).__name__)
        self.static = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)
        try:
            named = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # some functions of C have none
            named = []
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._positional = [p.name for p in named if p.kind in kinds]
        open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in named)
        unknown = self.static - {p.name for p in named}
        if unknown and not open_ended:
            raise ConfigError(
                f"static_argnames are arguments of {self.name}: {', '.join(p.name for p in named) or 'none'}",
                ", ".join(sorted(unknown)),
                "check the spelling",
            )

    def ordered(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Arguments by position as far as they can be, so that f(x, y=y) is f(x, y)."""
        more = list(args)
        rest = dict(kwargs)
        for name in self._positional[len(args) :]:
            if name not in rest:
                break
            more.append(rest.pop(name))
        return tuple(more), rest

    def named(self, i: int) -> str:
        """The function's name of argument ``i``."""
        return self._positional[i] if i < len(self._positional) else f"args[{i}]"

    def spec(self, flat: Flat, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The part of the key that the arguments make; their tensors, numbers and objects are taken into ``flat``."""
        static, positional = self.static, self._positional
        known = len(positional)
        parts: list[Any] = []
        for i, v in enumerate(args):
            name = positional[i] if i < known else self.named(i)  # without a call, since this runs at each call of a function
            if type(v) is Tensor and not static and flat.named is None:
                flat.tensors.append(v)
                parts.append((Tensor, v.shape, v.dtype, v.device, None))
                continue
            parts.append(self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name))
        for name in sorted(kwargs) if kwargs else ():
            v = kwargs[name]
            parts.append((name, self._fixed(flat, name, v) if name in static else flat.key(name, v, self.name)))
        return tuple(parts)

    def _fixed(self, flat: Flat, name: str, v: Any) -> Any:
        """The key of a static argument: its value; an object is walked through as that of any other argument."""
        try:
            hash(v)
        except TypeError:
            raise OperandError(
                f"{self.name}: a static argument is hashable",
                f"{name}: {type(v).__name__}",
                "pass a tuple for a list, or take it out of static_argnames",
            ) from None
        if isinstance(v, PLAIN):
            part: Any = plain_key(v)
            described = f"static {v!r}"
        elif isinstance(v, (tuple, frozenset)):
            items = list(v) if isinstance(v, tuple) else sorted(v, key=repr)
            return ("static", type(v), *(self._fixed(flat, f"{name}[{i}]", item) for i, item in enumerate(items)))
        else:
            flat.objects.append((name, v))
            part, described = type(v), f"static {type(v).__name__}"
        if flat.named is not None:
            flat.named.append((name, described))
        return "static", part


def key_of(spec: Any, flat: Flat, walk: Walk) -> tuple[Any, ...]:
    """The key of a call: ``(spec, number of the walk, ties, tracked, ambient, shared)``."""
    tracked: tuple[int, ...] = ()
    tensors, captured = flat.tensors, walk.tensors
    if grad_enabled() and not (untracked(tensors) and (not captured or untracked(captured))):
        tracked = tuple([i for i, t in enumerate([*tensors, *captured]) if t.node is not None])
    ids = list(map(id, tensors))
    ties = () if len(set(ids)) == len(ids) else tuple([ids.index(i) for i in ids])
    shared: tuple[tuple[int, int], ...] = ()
    # a parameter that is an argument too: a plain tensor counts only where code asks for identities, or where the graph changes
    # it, which the call looks at
    if (
        captured
        and not walk.ids.isdisjoint(ids)
        and (walk.identity or any(type(t) is not Tensor and id(t) in walk.ids for t in tensors))
    ):
        shared = shared_tensors(tensors, walk)
    return spec, walk.number, ties, tracked, tuple([f() for f in AMBIENT]), shared


def shared_tensors(tensors: list[Tensor], walk: Walk) -> tuple[tuple[int, int], ...]:
    """Which arguments are captured too, each with its index among the walk's tensors."""
    if walk.ids.isdisjoint(map(id, tensors)):
        return ()
    inside = {id(t): i for i, t in enumerate(walk.tensors)}
    return tuple([(i, inside[id(t)]) for i, t in enumerate(tensors) if id(t) in inside])


def moved_key(key: tuple[Any, ...], count: int, before: Walk, after: Walk) -> tuple[Any, ...]:
    """The key of a call once its trace has begun state, which changes the positions of tensors that a walk finds later.

    Args:
        key: The key before the trace.
        count: The number of tensors among the arguments.
        before: The walk before the trace.
        after: The walk after it, which finds the new state too.
    """
    spec, _, ties, tracked, ambient, shared = key
    if after is not before:
        tracked = moved_positions(tracked, count, before, after)
        at = moved_positions([count + j for _, j in shared], count, before, after)
        shared = tuple([(i, j - count) for (i, _), j in zip(shared, at, strict=True)])
    return spec, after.number, ties, tracked, ambient, shared


def moved_positions(positions: Sequence[int], count: int, before: Walk, after: Walk) -> tuple[int, ...]:
    """Where tensors of a call, ``count`` of which are arguments, are found by a later walk, in the order of ``positions``."""
    if not positions:
        return ()
    at = {id(t): i for i, t in enumerate(after.tensors)}
    return tuple([i if i < count else count + at[id(before.tensors[i - count])] for i in positions])
