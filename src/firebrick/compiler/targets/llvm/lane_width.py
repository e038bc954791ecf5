"""``lanes_of``: how many lanes the vectors of a kernel have, by an estimate of its time in lanes and one item after the other,
``cycles_of``.

Elements at any places are read one lane after the other by today's processors, so a kernel that does little but read such
elements, as a sparse product does, is faster as scalar code, where each item also ends its loops on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Atomic,
    Check,
    For,
    Function,
    If,
    Let,
    SharedArray,
    Statement,
    Store,
    While,
    assigned,
    blocks,
    expressions,
    statements,
)
from firebrick.compiler.kernel.uniform import varying
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import BITS, FLOATS, Expr, walk
from firebrick.scalar.storage import computed

MOST = 64
"""Most lanes of a vector."""
ROUNDS = 32
"""Iterations that a loop is taken to have."""
SHORT = 40
"""Most nodes of an inner loop without memory accesses that is executed for two registers of lanes at a time: then it waits
for results rather than for units of the processor."""
_SLOW = {"div": 8.0, "rem": 16.0, "sqrt": 8.0, "philox": 40.0}
"""Operations that take so many times as long as others."""
# Estimated cycles, from measurements on Zen 4: of an element of a gather, of one read by scalar code, of an operation on a
# vector register, of one on a scalar, of one whose result is for a branch, of a branch that depends on lanes, of a division of
# integers, which no vector has.
_GATHERED, _READ, _VECTOR, _SCALAR, _TEST, _BRANCH, _DIVIDED = 1.2, 0.5, 0.7, 0.4, 0.15, 2.0, 18.0
_APART = 1.5
"""Ratio of the longest of the lanes' loops to their average."""


def lanes_of(function: Function, target: Target) -> int:
    """The lanes of a kernel's vectors; 1 for scalar code.

    Usually a register of the widest float that varies, else of the widest integer. int64 counts only if there is nothing else,
    as it is the dtype of indices, most of which are a scalar and a step.

    Args:
        function: Kernel.
        target: Processor.
    """
    names = varying(function)
    found = {e.dtype for e in _varying_nodes(function, function.body, names)}
    found |= {computed(_array(function, s.array).dtype) for s in statements(function.body) if isinstance(s, Store | Atomic)}
    floats = [BITS[d] for d in found if d in FLOATS]
    whole = [BITS[d] for d in found if d not in (*FLOATS, "bool", "int64")]
    widest = max(floats or whole or [64 if "int64" in found else 32])
    lanes = min(MOST, target.lanes(max(16, widest)))
    if cycles_of(function, 1, target) * lanes < cycles_of(function, lanes, target):
        return 1
    twice = lanes > 1 and (_waits(function) or (function.group % (2 * lanes) == 0 and _draws(function)))
    if function.group == 4 * lanes and target.width_bits >= 512 and _draws(function):  # which has registers for it
        return min(MOST, 4 * lanes)
    return min(MOST, 2 * lanes) if twice else lanes


def cycles_of(function: Function, lanes: int, target: Target) -> float:
    """An estimate of the processor cycles that so many items take as lanes of a vector, or one as scalar code."""
    names = varying(function)
    estimate = _Estimate(function, names, _steps(function, names), lanes, target.width_bits)
    return max(1.0, estimate.block(function.body, 1.0, False, set()))


@dataclass(frozen=True, slots=True)
class _Estimate:
    function: Function
    names: frozenset[str]
    steps: Mapping[str, int | None]
    lanes: int
    width_bits: int

    def block(self, body: tuple[Statement, ...], times: float, apart: bool, seen: set[Expr]) -> float:
        """The cycles of a block that is executed so many times.

        Args:
            body: Statements.
            times: How often.
            apart: Whether that is as often as the last of the lanes needs.
            seen: The nodes that were evaluated before, and are not again.
        """
        found = 0.0
        for s in body:
            nodes = walk(expressions(s))
            changing = _varying(self.function, nodes, self.names)
            once = sum(self._node(e) for e in nodes if e in changing and e not in seen)
            seen |= changing
            if isinstance(s, Store):
                once += self._access(s.index)
            if isinstance(s, Atomic):
                once += _DIVIDED * self.lanes
            if isinstance(s, If | Check | While) and s.condition in changing:
                once += _BRANCH if self.lanes > 1 else _TEST
            found += once * times * (_APART if apart and self.lanes > 1 else 1.0)
            if isinstance(s, For | While):
                parts = any(e in changing for e in expressions(s))
                found += self.block(s.body, times * ROUNDS, apart or parts, set(seen))
            else:
                found += sum(self.block(b, times, apart, set(seen)) for b in blocks(s))
        return found

    def _node(self, e: Expr) -> float:
        if e.op in ("local", "const") or (e.dtype == "int64" and _step(e, self.steps) is not None):
            return 0.0
        if e.op == "element":
            return self._access(e.args[0])
        bits = max(BITS[x.dtype] for x in (e, *e.args))
        registers = max(1.0, self.lanes * bits / self.width_bits)
        if e.op in ("div", "rem") and e.dtype not in FLOATS and e.args[1].op != "const":
            return _DIVIDED * self.lanes
        if self.lanes == 1:
            return _TEST if e.dtype == "bool" else _SLOW.get(e.op, 1.0) * _SCALAR
        return _SLOW.get(e.op, 1.0) * _VECTOR * registers

    def _access(self, at: Expr) -> float:
        if self.lanes == 1:
            return _READ
        return 1.0 if _step(at, self.steps) in (-1, 0, 1) else self.lanes * _GATHERED


