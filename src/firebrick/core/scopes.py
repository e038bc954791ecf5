"""``scope``: as ``contextlib.contextmanager``, for functions that users call: what they return can be entered again.

``there = fb.use_device("cpu:1")`` may serve several ``with`` blocks, in turn, inside each other, and in several threads and
tasks. Each entry runs the function from its beginning; the context knows which one an exit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar
from functools import wraps
from itertools import count
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast
from weakref import ref

from firebrick.core.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")
_Entry = tuple["ref[Scope[Any]]", int, "_Entry | None"]

_entered: ContextVar[_Entry | None] = ContextVar("firebrick_entered", default=None)
"""What this context has entered and not left, as a linked list: the last entry, and those before it. It keeps none of them: a
scope that an interrupt drops before its block begins ends with its last reference, and so does what it has set."""

_numbers = count()
"""Of entries, so that no two of a process are equal."""


class Scope(AbstractContextManager[T], ContextDecorator):
    """A ``with`` block of a function, which may be entered any number of times; also a decorator of functions.

    Args:
        function: Generator function with one ``yield``.
        args: Its arguments.
        kwargs: Its arguments by name.
    """

    __slots__ = ("_args", "_blocks", "_function", "_kwargs")

    def __init__(self, function: Callable[..., Iterator[T]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._blocks: dict[int, Generator[Any, None, None]] = {}  # that are entered, by number

    def __enter__(self) -> T:
        block = cast("Generator[T, None, None]", self._function(*self._args, **self._kwargs))
        value = next(block)
        number = next(_numbers)
        self._blocks[number] = block
        before = _entered.get()
        while before is not None and before[0]() is None:  # it was interrupted
            before = before[2]
        _entered.set((ref(self), number, before))
        return value

    def __exit__(self, kind: Any, raised: BaseException | None, traceback: TracebackType | None) -> bool | None:
        block = self._left()
        if raised is None:
            next(block, None)
            return None
        try:
            block.throw(raised)
        except StopIteration as end:
            return end is not raised
        except BaseException as other:
            if other is not raised and not (isinstance(raised, StopIteration) and other.__cause__ is raised):
                raise
            raised.__traceback__ = traceback
        return None

    def _left(self) -> Generator[T, None, None]:
        """Take the last entry of this scope from those of the context."""
        passed, entry = [], _entered.get()
        while entry is not None and (entry[0]() is not self or entry[1] not in self._blocks):
            passed.append(entry)  # blocks of generators may end in another order
            entry = entry[2]
        if entry is None:  # entered in another context, as by a fixture of asynchronous tests
            if not self._blocks:
                raise ConfigError("a with block that is left was entered", "one that was not", "use it by a with statement")
            return self._blocks.pop(next(reversed(self._blocks)))
        rest = entry[2]
        for own, number, _ in reversed(passed):
            rest = (own, number, rest)
        _entered.set(rest)
        return self._blocks.pop(entry[1])


def scope(function: Callable[P, Iterator[T]]) -> Callable[P, Scope[T]]:
    """Decorate a generator function with one ``yield``."""

    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> Scope[T]:
        return Scope(function, args, kwargs)

    return made
