"""``vmap``: a function of one example as a function of many, run once.

``core.batched`` has what a tensor is inside the function, ``autodiff.batching`` how operations run. This file takes the
arguments apart by ``in_axes``, puts the results together by ``out_axes``, and checks that the function had no effect on
tensors that existed before it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from firebrick.autodiff.batching import EXAMPLES, with_examples
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import new_id, own_handle
from firebrick.core import trees
from firebrick.core.batched import Batched, batched
from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import OperandError, OutOfRangeError, ShapeError, StateChangedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import Journal, all_or_none, correct, journaled
from firebrick.core.levels import Inner, Level, enter, leave
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.ops.movement import permute

P = ParamSpec("P")
R = TypeVar("R")
Axes = Any  # an int, None, or a container of these that matches the outer containers of the arguments


@answers_arguments
def vmap(fn: Callable[P, R], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[P, R]:
    """A function that computes ``fn`` for many examples at once: ``fn`` is written for one, and runs once.

    Inside ``fn`` tensors have the shape of one example, and every operation runs for all of them (``docs/transformations.md``).
    Calls nest, and combine with ``grad``, ``jit``, ``scan``, ``cond`` and ``while_loop`` in any order. A random generator draws
    for all examples at once: the draw of example ``i`` is row ``i`` of a draw whose first axis is the examples. Keyword
    arguments, and arguments that are no tensors, are the same for all examples.

    Args:
        fn: Function of tensors, trees of them, modules and other values, that returns a tensor, a tree of tensors, or
            ``Gradients``. It changes no tensor that existed before.
        in_axes: For each positional argument the axis that counts the examples, or None for one that is the same for all:
            an int or None for all of them, or a tuple with an entry for each, in which containers stand for an argument's own.
            The axis of a module is that of all its parameters and buffers.
        out_axes: Where the results have that axis: an int, or a tree of ints that begins as the result does. None for a result
            that is the same for all examples.

    Returns:
        The function of all examples.

    Raises:
        ShapeError: No argument has examples, their numbers differ, or the axes do not match the arguments.
        OutOfRangeError: A tensor has no such axis.
        StateChangedError: ``fn`` changes a tensor that existed before it.
        DataDependentError: ``fn`` needs the value of a tensor, of which there is one for each example.

    Example:
        >>> import firebrick as fb
        >>> distance = fb.vmap(lambda a, b: fb.sqrt(fb.sum((a - b) ** 2.0)), in_axes=(0, None))
        >>> distance(fb.asarray([[3.0, 4.0], [0.0, 1.0]]), fb.zeros(2)).tolist()
        [5.0, 1.0]
        >>> per_example = fb.vmap(fb.grad(lambda w, x: fb.sum(w * x) ** 2.0), in_axes=(None, 0))
        >>> per_example(fb.ones(2), fb.asarray([[1.0, 0.0], [1.0, 2.0]])).tolist()
        [[2.0, 0.0], [6.0, 12.0]]
    """
    if not callable(fn):
        raise OperandError(
            "vmap takes a function of one example",
            describe("fn", fn) if isinstance(fn, Tensor) else type(fn).__name__,
            "write fb.vmap(fn)(x)",
            op="vmap",
        )
    name = getattr(fn, "__name__", type(fn).__name__)

    @wraps(fn)
    def for_all(*args: P.args, **kwargs: P.kwargs) -> R:
        made = _Call(name, in_axes, out_axes)
        return all_or_none(lambda: made.run(fn, args, kwargs), made.restore)  # type: ignore[no-any-return]

    return for_all


def _is_module(v: Any) -> bool:
    return hasattr(v, "named_buffers") and hasattr(v, "named_parameters")


def _tensors_of(v: Any) -> list[tuple[str, Tensor]]:
    return [*v.named_parameters(), *v.named_buffers()]


class _Call:
    """One call: from arguments with an axis of examples to results with one."""

    def __init__(self, name: str, in_axes: Axes, out_axes: Axes) -> None:
        self.name, self.in_axes, self.out_axes = name, in_axes, out_axes
        self.sizes: list[tuple[str, Tensor, int]] = []
        self.shown: list[tuple[Tensor, tuple[Any, ...]]] = []  # tensors of modules, and what they showed before

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, spec = trees.flatten(args, is_leaf=_is_module)
        paths = [f"args{path}" for path, _ in trees.leaves_with_paths(args, _is_module)]
        axes = self._axes_of("in_axes", self.in_axes, args, "arguments")
        for path, leaf, axis in zip(paths, leaves, axes, strict=True):
            if axis is not None:
                self._count(path, leaf, axis)
        level = Level(self.name, EXAMPLES, self._size())
        level.began = new_id()
        token = enter(level)
        try:
            given = [
                leaf if axis is None else self._example(level, leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)
            ]
            with journaled() as journal:
                try:
                    made = self._results(level, fn(*trees.unflatten(spec, given), **kwargs))
                except BaseException:
                    journal.restore()  # no tensor of the caller shows that of one example
                    raise
            own = {id(leaf) for leaf, axis in zip(given, axes, strict=True) if axis is not None and isinstance(leaf, Tensor)}
            self._unchanged(level, journal, own)
            return made
        finally:
            self.restore()
            level.running = False
            leave(token)

    # arguments

    def _axes_of(self, where: str, axes: Axes, tree: Any, what: str) -> list[int | None]:
        """An axis for each leaf of a tree."""
        axes = python_scalar(axes)
        if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
            return [axes] * len(trees.flatten(tree, is_leaf=_is_module)[0])
        given = trees.children(axes)
        if given is None or isinstance(axes, (str, bytes)):
            raise OperandError(
                f"vmap: {where} holds ints, and None for what is the same for all examples", repr(axes)[:80], "pass e.g. 0",
                op="vmap",
            )  # fmt: skip
        held = None if _is_module(tree) else trees.children(tree)
        if held is None or [k for k, _ in held] != [k for k, _ in given]:
            entries = "a single value" if held is None else f"{len(held)} entries, {[k for k, _ in held]}"[:120]
            raise ShapeError(
                f"vmap: {where} has the structure of the {what}, or of their outer containers",
                f"{where} has {len(given)} entries, {[k for k, _ in given]}, and {what} {entries}"[:300],
                f"pass one int or None for each of the {what}, or a single one for all",
                op="vmap",
            )
        return [axis for (_, a), (_, part) in zip(given, held, strict=True) for axis in self._axes_of(where, a, part, what)]

    def _count(self, path: str, leaf: Any, axis: int) -> None:
        """Note the number of examples of an argument."""
        if isinstance(leaf, np.ndarray):
            raise not_a_tensor("vmap", path, leaf, None)
        tensors = [(path, leaf)] if isinstance(leaf, Tensor) else _tensors_of(leaf) if _is_module(leaf) else []
        for name, t in tensors:
            if not -t.ndim <= axis < t.ndim:
                raise OutOfRangeError(
                    f"vmap: in_axes gives axis {axis} for an argument of {self.name}, which has {t.ndim} axes",
                    describe(name, t),
                    "pass None in in_axes for an argument that is the same for all examples",
                    op="vmap",
                )
            self.sizes.append((name, t, t.shape[axis]))

    def _size(self) -> int:
        """How many examples there are."""
        sizes = {n for _, _, n in self.sizes}
        if len(sizes) == 1:
            return sizes.pop()
        if not sizes:
            raise ShapeError(
                f"vmap: an argument of {self.name} has an axis of examples",
                f"in_axes={self.in_axes!r}, and no tensor that has one",
                "pass a tensor of all examples, and its axis in in_axes",
                op="vmap",
            )
        first: dict[int, str] = {}
        for name, t, n in self.sizes:
            first.setdefault(n, f"{n} in {describe(name, t)}")
        raise ShapeError(
            f"vmap: all arguments of {self.name} have the same number of examples",
            ", ".join(first.values()),
            "check in_axes, and pass None there for what is the same for all examples",
            op="vmap",
        )

    def _example(self, level: Level, leaf: Any, axis: int) -> Any:
        """What the function gets for an argument with an axis of examples."""
        if isinstance(leaf, Tensor):
            return batched(level, _moved(own_handle(leaf), axis % leaf.ndim, 0), leaf.label)
        if _is_module(leaf):
            for _, t in _tensors_of(leaf):
                one = batched(level, _moved(own_handle(t), axis % t.ndim, 0))
                self.shown.append((t, (one.storage, t.storage, t.shape, t.node, t.slot)))
                t.storage, t.shape, t.node, t.slot = one.storage, one.shape, None, 0
            hooks.version += 1
        return leaf

    def restore(self) -> None:
        """Let tensors of modules show again what they showed before; also a second time."""
        for t, (own, storage, shape, node, slot) in reversed(self.shown):
            t.storage, t.shape, t.node, t.slot = storage, shape, node, slot
            correct(t, "storage", own, {"storage": storage, "shape": shape, "node": node, "slot": slot})
        if self.shown:
            hooks.version += 1

    # results

    def _results(self, level: Level, result: Any) -> Any:
        """The results of all examples, in handles of their own: a returned tensor that lives on is kept elsewhere."""
        leaves, spec = trees.flatten(result)
        axes = self._axes_of("out_axes", self.out_axes, result, "results")
        paths = [f"result{path}" for path, _ in trees.leaves_with_paths(result)]
        return trees.unflatten(spec, [self._result(level, p, leaf, a) for p, leaf, a in zip(paths, leaves, axes, strict=True)])

    def _result(self, level: Level, path: str, leaf: Any, axis: int | None) -> Any:
        if isinstance(leaf, Gradients):
            return leaf.mapped(lambda g: self._result(level, path, g, axis))
        if not isinstance(leaf, Tensor):
            if axis is None:
                return leaf
            raise OperandError(
                f"vmap: {self.name} returns tensors",
                f"{path}: {type(leaf).__name__} {leaf!r:.60}",
                "return tensors, or pass None in out_axes for a value that is the same for all examples",
                op="vmap",
            )
        data = leaf.storage.data
        own = type(data) is Batched and data.level is level
        if axis is None:
            if own and data.mapped:
                raise ShapeError(
                    f"vmap: out_axes is None for a result of {self.name} that differs between examples",
                    describe(path, leaf),
                    "pass the axis that it gets, e.g. 0",
                    op="vmap",
                )
            return own_handle(data.value if own else leaf)
        ndim = leaf.ndim + 1
        if not -ndim <= axis < ndim:
            raise OutOfRangeError(
                f"vmap: out_axes gives axis {axis} for a result of {self.name} that has {ndim} axes with that of the examples",
                describe(path, leaf),
                "pass e.g. 0",
                op="vmap",
            )
        made = own_handle(_moved(with_examples(level, leaf), 0, axis % ndim))
        made.label = leaf.label
        return made

    def _unchanged(self, level: Level, journal: Journal, own: set[int]) -> None:
        """Raise StateChangedError if a tensor that existed before the function, or that it keeps, was rebound, other than its
        ``own`` arguments, which nobody else has, and those that a computation of all examples changed. One that showed
        values of the level from the beginning was made by the function, and has none afterwards; the tape may hold it."""
        parts = {id(t) for t, _ in self.shown}
        for collected in (False, True):
            changed = [
                t
                for t, before in journal.rebound_from()
                if id(t) not in own
                and (id(t) in parts or not _of_level(before.data, level))
                and (id(t) not in level.outside or _of_level(t.storage.data, level))
            ]
            if not changed:
                return
            if not collected:
                changed = []
                gc.collect()  # tensors of the function in a cycle of references are not kept
        shown = describe(changed[0].label or "tensor", changed[0])
        journal.restore()
        raise StateChangedError(
            f"{self.name} changes a tensor that existed before it, which fb.vmap cannot do for each example by itself",
            shown + (f", and {len(changed) - 1} more" if len(changed) > 1 else ""),
            "return the new value; a layer that keeps running statistics works in evaluation mode, model.eval()",
        )


def _of_level(data: Any, level: Level) -> bool:
    return isinstance(data, Inner) and data.level is level


def _moved(x: Tensor, axis: int, to: int) -> Tensor:
    """``x`` with one axis at another position."""
    if axis == to:
        return x
    axes = [a for a in range(x.ndim) if a != axis]
    axes.insert(to, axis)
    moved: Tensor = permute(x, axes=tuple(axes))
    return moved