def _waits(function: Function) -> bool:
    """Whether all inner loops are short and access no memory."""
    inner = [
        s for s in statements(function.body)
        if isinstance(s, For | While) and not any(isinstance(t, For | While) for t in statements(s.body))
    ]  # fmt: skip
    for s in inner:
        nodes = walk([e for t in statements((s,)) for e in expressions(t)])
        if len(nodes) > SHORT or any(e.op in ("element", *_SLOW) for e in nodes):
            return False
        if not all(isinstance(t, Let | If | For | While) or hasattr(t, "value") for t in statements(s.body)):
            return False
    return bool(inner) and not any(isinstance(t, Store | Atomic) for s in inner for t in statements(s.body))


def _draws(function: Function) -> bool:
    """Whether groups draw random numbers in a loop: long chains of operations, each of which waits for the one before it.

    What follows from such a number may be too long for the processor to begin with the next round meanwhile.
    """
    inside = [t for s in statements(function.body) if isinstance(s, For | While) for t in statements(s.body)]
    return bool(function.group) and any(e.op == "philox" for t in inside for e in walk(expressions(t)))


def _steps(function: Function, names: frozenset[str]) -> dict[str, int | None]:
    """The difference between neighbouring lanes of each varying name; None if it is not a known constant."""
    changed = assigned(function.body)
    steps: dict[str, int | None] = dict.fromkeys(names)
    steps[function.item] = 1
    for s in statements(function.body):
        if isinstance(s, Let) and s.name in names and s.name not in changed:
            steps[s.name] = _step(s.value, steps)
        if isinstance(s, For) and s.name in names:
            steps[s.name] = _step(s.start, steps)
    return steps


def _step(e: Expr, steps: Mapping[str, int | None]) -> int | None:
    """The difference between neighbouring lanes of an integer; None if it is not a known constant."""
    found: dict[Expr, int | None] = {}
    for x in walk([e]):
        parts = [found[a] for a in x.args]
        if x.op == "local":
            found[x] = steps.get(str(x.value), 0)
        elif all(p == 0 for p in parts):
            found[x] = 0
        elif any(p is None for p in parts):
            found[x] = None
        elif x.op in ("add", "sub"):
            a, b = parts
            found[x] = (a or 0) + (b or 0) * (1 if x.op == "add" else -1)
        elif x.op == "mul" and x.args[1].op == "const":
            found[x] = (parts[0] or 0) * int(x.args[1].value or 0)
        elif x.op in ("div", "rem", "shr", "and") and parts[0] == 1 and x.args[1].op == "const":
            number = int(x.args[1].value or 0)
            by = 1 << min(62, max(0, number)) if x.op == "shr" else number + 1 if x.op == "and" else number
            # of the item's index, as a row and a column, if no vector is parted
            found[x] = None if by % 16 else 1 if x.op in ("rem", "and") else 0
        else:
            found[x] = None
    return found[e]


def _varying_nodes(function: Function, body: tuple[Statement, ...], names: frozenset[str]) -> set[Expr]:
    """The nodes of a block's expressions that differ between lanes."""
    return _varying(function, walk([e for s in statements(body) for e in expressions(s)]), names)


def _varying(function: Function, nodes: tuple[Expr, ...], names: frozenset[str]) -> set[Expr]:
    constant = {a.name for a in function.arrays if a.access == "read"}
    found: set[Expr] = set()
    for e in nodes:
        stored = e.op == "element" and e.value not in constant
        if stored or (e.op == "local" and e.value in names) or any(a in found for a in e.args):
            found.add(e)
    return found


def _array(function: Function, name: str) -> ArrayParameter | SharedArray:
    arrays: tuple[ArrayParameter | SharedArray, ...] = (*function.arrays, *function.shared)
    return next(a for a in arrays if a.name == name)
