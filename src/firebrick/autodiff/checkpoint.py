"""Trading time for memory: ``checkpoint(fn)`` drops the intermediate values of ``fn`` and runs it again when needed;
``checkpointing("balanced")`` drops the results of memory-bound ops and recomputes them one by one, and
``checkpointing(budget=…)`` drops and recomputes results that do not fit into the budget.

The strategy belongs to the call or the context, never to tensors. The second run must do the same operations as the first; if
it does not, the backward pass raises instead of using other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import ref

from firebrick.autodiff.residuals import Budget, Memo, Value, again, save, strategy
from firebrick.autodiff.tape import Node, grad_mode, new_id, own_handle, region
from firebrick.core import trees
from firebrick.core.autocast import autocast, autocast_dtype
from firebrick.core.aval import Aval
from firebrick.core.batched import Batched
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, python_scalar
from firebrick.core.duals import Dual
from firebrick.core.errors import ConfigError, GradientError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.journal import Journal, all_or_none, journaled, undone
from firebrick.core.levels import Inner, enter, innermost, leave
from firebrick.core.operands import describe
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.ir.keys import key_of

STRATEGIES = ("none", "balanced")
P = ParamSpec("P")
R = TypeVar("R")

_around: ContextVar[tuple[Any, ...]] = ContextVar("firebrick_checkpointing_around", default=())
"""The strategies that each enclosing ``with fb.checkpointing(…)`` replaced, outermost first."""


class checkpointing(ContextDecorator):
    """Record with a checkpointing strategy inside a ``with`` block, or in a function that it decorates. It can be entered
    repeatedly, also within itself.

    Gradients have the same bits with each strategy; under ``jit`` on ``cpu`` they agree within the op table's tolerances, as
    what is computed again may be fused otherwise.

    Args:
        name: ``"none"`` keeps what gradient rules read; ``"balanced"`` keeps results of compute-bound ops (matrix products,
            convolutions) and computes memory-bound ones again.
        budget: Instead of a name: the maximum number of bytes of results that are kept for gradient rules. Results that are
            cheap to recompute for their size are dropped first. Work is bounded: a backward pass that has run 16 times as many
            ops again as were recorded keeps the rest, over the budget, with a ``BudgetWarning``.

    Raises:
        ConfigError: The name is unknown, the budget no positive number of bytes, or both are given.

    Example:
        >>> import firebrick as fb
        >>> with fb.checkpointing("balanced"):
        ...     g = fb.grad(lambda x: fb.sum(fb.exp(fb.sin(x))))(fb.zeros(2))
        >>> g.tolist()
        [1.0, 1.0]
        >>> with fb.checkpointing(budget=64 * 2**20):
        ...     g = fb.grad(lambda x: fb.sum(fb.exp(fb.sin(x))))(fb.zeros(2))
        >>> g.tolist()
        [1.0, 1.0]
    """

    def __init__(self, name: str = "none", *, budget: int | None = None) -> None:
        budget = python_scalar(budget)
        if name not in STRATEGIES:
            raise ConfigError(f"a checkpointing strategy is one of {', '.join(STRATEGIES)}", repr(name), "use one of these")
        if budget is not None and (name != "none" or type(budget) is not int or budget < 1):
            raise ConfigError(
                "a checkpointing budget is a number of bytes ≥ 1, without another strategy",
                f"{name!r}, budget = {budget!r}",
                "pass e.g. fb.checkpointing(budget=512 * 2**20)",
            )
        self.name, self.budget = name, budget

    def __enter__(self) -> None:
        _around.set((*_around.get(), strategy.get()))
        strategy.set(self.name if self.budget is None else Budget(self.budget))

    def __exit__(self, *error: object) -> None:
        *outer, before = _around.get()
        strategy.set(before)
        _around.set(tuple(outer))


class _Lost:
    """A residual of a checkpointed region: number ``i`` of those that its rules read."""

    __slots__ = ("aval", "device", "home", "i")

    def __init__(self, home: Region, i: int, t: Tensor) -> None:
        self.home, self.i = home, i
        self.aval: Aval = t.aval
        self.device: Device = t.device

    @property
    def key(self) -> Region:
        """The key under which a memo holds the values of its region."""
        return self.home

    def storage(self, memo: Memo) -> Storage:
        kept = memo.get(self.home)
        if kept is None:
            kept = memo[self.home] = self.home.again()
        return kept[self.i]


class Region:
    """One run of a checkpointed function: the residuals that its nodes will need, by number, and how to run it again."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.start = new_id()  # tensors of older nodes come from outside
        self.wanted: list[tuple[str, Aval, Storage | None]] = []
        self.untracked: list[tuple[int, Callable[[], Storage | None]]] = []
        self.steps: list[_Step] = []
        self.generators: dict[Any, Any] = {}
        self.rebound: Journal | None = None
        self.over = False
        self.repeats = False
        self.dtype = autocast_dtype()
        self.level = innermost()

    def keep(self, node: Node, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        """Number a node's residuals instead of keeping them."""
        assert node.op is not None
        self.steps.append(_Step(node.op.name, _settings(node), [_held(t) for t in inputs], _origins(node, self.start)))
        if "inputs" in node.op.residuals:
            node.inputs = tuple(self._lose(node.op.name, t) for t in inputs)
        if "outputs" in node.op.residuals:
            node.outputs = tuple(self._lose(node.op.name, t) for t in outputs)

    def _lose(self, op: str, t: Tensor) -> Value:
        outside = t.node is not None and (t.node.op is None or t.node.id < self.start)
        self.wanted.append((op, t.aval, t.storage if outside else None))
        if t.node is None:
            self.untracked.append((len(self.wanted) - 1, ref(t.storage)))
        return _Lost(self, len(self.wanted) - 1, t)

    def close(self) -> None:
        """End the first run: untracked operands that are still alive are held, so that the second run can recognise them."""
        for i, storage in self.untracked:
            op, aval, _ = self.wanted[i]
            self.wanted[i] = (op, aval, storage())
        self.untracked.clear()
        for step in self.steps:
            step.operands = [None if held is None else held() for held in step.operands]
        self.over = True

    def note_generator(self, generator: Any) -> None:
        """Remember a generator's state before its first draw in this region."""
        if generator not in self.generators:
            self.generators[generator] = generator.place()

    def again(self) -> list[Storage]:
        """Run the function again and collect the storages of its residuals."""
        if not self.over:
            raise GradientError(
                "a checkpointed function may take gradients of functions, but not run a backward pass of its own",
                "fb.backward inside fb.checkpoint",
                "use fb.grad or fb.value_and_grad there",
            )
        rerun = _Rerun(self.wanted, self.steps)
        now = {g: g.place() for g in self.generators}
        token, plain, outside = region.set(rerun), strategy.set("none"), enter(self.level)
        try:
            for g, state in self.generators.items():
                g.go_back(state)
            with undone(), grad_mode(True), again(), autocast(self.dtype):
                if self.rebound is not None:
                    self.rebound.restore()
                self.run()
        finally:
            region.reset(token)
            strategy.reset(plain)
            leave(outside)
            for g, state in now.items():
                g.go_back(state)
        if len(rerun.kept) != len(self.wanted):
            raise _changed(f"{len(rerun.kept)} residuals instead of {len(self.wanted)}")
        if rerun.done != len(self.steps):
            raise _changed(f"{rerun.done} operations instead of {len(self.steps)}")
        return rerun.kept


class _Step:
    """An operation of the first run.

    Attributes:
        op: Its name.
        settings: Its plain parameters, such as an axis.
        operands: The storage of each operand whose values the second run must have again: of untracked ones whose memory is
            still alive when the first run is over, since they come from outside, and of single numbers. During the first run,
            functions that return it.
        origins: For each operand that is tracked and comes from outside, its place on the tape, which the second run must have
            again; None for others.
    """

    __slots__ = ("op", "operands", "origins", "settings")

    def __init__(self, op: str, settings: Any, operands: list[Any], origins: list[Any]) -> None:
        self.op, self.settings, self.operands, self.origins = op, settings, operands, origins


def _origins(node: Node, start: int) -> list[tuple[int, int] | None]:
    """The places on the tape of a node's operands, of those that are older than a run."""
    return [None if p is None or p[0].id > start else (p[0].id, p[1]) for p in node.parents]


_PLAIN = (int, float, complex, str, type(None), DType)


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, _PLAIN)


