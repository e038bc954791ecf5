"""Residuals: the values that gradient rules read, and the strategies that decide which of them are kept.

``none`` keeps them all. ``balanced`` recomputes results of memory-bound ops if that needs no operands that would not be kept
anyway. A budget keeps up to its number of bytes, and drops first the results that are cheap to recompute for their size and
were not read for long (Kirisame et al., "Dynamic Tensor Rematerialization", arXiv:2006.09616). A recomputation repeats the
same op on the same bits, so gradients keep their bits.

Work is bounded. ``balanced`` computes a result again once in a backward pass. Without a bound, a budget that is too small for
a graph would recompute exponentially often, so it gets an allowance of runs (``RUNS_AGAIN``); when that is spent, the pass
keeps what it computes until its last use, and a ``BudgetWarning`` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakSet, ref

from firebrick.core.aval import Aval
from firebrick.core.bind import execute
from firebrick.core.device import Device
from firebrick.core.errors import BudgetWarning
from firebrick.core.hooks import hooks
from firebrick.core.lines import warn
from firebrick.core.op import Op
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

_DEEPEST = 16  # ops in a row that `balanced` computes again for one value
_FLOPS, _BYTES = 2e10, 5e9  # work of a small processor in a second; used only to compare compute-bound with memory-bound ops
_SLACK = 0.9  # share of a budget that is kept when something has to be dropped
RUNS_AGAIN = (
    16  # times the recorded ops (and their estimated seconds): the limit of what a budget may run again in a backward pass
)


class Memo(dict[Any, Any]):
    """The storages that a backward pass has recomputed, by key, until their last use.

    Args:
        nodes: Those of the pass, newest first.

    Attributes:
        brief: Keys that are held for one node only, of values that a budget keeps as long as it can.
        spent: Whether budgets have run as many ops again as they may: from then on, nothing is held briefly.
    """

    def __init__(self, nodes: Sequence[Any] = ()) -> None:
        self.nodes, self.done = nodes, 0
        self.over = last_uses(nodes)
        self.brief: set[Any] = set()
        self.spent = False
        self._runs, self._seconds = 0, 0.0
        self._allowance: tuple[int, float] | None = None

    def forget(self) -> None:
        """Free, after a node's rule has run, the values that no later node needs and those held for this node only."""
        for key in (*self.over[self.done], *self.brief):
            self.pop(key, None)
        self.brief.clear()
        self.done += 1

    def ran(self, r: Recipe, budget: Budget) -> None:
        """Count an op that a budget has run again."""
        if self._allowance is None:
            ops = _recorded(self.nodes[self.done :])
            self._allowance = RUNS_AGAIN * len(ops), RUNS_AGAIN * sum(ops.values())
        self._runs += 1
        self._seconds += r.seconds
        if self.spent or (self._runs < self._allowance[0] and self._seconds < self._allowance[1]):
            return
        self.spent = True
        self.brief.clear()
        for keys, more in zip(self.over[self.done :], last_uses_under_budgets(self.nodes[self.done :]), strict=True):
            keys += more
        budget.report(self._runs, self._allowance[0] // RUNS_AGAIN, self.nodes[self.done :])


class Value(Protocol):
    """A residual: something that can give back a tensor's storage."""

    aval: Aval
    device: Device

    def storage(self, memo: Memo) -> Storage: ...


class Saved:
    """A residual that is kept."""

    __slots__ = ("_storage", "aval", "device")

    def __init__(self, t: Tensor, aval: Aval | None = None) -> None:
        self._storage, self.aval, self.device = t.storage, t.aval if aval is None else aval, t.device

    def storage(self, memo: Memo) -> Storage:
        return self._storage


class Recipe:
    """A residual that can be computed again from its operands' residuals.

    Attributes:
        key: The same for all results of one run of the op.
        depth: Ops in a row that may have to run for it.
        parents: In a trace, those of the op's node: what is computed again is tracked as it was, which a graph keeps too.
        seconds: What running its op costs, roughly.
    """

    __slots__ = (
        "__weakref__", "_kept", "_seen", "aval", "budget", "depth", "device", "inputs", "key", "nbytes", "op", "params",
        "parents", "seconds", "slot", "touched", "wanted",
    )  # fmt: skip

    def __init__(self, node: Any, inputs: tuple[Value, ...], t: Tensor, slot: int, key: object) -> None:
        self.op: Op = node.op
        self.params: dict[str, Any] = node.params
        self.inputs, self.slot, self.key = inputs, slot, key
        self.parents: tuple[Any, ...] = _untracked(inputs) if _trace() is None else node.parents
        self.aval, self.device = t.aval, t.device
        self.depth: int = 1 + max((v.depth for v in inputs if isinstance(v, Recipe)), default=0)
        self.budget: Budget | None = None
        self._kept: Storage | None = None
        self._seen: Any = None
        self.wanted = False
        self.touched, self.nbytes, self.seconds = 0, 0, 0.0

    def storage(self, memo: Memo) -> Storage:
        stack = [self]
        while stack:
            v = stack[-1]
            if v.at_hand(memo) is None:
                missing = [i for i in v.inputs if isinstance(i, Recipe) and i.at_hand(memo) is None]
                if missing:
                    stack += missing
                    continue
                v._run(memo)
            stack.pop()
        found = self.at_hand(memo)
        assert found is not None
        return found

    def at_hand(self, memo: Memo) -> Storage | None:
        """Its storage, if it needs no computing."""
        if self._kept is not None:
            if self.budget is not None:
                self.touched = self.budget.clock
            return self._kept
        again = memo.get(self.key)
        if again is not None:
            return again[self.slot]  # type: ignore[no-any-return]
        return self._seen() if self._seen is not None else None

    def _run(self, memo: Memo) -> None:
        at = _untracked(self.inputs) if _trace() is None else self.parents
        handles = tuple(handle(v, memo, *(p or ())) for v, p in zip(self.inputs, at, strict=True))
        inferred = self.op.infer(*handles, **self.params)
        avals = (inferred,) if type(inferred) is Aval else inferred
        with again():
            results = tuple(t.storage for t in execute(self.op, handles, self.params, avals))
        memo[self.key] = results
        if self.budget is not None:
            memo.ran(self, self.budget)
        if self.budget is not None and not memo.spent:
            memo.brief.add(self.key)
            for v in self.inputs:  # no longer needed, so that a long chain of recipes holds no more than the budget keeps
                if isinstance(v, Recipe):
                    memo.pop(v.key, None)
            if self.wanted:
                self._kept = results[self.slot]
                self.budget.add(self)

    # under a budget

    def watch(self, budget: Budget, t: Tensor, seconds: float) -> None:
        """Register with a budget: the storage is used while something else holds it, and kept once a rule needs it."""
        self.budget, self._seen, self.seconds = budget, ref(t.storage), seconds
        self.nbytes = min(t.nbytes, t.storage.root.nbytes or t.nbytes)

    def keep(self) -> None:
        """Note that a gradient rule will read it."""
        self.wanted = True
        if self.budget is not None and self._kept is None:
            self._kept = self._seen()
            if self._kept is not None:
                self.budget.add(self)

    def drop(self) -> None:
        """Drop the storage, which is recomputed when it is needed."""
        self._kept = None

    @property
    def kept(self) -> bool:
        return self._kept is not None

    def __del__(self) -> None:
        if self.budget is not None and self._kept is not None:
            self.budget.total -= self.nbytes


class Budget:
    """Bytes of results that the tape may keep for gradient rules; operands from outside are not among them.

    Attributes:
        limit: Bytes.
        total: Bytes kept now.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.total, self.clock = limit, 0, 0
        self._kept: WeakSet[Recipe] = WeakSet()
        self._reported = False

    def add(self, v: Recipe) -> None:
        """Count a value that is kept from now on, and drop others until the budget is met."""
        self.clock += 1
        v.touched = self.clock
        self.total += v.nbytes
        self._kept.add(v)
        if self.total > self.limit:
            self._shrink()

    def _shrink(self) -> None:
        rows = [(v.seconds + _lost(v.inputs), v) for v in self._kept if v.nbytes]
        rows.sort(key=lambda row: (row[0] / (row[1].nbytes * (1 + self.clock - row[1].touched)), -row[1].touched))
        goal = self.limit * _SLACK
        for _, v in rows:
            if self.total <= goal:
                break
            self._kept.discard(v)
            v.drop()
            self.total -= v.nbytes

    def report(self, runs: int, ops: int, nodes: Sequence[Any]) -> None:
        """Warn, once, that a backward pass could not keep to the budget."""
        if self._reported:
            return
        self._reported = True
        wanted = {id(v): v.nbytes for n in nodes for v in (*n.inputs, *n.outputs) if isinstance(v, Recipe)}
        warn(
            f"fb.checkpointing(budget={self.limit}): the budget is too small and cannot be met. A backward pass over {ops} "
            f"recorded ops has run {runs} ops again, as much as it may, and keeps from here on what it computes. "
            f"Pass a larger budget (what gradient rules still want are {sum(wanted.values())} bytes), or use "
            'fb.checkpoint around parts of the function, or fb.checkpointing("balanced")',
            BudgetWarning,
        )


def _trace() -> Any:
    """The running trace, or None."""
    return hooks.trace() if hooks.tracing else None


def _untracked(inputs: tuple[Value, ...]) -> tuple[None, ...]:
    return (None,) * len(inputs)


def _lost(values: Iterable[Value]) -> float:
    """Seconds to recompute those of these values, and of their operands, that are not kept."""
    stack = [v for v in values if isinstance(v, Recipe) and not v.kept]
    seen: set[int] = set()
    total = 0.0
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        total += v.seconds
        stack += [i for i in v.inputs if isinstance(i, Recipe) and not i.kept]
    return total


@contextmanager
def again() -> Iterator[None]:
    """Mark operations in this block as a recomputation that saves memory: a graph never merges them with the first
    computation."""
    trace = _trace()
    if trace is None:
        yield
        return
    before = trace.region
    trace.regions += 1
    trace.region = trace.regions
    try:
        yield
    finally:
        trace.region = before


strategy: ContextVar[str | Budget] = ContextVar("firebrick_checkpointing", default="none")
_held: WeakSet[Storage] = WeakSet()  # memory that the tape keeps under `balanced`


def handle(v: Value, memo: Memo, node: Any = None, slot: int = 0) -> Tensor:
    """A tensor on a residual; tracked by ``node`` if one is given."""
    t = Tensor(v.storage(memo), v.aval.dtype, v.aval.shape, v.device)
    t.node, t.slot = node, slot
    return t


def save(node: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Keep all values that the node's rule reads."""
    residuals = node.op.residuals
    if not residuals:
        return
    if "inputs" in residuals:
        node.inputs = tuple(map(Saved, inputs, node.in_avals))
    if "outputs" in residuals:
        node.outputs = tuple(map(Saved, outputs, node.out_avals))


def keep(node: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Give a node its residuals by the strategy of this context."""
    how = strategy.get()
    if how == "none":
        save(node, inputs, outputs)
    elif isinstance(how, Budget):
        _within(how, node, inputs, outputs)
    else:
        _balanced(node, inputs, outputs)


def _value(t: Tensor) -> Value:
    return t.node.recipes[t.slot] if t.node is not None and t.node.recipes else Saved(t)


def _balanced(node: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Recipes for a memory-bound op's results, unless they would keep as much memory alive as the results have."""
    op: Op = node.op
    values = tuple(map(_value, inputs))
    rule_keeps = "inputs" in op.residuals
    again = op.bound == "memory" and op.recomputes and not op.transfers
    if again:
        only_for_this = sum(t.nbytes for t, v in zip(inputs, values, strict=True) if not (rule_keeps or _kept_anyway(t, v)))
        depth = max((v.depth for v in values if isinstance(v, Recipe)), default=0)
        again = only_for_this < sum(t.nbytes for t in outputs) and depth < _DEEPEST
    results: tuple[Value, ...] = ()
    if again:
        key = object()
        node.recipes = results = tuple(Recipe(node, values, t, i, key) for i, t in enumerate(outputs))
    elif "outputs" in op.residuals:
        results = tuple(map(Saved, outputs))
        _held.update(t.storage.root for t in outputs)
    if again or rule_keeps:
        _held.update(t.storage.root for t, v in zip(inputs, values, strict=True) if isinstance(v, Saved))
    if rule_keeps:
        node.inputs = values
    if "outputs" in op.residuals:
        node.outputs = results


def _kept_anyway(t: Tensor, v: Value) -> bool:
    """Whether a recipe that starts from an operand keeps no memory for itself: a recipe, a leaf, or what the tape holds."""
    return isinstance(v, Recipe) or (t.node is not None and t.node.op is None) or t.storage.root in _held


def _within(budget: Budget, node: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Recipes for all results; those that rules need keep their storage as long as the budget allows."""
    op: Op = node.op
    values = tuple(map(_value, inputs))
    results: tuple[Value, ...] = ()
    if op.recomputes and not op.transfers:
        key = object()
        work = op.cost(node.in_avals, node.out_avals, node.params)
        seconds = max(work.flops / _FLOPS, work.bytes / _BYTES)
        recipes = tuple(Recipe(node, values, t, i, key) for i, t in enumerate(outputs))
        for r, t in zip(recipes, outputs, strict=True):
            r.watch(budget, t, seconds)
        node.recipes = results = recipes
    elif "outputs" in op.residuals:
        results = tuple(map(Saved, outputs))
    if "inputs" in op.residuals:
        node.inputs = values
    if "outputs" in op.residuals:
        node.outputs = results
    for v in (*node.inputs, *node.outputs):
        if isinstance(v, Recipe):
            v.keep()


def last_uses(nodes: Sequence[Any]) -> list[list[Any]]:
    """For each node of a backward pass, newest first: the keys of a memo that no later node needs."""
    last: dict[Any, int] = {}
    known: set[Any] = set()
    for i, node in enumerate(nodes):
        stack = [*node.inputs, *node.outputs]
        while stack:
            v = stack.pop()
            key = getattr(v, "key", None)
            if key is None or getattr(v, "budget", None) is not None:
                continue
            last[key] = i
            if key not in known:
                known.add(key)
                stack += getattr(v, "inputs", ())
    out: list[list[Any]] = [[] for _ in nodes]
    for key, i in last.items():
        out[i].append(key)
    return out


def last_uses_under_budgets(nodes: Sequence[Any]) -> list[list[Any]]:
    """The same for values under a budget, which may be dropped and needed again: up to the last use of the values made of
    them."""
    known: set[Any] = set()
    out: list[list[Any]] = [[] for _ in nodes]
    for node, keys in zip(reversed(nodes), reversed(out), strict=True):
        keys += _reached((node,), known)
    return out


def _recorded(nodes: Sequence[Any]) -> dict[Any, float]:
    """The ops under a budget that these nodes may run again, and their seconds."""
    return _reached(nodes, set())


def _reached(nodes: Iterable[Any], known: set[Any]) -> dict[Any, float]:
    """The keys of recipes under a budget that nodes need, directly or as operands, except those known; and their seconds."""
    found: dict[Any, float] = {}
    stack = [v for node in nodes for v in (*node.inputs, *node.outputs)]
    while stack:
        v = stack.pop()
        if not isinstance(v, Recipe) or v.key in known:
            continue
        known.add(v.key)
        if v.budget is not None:
            found[v.key] = v.seconds
        stack += v.inputs
    return found
