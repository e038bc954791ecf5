"""Execution of a kernel's statements, each for all items that reach it at once: ``Lockstep``.

That is one of the orders that a target may choose. Where control flow differs, the items that take a branch or go on in a loop
execute it together, the others nothing. A barrier needs no waiting, since all items of a group are at it. An item that waits in
a loop for a store of another item waits for ever, as it may on any target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.compiler.kernel.checked_arrays import CheckedArrays
from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    If,
    Let,
    Shuffle,
    Statement,
    Store,
    While,
    expressions,
)
from firebrick.compiler.kernel.item_errors import ItemErrors
from firebrick.compiler.kernel.linear_forms import LINEAR
from firebrick.compiler.kernel.read_modify_write import compare_exchange, fetch, update
from firebrick.compiler.kernel.scopes import ID, Scope
from firebrick.compiler.kernel.unchecked_arrays import UncheckedArrays
from firebrick.core.errors import ExecutionError
from firebrick.scalar.expr import Expr, walk
from firebrick.scalar.interpret import apply

Array = np.ndarray[Any, Any]
_NOT_NEW = frozenset({"local", "element", "kept", "bitcast"})
"""Nodes whose value may be the memory of a name or an array."""


class Lockstep:
    """One launch.

    Attributes:
        faults: The sites and payloads of checks that did not hold, the smallest of each statement.
    """

    def __init__(
        self, arrays: CheckedArrays | UncheckedArrays, errors: ItemErrors, limit: int, rng: np.random.Generator | None,
        index: str = "int64",
    ) -> None:  # fmt: skip
        self.faults: list[tuple[int, int]] = []
        self._arrays, self._errors, self._limit, self._rng = arrays, errors, limit, rng
        self._index = np.dtype(index)
        self._orders: dict[Expr, list[Expr]] = {}
        self._counts: dict[int, dict[Expr, int]] = {}  # by statement

    def block(self, body: tuple[Statement, ...], scope: Scope) -> None:
        """Execute statements for the items of a scope."""
        for s in body:
            self._statement(s, scope)

    def _statement(self, s: Statement, scope: Scope) -> None:
        match s:
            case Let():
                self._let(s, scope)
            case Assign():
                scope.assign(s.name, self._own(s, s.value, scope))
            case Store():
                value = self._evaluation(s, scope)
                self._arrays.store(s, s.array, s.index, value(s.value), scope, value)
            case If():
                self._branch(s, scope)
            case While():
                self._while(s, scope)
            case For():
                self._for(s, scope)
            case Check():
                self._check(s, scope)
            case Atomic():
                self._atomic(s, scope)
            case CompareExchange():
                self._compare_exchange(s, scope)
            case Barrier():
                self._arrays.barrier(s, scope)
            case Shuffle():
                value = self._evaluation(s, scope)
                here = np.arange(scope.size)
                source = (here & -s.width) + (scope.spread(value(s.source)) & (s.width - 1))
                scope.define(s.name, scope.spread(value(s.value))[source].reshape(scope.shape))

    # expressions

    def _evaluation(self, s: Statement, scope: Scope) -> _StatementValues:
        return _StatementValues(self._arrays, s, scope, self._order, dict(self._uses(s)))

    def _uses(self, s: Statement) -> dict[Expr, int]:
        """How often the nodes of a statement are used."""
        found = self._counts.get(id(s))
        if found is None:
            roots = expressions(s)
            found = self._counts[id(s)] = dict(Counter([*roots, *(a for e in walk(roots) for a in e.args)]))
        return found

    def _order(self, root: Expr) -> list[Expr]:
        """An expression's nodes, operands first, without those that only indices of elements need."""
        found = self._orders.get(root)
        if found is None:
            found, seen = [], set()
            stack = [(root, False)]
            while stack:
                e, done = stack.pop()
                if done:
                    found.append(e)
                elif e not in seen:
                    seen.add(e)
                    stack.append((e, True))
                    stack += [] if e.op == "element" else [(a, False) for a in e.args]
            self._orders[root] = found
        return found

    def _own(self, s: Statement, e: Expr, scope: Scope) -> Array:
        """A value that nothing else refers to."""
        value = self._evaluation(s, scope)(e)
        return value.copy() if value.ndim and e.op in _NOT_NEW else value

    # names

    def _let(self, s: Let, scope: Scope) -> None:
        if s.value.dtype == "int64" and s.value.op in LINEAR:
            order = self._order(s.value)  # of elements, which are not linear, indices are left out
            form = scope.linear(order) if all(e.op in LINEAR for e in order) else None
            if form is not None and any(form[1:]):
                scope.define_linear(s.name, form)
                return
        scope.define(s.name, self._own(s, s.value, scope))

    # control flow

    def _branch(self, s: If, scope: Scope) -> None:
        holds = self._evaluation(s, scope)(s.condition)
        for condition, block in ((holds, s.then), (~holds, s.otherwise)):
            if block and condition.all():
                self.block(block, scope)
            elif block and condition.any():
                inner = scope.part(condition)
                self.block(block, inner)
                inner.finish()

    def _while(self, s: While, scope: Scope) -> None:
        active = scope
        for _ in range(self._limit):
            holds = self._evaluation(s, active)(s.condition)
            if not holds.any():
                break
            if not holds.all():
                active = _narrowed(active, scope, holds)
            self.block(s.body, active)
        else:
            holds = np.broadcast_to(self._evaluation(s, active)(s.condition), active.shape)
            if holds.any():
                self._errors.fail(
                    ExecutionError, s, int(active.flat(ID)[np.argmax(holds.reshape(-1))]),
                    f"a loop ends after at most {self._limit:,} rounds", "one that goes on",
                    "correct its condition, or raise the limit",
                )  # fmt: skip
        if active is not scope:
            active.finish()

    def _for(self, s: For, scope: Scope) -> None:
        value = self._evaluation(s, scope)
        counter, stop = value(s.start), value(s.stop)
        self._count(s, counter, stop, scope)
        if not counter.ndim and not stop.ndim:
            for k in range(int(counter), int(stop), s.step):
                scope.define(s.name, np.asarray(k, self._index))
                self.block(s.body, scope)
            return
        active, largest = scope, np.iinfo(self._index).max
        counter, stop = (np.array(np.broadcast_to(v, scope.shape)) for v in (counter, stop))
        while (more := counter < stop).any():
            if not more.all():
                active = _narrowed(active, scope, more)
                counter, stop = (v[more].reshape(active.shape) for v in (counter, stop))
            active.define(s.name, counter)
            self.block(s.body, active)
            ends = counter > largest - s.step  # it would wrap around, which is beyond every stop
            counter = np.where(ends, stop, counter + np.where(ends, 0, s.step).astype(self._index))
        if active is not scope:
            active.finish()

    def _count(self, s: For, start: Array, stop: Array, scope: Scope) -> None:
        """Raise if an item would execute a loop's block too often."""
        rounds = (stop.astype(np.uint64) - start.astype(np.uint64) - np.uint64(1)) // np.uint64(s.step) + np.uint64(1)
        rounds = np.where(start < stop, rounds, np.uint64(0))
        if rounds.max() > self._limit:
            rounds = np.broadcast_to(rounds, scope.shape).reshape(-1)
            item = int(np.argmax(rounds > self._limit))
            self._errors.fail(
                ExecutionError, s, int(scope.flat(ID)[item]), f"a loop has at most {self._limit:,} rounds",
                f"{int(rounds[item]):,}", "correct its bounds, or raise the limit",
            )  # fmt: skip

    def _check(self, s: Check, scope: Scope) -> None:
        value = self._evaluation(s, scope)
        bad = ~value(s.condition)
        if bad.any():
            payload = np.broadcast_to(value(s.payload), scope.shape)
            self.faults.append((s.site, int(payload[np.broadcast_to(bad, scope.shape)].min())))

    # atomic operations

    def _turns(self, scope: Scope) -> Array | None:
        return None if self._rng is None else self._rng.permutation(scope.size)

    def _atomic(self, s: Atomic, scope: Scope) -> None:
        value = self._evaluation(s, scope)
        order, operands = self._turns(scope), scope.spread(value(s.value))
        operands = operands if order is None else operands[order]
        do = fetch if s.name else update
        found = self._arrays.update(s, s.array, value(s.index), scope, order, lambda x, at: do(s.op, x, at, operands))
        if s.name and found is not None:
            scope.define(s.name, _back(found, order).reshape(scope.shape))

    def _compare_exchange(self, s: CompareExchange, scope: Scope) -> None:
        value = self._evaluation(s, scope)
        order = self._turns(scope)
        expected, new = (v if order is None else v[order] for v in map(scope.spread, (value(s.expected), value(s.value))))
        found = self._arrays.update(
            s, s.array, value(s.index), scope, order, lambda x, at: compare_exchange(x, at, expected, new)
        )
        assert found is not None
        scope.define(s.name, _back(found, order).reshape(scope.shape))


