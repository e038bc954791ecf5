"""Why functions under ``jit`` were traced, and the callbacks that get each reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref


class RecompileWarning(UserWarning):
    """A function under ``jit`` has been traced many times."""


@dataclass(frozen=True)
class Recompile:
    """One trace of a function under ``jit``.

    Attributes:
        name: Name of the function.
        reason: Why it was traced.
        seconds: Time of tracing and compiling.
        line: Where the function was called.

    Example:
        >>> import firebrick as fb
        >>> double = fb.jit(lambda x: x + x)
        >>> y = double(fb.ones(2))
        >>> (event,) = fb.explain_recompiles(double)
        >>> event.reason
        'first call'
    """

    name: str
    reason: str
    seconds: float
    line: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason} ({self.seconds * 1e3:.0f} ms, called at {self.line})"


_events: deque[tuple[ref[Any], Recompile]] = deque(maxlen=1000)
counted: list[Callable[[Any, Recompile], None]] = []  # callbacks on each trace, with the function and the reason


def note(jit: Any, event: Recompile) -> None:
    """Record that a function has been traced, and notify the callbacks."""
    _events.append((ref(jit), event))
    for callback in list(counted):
        callback(jit, event)


def explain_recompiles(fn: Any = None) -> list[Recompile]:
    """Why functions under ``jit`` were traced: which argument or captured value changed, and from what to what.

    Args:
        fn: A function under ``jit``; all of the process if None.

    Returns:
        One record for each trace, oldest first (the last 1,000).

    Example:
        >>> import firebrick as fb
        >>> double = fb.jit(lambda x: x + x)
        >>> y = double(fb.ones(2)), double(fb.ones(3))
        >>> [r.reason for r in fb.explain_recompiles(double)]
        ['first call', 'argument x: float32[2] on cpu:0 → float32[3] on cpu:0']
    """
    return reasons(None if fn is None else getattr(fn, "__func__", fn))


def reasons(jit: Any) -> list[Recompile]:
    """The traces of one function under ``jit``, or of all (None), oldest first."""
    return [e for known, e in _events if jit is None or known() is jit]