def _settings(node: Node) -> Any:
    return tuple([(name, key_of(v)) for name, v in node.params.items() if _is_plain(v)]) if node.params else ()


def _held(t: Tensor) -> Callable[[], Storage | None] | None:
    """What returns an untracked operand as long as its memory is alive; that of a single number always is."""
    if t.node is not None:
        return None
    storage = t.storage
    if t.aval.size == 1 or hooks.trace() is not None:  # a trace has no memory
        return lambda: storage
    if storage.base is None:
        return ref(storage)
    shown, memory = [storage.data], storage.memory
    root = ref(storage.root, lambda _: shown.clear())  # a view keeps memory alive no longer than others do

    def view() -> Storage | None:
        base = root()
        return None if base is None else Storage(shown[0], memory, 0, base=base)

    return view


class _Rerun:
    """Collects residuals instead of numbering them, and checks that they are those of the first run."""

    def __init__(self, wanted: list[tuple[str, Aval, Storage | None]], steps: list[_Step]) -> None:
        self.wanted, self.steps = wanted, steps
        self.start = new_id()
        self.done = 0
        self.repeats = True
        self.kept: list[Storage] = []

    def keep(self, node: Node, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        assert node.op is not None
        self._check(node, inputs)
        save(node, inputs, outputs)
        wants = [
            *(inputs if "inputs" in node.op.residuals else ()),
            *(outputs if "outputs" in node.op.residuals else ()),
        ]
        for t in wants:
            i = len(self.kept)
            if i >= len(self.wanted):
                raise _changed(f"{node.op.name} of {t.aval} where the first run had nothing more")
            op, aval, known = self.wanted[i]
            if (op, aval) != (node.op.name, t.aval):
                raise _changed(f"{node.op.name} of {t.aval} where the first run had {op} of {aval}")
            if known is not None and known is not t.storage and not (t.node is None and _equal(known, t)):
                raise _changed(f"{node.op.name} of {t.label or t.aval}, whose values were changed since the first run")
            self.kept.append(t.storage)

    def _check(self, node: Node, inputs: tuple[Tensor, ...]) -> None:
        """An operation must be that of the first run, also where no rule needs its operands."""
        assert node.op is not None
        if self.done >= len(self.steps):
            raise _changed(f"{node.op.name} where the first run had nothing more")
        step = self.steps[self.done]
        self.done += 1
        if (step.op, step.settings) != (node.op.name, _settings(node)):
            before = "other parameters" if step.op == node.op.name else step.op
            raise _changed(f"{node.op.name} with {node.params} where the first run had {before}")
        if len(step.operands) != len(inputs):
            raise _changed(f"{node.op.name} of {len(inputs)} operands where the first run had {len(step.operands)}")
        for before, now, t in zip(step.origins, _origins(node, self.start), inputs, strict=True):
            if before != now:
                raise _changed(f"{node.op.name} of {t.label or t.aval}, which was changed since the first run")
        for known, t in zip(step.operands, inputs, strict=True):
            if known is not None and t.node is None and not _equal(known, t):
                raise _changed(f"{node.op.name} of {t.label or t.aval}, whose values were changed since the first run")

    def note_generator(self, generator: Any) -> None:
        """States were restored by the region."""


class _AtOnce:
    """Inside a region, around a function whose gradient is taken there: its residuals are needed at once, so they are kept.
    Draws are still the region's."""

    def __init__(self, outer: Any) -> None:
        self.note_generator = outer.note_generator
        self.repeats = outer.repeats
        self.keep = save


@contextmanager
def wanted_at_once() -> Iterator[None]:
    """Keep the residuals of this block, also inside a checkpointed function."""
    token = region.set(at_once(region.get()))
    try:
        yield
    finally:
        region.reset(token)


def at_once(inside: Any) -> Any:
    """The region of such a block inside another region."""
    return None if inside is None else _AtOnce(inside)


def _equal(known: Storage, t: Tensor) -> bool:
    """Whether a storage holds the very bits of a tensor; inside a trace, whether they are computed in the same way."""
    if known is t.storage:
        return True
    now = t.storage.data
    if isinstance(known.data, Batched) and isinstance(now, Batched):
        same = known.data.mapped is now.mapped and known.data.level.size == now.level.size
        return same and _equal(known.data.value.storage, now.value)
    if isinstance(known.data, Dual) and isinstance(now, Dual):
        before, tangent = known.data.tangent, now.tangent
        alike = before is tangent is None or (before is not None and tangent is not None and _equal(before.storage, tangent))
        return alike and _equal(known.data.value.storage, now.value)
    if isinstance(known.data, Inner) or isinstance(now, Inner):
        return False
    trace = hooks.trace()
    if trace is not None:
        return bool(trace.alike(known.data, now))
    if known.root is t.storage.root and t.device.backend.same_elements(known.data, now):
        return True
    first, second = (hooks.to_host(Tensor(s, t.dtype, t.shape, t.device)) for s in (known, t.storage))
    return bool(first.tobytes() == second.tobytes())


def _changed(what: str) -> GradientError:
    return GradientError(
        "a checkpointed function must do the same operations when it runs again",
        what,
        "pass what changes as arguments (a closure sees the last value of a variable), or do not checkpoint it",
    )


def checkpoint(fn: Callable[P, R]) -> Callable[P, R]:
    """``fn``, whose intermediate values are dropped in the forward pass and recomputed in the backward pass.

    Tensors that it captures (also a module's parameters) get their gradients as always, and random draws repeat. Tensors that
    it changes in place are changed once: the second run starts from their values before the first.

    Args:
        fn: Function of tensors, trees of them or modules, that has no other effects than on tensors.

    Example:
        >>> import firebrick as fb
        >>> block = fb.checkpoint(lambda x: fb.exp(fb.sin(x)))
        >>> fb.grad(lambda x: fb.sum(block(x)))(fb.zeros(2)).tolist()
        [1.0, 1.0]
    """

    if not callable(fn):
        raise OperandError(
            "checkpoint takes a function",
            describe("fn", fn) if isinstance(fn, Tensor) else type(fn).__name__,
            "write fb.checkpoint(fn)(x); fb.checkpointing is the context manager", op="checkpoint",
        )  # fmt: skip

    @wraps(fn)
    def forgetful(*args: P.args, **kwargs: P.kwargs) -> R:
        if region.get() is not None:  # an outer region drops the values of this one too
            return fn(*args, **kwargs)
        frozen_args, frozen_kwargs = _frozen(args), _frozen(kwargs)
        # frozen anew for each run, which may rebind its arguments as it likes
        home = Region(lambda: fn(*_frozen(frozen_args), **_frozen(frozen_kwargs)))

        def first() -> R:
            token = region.set(home)
            try:
                with journaled() as home.rebound:
                    return fn(*args, **kwargs)
            finally:
                region.reset(token)
                home.close()

        return all_or_none(first)

    return forgetful


def _frozen(values: Any) -> Any:
    """The same tree with other handles of the same values and tracking, so that rebinding the caller's changes nothing here."""
    return trees.tree_map(_same, values)


def _same(a: Any) -> Any:
    if type(a) is not Tensor:
        return a
    t = own_handle(a)
    t.leaf = a.leaf
    return t