class _StatementValues:
    """Gives the values of a statement's expressions, each once; what they share is computed once.

    A value is forgotten when nothing needs it any more: new memory is what array operations spend most time on. For the same
    reason this is a class; a function that knows itself would keep all values until the next collection of garbage.
    """

    def __init__(
        self,
        arrays: CheckedArrays | UncheckedArrays,
        s: Statement,
        scope: Scope,
        order: Callable[[Expr], list[Expr]],
        uses: dict[Expr, int],
    ) -> None:
        self._arrays, self._s, self._scope, self._order, self._uses = arrays, s, scope, order, uses
        self._memo: dict[Expr, Array] = {}
        self._done: set[Expr] = set()

    def __call__(self, root: Expr) -> Array:
        memo, uses, done = self._memo, self._uses, self._done
        for e in self._order(root):
            if e in done:
                continue
            done.add(e)
            if e.op == "const":
                memo[e] = np.asarray(e.value, e.dtype)
            elif e.op == "local":
                memo[e] = self._scope.read(str(e.value))
            elif e.op == "element":
                found = self._arrays.load(self._s, str(e.value), e.args[0], self._scope, self)
                memo[e] = found.astype(e.dtype, copy=False)  # of integers of 8 and 16 bits, those of a widened kernel
            else:
                memo[e] = apply(e.op, e.dtype, [memo[a] for a in e.args], e.value)
                for a in e.args:
                    uses[a] -= 1
                    if not uses[a]:
                        del memo[a]
        return memo[root]


def _narrowed(active: Scope, scope: Scope, holds: Array) -> Scope:
    """The scope of the items that go on in a loop, from that of the round before; ``scope`` is the one around the loop."""
    return scope.part(holds) if active is scope else active.narrowed(np.broadcast_to(holds, active.shape))


def _back(found: Array, order: Array | None) -> Array:
    """Results in the order of the items, from those in the order of the operations."""
    if order is None:
        return found
    out = np.empty_like(found)
    out[order] = found
    return out
