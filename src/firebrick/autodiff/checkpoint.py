"""Trading time for memory: ``checkpoint(fn)`` forgets what happens inside ``fn`` and runs it again when needed;
``checkpointing("balanced")`` forgets the results of memory-bound ops and computes them again one by one.

The strategy belongs to the call or the context, never to tensors. What is run again must do the same operations; if it does
not, the backward pass raises instead of using other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from firebrick.autodiff.tape import Node, Saved, Value, region, strategy
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.errors import ConfigError, GradientError
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

STRATEGIES = ("none", "balanced")


@contextmanager
def checkpointing(name: str) -> Iterator[None]:
    """Record with a checkpointing strategy inside a ``with`` block.

    Args:
        name: ``"none"`` keeps what gradient rules look at; ``"balanced"`` keeps results of compute-bound ops (matrix products,
            convolutions) and computes memory-bound ones again.

    Example:
        >>> import firebrick as fb
        >>> with fb.checkpointing("balanced"):
        ...     g = fb.grad(lambda x: fb.sum(fb.exp(fb.sin(x))))(fb.zeros(2))
        >>> g.tolist()
        [1.0, 1.0]
    """
    if name not in STRATEGIES:
        raise ConfigError(f"a checkpointing strategy is one of {', '.join(STRATEGIES)}", repr(name), "use one of these")
    token = strategy.set(name)
    try:
        yield
    finally:
        strategy.reset(token)


class _Lost:
    """A residual of a checkpointed region: number ``i`` of what its rules look at."""

    __slots__ = ("aval", "device", "home", "i")

    def __init__(self, home: Region, i: int, t: Tensor) -> None:
        self.home, self.i = home, i
        self.aval: Aval = t.aval
        self.device: Device = t.device

    def storage(self, memo: dict[Any, Storage]) -> Storage:
        kept = memo.get(self.home)
        if kept is None:
            kept = memo[self.home] = self.home.again()  # type: ignore[assignment]
        return kept[self.i]  # type: ignore[index, no-any-return]


class Region:
    """One run of a checkpointed function: what its nodes will want, by number, and how to run it again."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.wanted: list[tuple[str, Aval, Storage | None]] = []
        self.generators: dict[Any, Any] = {}

    def keep(self, node: Node, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        """Number a node's residuals instead of keeping them."""
        assert node.op is not None
        if "inputs" in node.op.residuals:
            node.inputs = tuple(self._lose(node.op.name, t) for t in inputs)
        if "outputs" in node.op.residuals:
            node.outputs = tuple(self._lose(node.op.name, t) for t in outputs)

    def _lose(self, op: str, t: Tensor) -> Value:
        self.wanted.append((op, t.aval, _of_leaf(t)))
        return _Lost(self, len(self.wanted) - 1, t)

    def note_generator(self, generator: Any) -> None:
        """Remember a generator's state before its first draw in this region."""
        if generator not in self.generators:
            self.generators[generator] = generator.state()

    def again(self) -> list[Storage]:
        """Run the function again and collect the storages of its residuals."""
        rerun = _Rerun(self.wanted)
        now = {g: g.state() for g in self.generators}
        from firebrick.autodiff.tape import grad_mode

        token, plain = region.set(rerun), strategy.set("none")
        try:
            for g, state in self.generators.items():
                g.set_state(state)
            with grad_mode(True):
                self.run()
        finally:
            region.reset(token)
            strategy.reset(plain)
            for g, state in now.items():
                g.set_state(state)
        if len(rerun.kept) != len(self.wanted):
            raise _changed(f"{len(rerun.kept)} residuals instead of {len(self.wanted)}")
        return rerun.kept


class _Rerun:
    """Collects residuals in place of numbering them, and checks that they are those of the first run."""

    def __init__(self, wanted: list[tuple[str, Aval, Storage | None]]) -> None:
        self.wanted = wanted
        self.kept: list[Storage] = []

    def keep(self, node: Node, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        assert node.op is not None
        node.inputs = tuple(map(Saved, inputs)) if "inputs" in node.op.residuals else ()
        node.outputs = tuple(map(Saved, outputs)) if "outputs" in node.op.residuals else ()
        wants = [
            *(inputs if "inputs" in node.op.residuals else ()),
            *(outputs if "outputs" in node.op.residuals else ()),
        ]
        for t in wants:
            i = len(self.kept)
            if i >= len(self.wanted):
                raise _changed(f"{node.op.name} of {t.aval} where the first run had nothing more")
            op, aval, leaf = self.wanted[i]
            if (op, aval) != (node.op.name, t.aval):
                raise _changed(f"{node.op.name} of {t.aval} where the first run had {op} of {aval}")
            if leaf is not None and leaf is not t.storage:
                raise _changed(f"a leaf, {t.label or t.aval}, that was changed since the first run")
            self.kept.append(t.storage)

    def note_generator(self, generator: Any) -> None:
        """States were restored by the region."""


def _of_leaf(t: Tensor) -> Storage | None:
    """The storage of a tensor that is a leaf (a parameter, say), which must still be there when its region runs again."""
    return t.storage if t.node is not None and t.node.op is None else None


def _changed(what: str) -> GradientError:
    return GradientError(
        "a checkpointed function must do the same operations when it runs again",
        what,
        "keep its control flow free of changing Python state, or do not checkpoint it",
    )


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, whose intermediate values are forgotten in the forward pass and computed again in the backward pass.

    Tensors that it captures (also a module's parameters) get their gradients as always, and random draws repeat.

    Example:
        >>> import firebrick as fb
        >>> block = fb.checkpoint(lambda x: fb.exp(fb.sin(x)))
        >>> fb.grad(lambda x: fb.sum(block(x)))(fb.zeros(2)).tolist()
        [1.0, 1.0]
    """

    @wraps(fn)
    def forgetful(*args: Any, **kwargs: Any) -> Any:
        if region.get() is not None:  # an outer region forgets this one too
            return fn(*args, **kwargs)
        frozen_args = [_same(a) for a in args]
        frozen_kwargs = {k: _same(v) for k, v in kwargs.items()}
        token = region.set(Region(lambda: fn(*frozen_args, **frozen_kwargs)))
        try:
            return fn(*args, **kwargs)
        finally:
            region.reset(token)

    return forgetful


def _same(a: Any) -> Any:
    """Another handle with the same values and tracking, so that rebinding the caller's changes nothing here."""
    if type(a) is not Tensor:
        return a
    t = a.detach()
    t.node, t.slot, t.leaf = a.node, a.slot, a.leaf
    return t
