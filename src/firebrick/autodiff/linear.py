"""``Linear``: a function recorded on the tape at one point, with its linear map of tangents in both directions.

``pull`` runs it backwards: from cotangents of the results to those of the arguments. ``push`` runs it forwards, from tangents
of the arguments to those of the results: the backward pass is itself recorded, once, for cotangents that are leaves, and the
map of tangents is its transpose, so it is again a backward pass. ``fb.linearize`` and ``fb.jacobian`` are made of them, and
what forward mode does for an op that has no rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.autodiff.backward import filled, leading_to, reachable, run
from firebrick.autodiff.checkpoint import wanted_at_once
from firebrick.autodiff.distributed import reducing
from firebrick.autodiff.tape import Node, grad_mode, own_handle
from firebrick.autodiff.transforms import Leaves, track
from firebrick.core import trees
from firebrick.core.bind import bind
from firebrick.core.errors import GradientError
from firebrick.core.levels import boxed, enter, innermost, leave
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS
from firebrick.ops.elementwise import add

Tangents = Sequence[Tensor | None]


class Linear:
    """A function at one point.

    Args:
        fn: Function of tensors.
        primals: The point: floating or complex tensors.

    Attributes:
        results: The tensors that the function returned, untracked by it.
        spec: Their structure.
    """

    def __init__(self, fn: Callable[..., Any], primals: Sequence[Tensor]) -> None:
        self._leaves = Leaves(list(primals))
        self._leaves.track()
        with grad_mode(True), wanted_at_once(), reducing(None):
            out = fn(*self._leaves.argument)
        found, self.spec = trees.flatten(out)
        for i, t in enumerate(found):
            if not isinstance(t, Tensor):
                path = trees.leaves_with_paths(out)[i][0]
                raise GradientError(
                    "a function to differentiate returns tensors", f"result{path}: {type(t).__name__}", "return tensors only"
                )
        self._roots: list[tuple[Node, int] | None] = [None if t.node is None else (t.node, t.slot) for t in found]
        ids = self._leaves.ids
        reached = {n.id: n for root in self._roots if root is not None for n in reachable(root[0], ids)}
        self._outer = self._leaves.within_another(list(reached.values()))
        self.results = [t if self._outer else t._another() for t in found]
        self._level = innermost()
        # where the cotangents of the arguments are on the tape, from those of the results, which are leaves
        self._pulled: list[tuple[Node, int] | None] | None = None
        self._seeds: list[Node | None] = []

    def pull(self, cotangents: Tangents, recorded: bool = False) -> list[Tensor]:
        """The cotangents of the arguments; those of results are None where they are zero."""
        ids = self._leaves.ids
        more = recorded or self._outer or any(g is not None and g.node is not None for g in cotangents)
        pairs = [(root, g) for root, g in zip(self._roots, cotangents, strict=True) if root is not None and g is not None]
        found = _backward([(r[0], r[1], g) for r, g in pairs], ids, more)
        zeros = (filled(0.0, t._another()) for t in self._leaves.tracked)
        return [found.get(n, zero) for n, zero in zip(self._leaves.nodes, zeros, strict=True)]

    def is_bent(self, cotangents: Sequence[Tensor]) -> bool:
        """Whether cotangents that ``pull`` recorded depend on the point, which they do not where the function is linear.

        Loops, branches and compiled functions are left out: their rules take all values, whether they use them or not.
        """
        stack, seen = [g.node for g in cotangents if g.node is not None], set()
        while stack:
            node = stack.pop()
            if node.id in self._leaves.ids:
                return True
            if node.id not in seen and node.op is not None and node.op.control is None and OPS.get(node.op.name) is node.op:
                stack += [parent[0] for parent in node.parents if parent is not None]
            seen.add(node.id)
        return False

    def _transpose(self) -> None:
        """Record the backward pass for cotangents that are leaves."""
        seeds = [
            None if root is None else boxed(own_handle(filled(0.0, t._another())))
            for root, t in zip(self._roots, self.results, strict=True)
        ]
        self._seeds = [None if s is None else track(s) for s in seeds]
        # as places on the tape: a trace shows the handles of what it captures as untracked
        self._pulled = [None if g.node is None else (g.node, g.slot) for g in self.pull(seeds, recorded=True)]

    def push(self, tangents: Tangents) -> list[Tensor | None]:
        """The tangents of the results; None where they are zero for any tangents."""
        if self._pulled is None:
            token = enter(self._level)  # what is kept belongs to where the function was recorded, not to where it is mapped
            try:
                self._transpose()
            finally:
                leave(token)
        assert self._pulled is not None
        stop = frozenset(n.id for n in self._seeds if n is not None)
        pairs = [(*place, t) for place, t in zip(self._pulled, tangents, strict=True) if t is not None and place is not None]
        more = self._outer or any(t is not None and t.node is not None for t in tangents)
        found = _backward(pairs, stop, more)
        return [None if n is None else found.get(n) for n in self._seeds]


def _backward(seeds: list[tuple[Node, int, Tensor]], stop: frozenset[int], recorded: bool) -> dict[Node, Tensor]:
    """A backward pass from several results to the leaves ``stop``."""
    cotangents: dict[tuple[int, int], Tensor] = {}
    nodes: dict[int, Node] = {}
    for node, slot, g in seeds:
        at = (node.id, slot)
        cotangents[at] = g if at not in cotangents else bind(add, (cotangents[at], g), {})
        nodes.update((n.id, n) for n in reachable(node, stop))
    return run(leading_to(stop, sorted(nodes.values(), key=lambda n: -n.id)), cotangents, recorded, stop)
