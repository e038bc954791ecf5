"""``assert_max_traces``: a test's claim that functions under ``jit`` do not compile again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from firebrick.graph.recompiles import Recompile, counted


@contextmanager
def assert_max_traces(n: int, *functions: Any) -> Iterator[None]:
    """Fail if functions under ``jit`` are traced more than ``n`` times within a ``with`` block, all together.

    Args:
        n: Traces that are allowed.
        functions: Functions under ``jit`` to count (jitted methods too); all of the process if none is named.

    Raises:
        AssertionError: There were more; it lists why each was made. An exception of the block itself goes first.

    Example:
        >>> import firebrick as fb
        >>> double = fb.jit(lambda x: x + x)
        >>> with fb.testing.assert_max_traces(1, double):
        ...     y = double(fb.ones(2)), double(fb.zeros(2))
    """
    wanted = [getattr(f, "__func__", f) for f in functions]
    seen: list[Recompile] = []

    def told(function: Any, event: Recompile) -> None:
        if not wanted or any(function is f for f in wanted):
            seen.append(event)

    counted.append(told)
    try:
        yield
    finally:
        counted.remove(told)
    if len(seen) > n:
        raise AssertionError(f"{len(seen)} traces where at most {n} are allowed:\n" + "\n".join(f"  {e}" for e in seen))
