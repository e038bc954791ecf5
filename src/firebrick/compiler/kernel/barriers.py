"""Where barriers, shuffles and atomics may be: ``divergence`` and ``mixture`` find a statement that breaks the rules.

Source of both rules: WGSL. A barrier or a shuffle is in uniform control flow. An array's elements are accessed either by
atomics or by reads and stores; other than in WGSL, a barrier separates the two, since the items of a group have then seen the
results of each other's atomics. Between groups no barrier does that: ``interpret`` finds such races when a kernel is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firebrick.compiler.kernel.ir import (
    Atomic,
    Barrier,
    CompareExchange,
    For,
    Function,
    If,
    Shuffle,
    Statement,
    Store,
    While,
    blocks,
    expressions,
    statements,
)
from firebrick.compiler.kernel.uniform import varies, varying
from firebrick.scalar.expr import Expr, walk

Access = tuple[str, bool]
"""The name of an array, and whether the access is an atomic operation."""


def divergence(function: Function) -> tuple[Statement, Statement] | None:
    """The first barrier or shuffle that some items of a group may execute and others not, and the statement that decides it.

    Args:
        function: Kernel whose statements are right one by one.
    """
    if not any(isinstance(s, Barrier | Shuffle) for s in statements(function.body)):
        return None
    names = varying(function)
    return _divergence(function.body, lambda e: varies(e, names, function))


def _divergence(body: tuple[Statement, ...], differs: Callable[[Expr], bool]) -> tuple[Statement, Statement] | None:
    for s in body:
        if isinstance(s, If | While | For) and any(map(differs, expressions(s))):
            inner = (t for block in blocks(s) for t in statements(block) if isinstance(t, Barrier | Shuffle))
            found = next(inner, None)
            if found is not None:
                return found, s
        for block in blocks(s):
            deeper = _divergence(block, differs)
            if deeper is not None:
                return deeper
    return None


def mixture(function: Function) -> tuple[Statement, str] | None:
    """The first statement that may access an array by an atomic operation after another access to it, with no barrier between
    them, or the other way around; and the name of the array.

    Args:
        function: Kernel whose statements are right one by one.
    """
    if not any(isinstance(s, Atomic | CompareExchange) for s in statements(function.body)):
        return None
    try:
        _after(function.body, frozenset())
    except _Mixed as found:
        return found.statement, found.array
    return None


class _Mixed(Exception):
    def __init__(self, statement: Statement, array: str) -> None:
        self.statement, self.array = statement, array


def _after(body: tuple[Statement, ...], before: frozenset[Access]) -> frozenset[Access]:
    """The accesses since the last barrier that may lie behind the end of a block, from those before it."""
    for s in body:
        for name, atomic in _accesses(s):
            if (name, not atomic) in before:
                raise _Mixed(s, name)
            before |= {(name, atomic)}
        match s:
            case Barrier():
                before = frozenset()
            case If():
                before = _after(s.then, before) | _after(s.otherwise, before)
            case While() | For():  # twice, for what the end of the block leaves to its beginning
                once = before | _after(s.body, before)
                before = once | _after(s.body, once)
            case _:
                pass
    return before


def _accesses(s: Statement) -> Iterator[Access]:
    for e in walk(expressions(s)):
        if e.op == "element":
            yield str(e.value), False
    if isinstance(s, Store):
        yield s.array, False
    elif isinstance(s, Atomic | CompareExchange):
        yield s.array, True
