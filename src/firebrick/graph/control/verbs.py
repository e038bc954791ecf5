"""``cond``, ``while_loop`` and ``scan``: branches and loops that read values, with one meaning inside graphs and outside.

Outside of a trace they are Python: an ``if``, a ``while``, a ``for``. Inside, each branch and body is traced once, into a graph
of its own, and a node of the enclosing graph runs it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from firebrick.autodiff.batching import any_example, of_all_examples
from firebrick.autodiff.residuals import save
from firebrick.autodiff.tape import no_grad, note_choice, own_handle, region
from firebrick.core import trees
from firebrick.core.aval import Aval
from firebrick.core.batched import Batched
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.dtypes import bool_, python_scalar
from firebrick.core.errors import DataDependentError, DTypeError, OperandError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import all_or_none, undone
from firebrick.core.levels import readable
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import Body, Eager, body, share
from firebrick.graph.control.gradients import bind_scan
from firebrick.graph.control.ops import cond_ as COND
from firebrick.graph.control.ops import while_loop_ as WHILE
from firebrick.graph.trace import Check, Trace, current
from firebrick.ops import OPS

R = TypeVar("R")  # the result of a branch
C = TypeVar("C")  # the carry of a loop
Y = TypeVar("Y")  # the result of a step


def cond(pred: Any, true_fn: Callable[..., R], false_fn: Callable[..., R], *operands: Any) -> R:
    """``true_fn(*operands)`` if ``pred`` holds, else ``false_fn(*operands)``; only that one is executed.

    Under ``jit`` both are traced, and the graph chooses at each run. They may use any captured values, and gradients flow
    to these; they change no tensor that existed before, and draw no random numbers. ``fb.where`` chooses elementwise.

    Args:
        pred: Bool tensor of shape (), or a Python bool, by which the branch is chosen immediately.
        true_fn: Function of ``operands``.
        false_fn: Function of ``operands``; under ``jit``, of the same structure, shapes and dtypes.
        *operands: Arguments of the functions.

    Returns:
        The function's result: a tensor, or a tree of tensors.

    Raises:
        DTypeError: ``pred`` is no bool, or the branches' results differ in dtype.
        ShapeError: ``pred`` has another shape, or the branches' results differ in structure or shape.

    Example:
        >>> import firebrick as fb
        >>> @fb.jit
        ... def f(x):
        ...     return fb.cond(fb.sum(x) > 0.0, lambda: x * 2.0, lambda: -x)
        >>> f(fb.ones(2)).tolist(), f(-fb.ones(2)).tolist()
        ([2.0, 2.0], [1.0, 1.0])
    """
    pred = python_scalar(pred)
    if not isinstance(pred, bool):
        _check_pred("cond: pred", pred)
    trace = current.get()
    if not isinstance(pred, bool) and trace is None and _differs(pred):
        try:
            branches = _branches(pred, true_fn, false_fn, operands, Eager)
        except (UnsupportedError, DataDependentError):  # of draws and reads, which a graph cannot have
            return all_or_none(lambda: _chosen(pred, true_fn, false_fn, operands))
        return _bound_cond(pred, *branches)  # type: ignore[no-any-return]
    if trace is None or isinstance(pred, bool):
        if not isinstance(pred, bool):
            note_choice()
        fn = true_fn if pred else false_fn
        return all_or_none(lambda: _owned(fn(*_copies(operands, own_handle))))  # type: ignore[no-any-return]
    return _bound_cond(pred, *_branches(pred, true_fn, false_fn, operands, Body))  # type: ignore[no-any-return]


def _differs(pred: Tensor) -> bool:
    """Whether the examples of ``vmap`` have different values."""
    return type(readable(pred).storage.data) is Batched


def _chosen(pred: Tensor, true_fn: Callable[..., R], false_fn: Callable[..., R], operands: tuple[Any, ...]) -> R:
    """Both branches, and a selection."""
    result = _Tree("cond: the result of true_fn", _owned(true_fn(*_copies(operands, own_handle))))
    other = _owned(false_fn(*_copies(operands, own_handle)))
    others = result.same("cond: both branches return", other, "the result of true_fn", "the result of false_fn")
    chosen: R = result.build([bind(OPS["where"], (pred, a, b), {}) for a, b in zip(result.leaves, others, strict=True)])
    return chosen


def _branches(
    pred: Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: tuple[Any, ...], kind: type[Body]
) -> tuple[_Tree, list[Body]]:
    """The traces of both branches, and their result."""
    trace = current.get()
    device = pred.device if trace is None else trace.device or pred.device
    bodies, found = [], []
    for fn, which in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        with body(f"{which} of fb.cond", device, kind=kind) as b:
            found.append(_Tree(f"cond: the result of {which}", fn(*_copies(operands, b.own))))
            bodies.append(b)
    result = found[0]
    result.same("cond: both branches return", found[1].tree, "the result of true_fn", "the result of false_fn")
    for b, tree in zip(bodies, found, strict=True):  # what the other branch checks holds in this one
        holding = b.constant(np.asarray(True), device)
        b.finish([*tree.leaves, *(b.handle(c.number, device) if o is b else holding for o in bodies for c in o.checks)])
    share(bodies)
    return result, bodies


def _bound_cond(pred: Tensor, result: _Tree, bodies: Sequence[Body]) -> Any:
    """``cond`` as one operation: in a trace, and outside of one where the examples of ``vmap`` choose each by itself."""
    checks = [c for b in bodies for c in b.checks]
    if not (result.leaves or checks):
        return result.tree
    branches = tuple(b.made() for b in bodies)
    made = bind(COND, (pred, *bodies[0].operands()), {"branches": branches})
    _look(current.get(), checks, made[len(result.leaves) :])
    return result.build(made[: len(result.leaves)])


def while_loop(cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], C], init: Any) -> C:
    """``body_fn`` applied to ``init`` repeatedly, as long as ``cond_fn`` of its result is true.

    Under ``jit`` both are traced once, and the graph loops; the number of steps is known at each run only. Derivatives
    of any order are taken by running the loop once more and keeping its carries, or in forward mode with the loop; for many
    steps of large carries use ``fb.scan``, whose length is known.

    Args:
        cond_fn: From the carry to a bool tensor of shape ().
        body_fn: From the carry to the next one, of the same structure, shapes and dtypes.
        init: The first carry: a tensor or a tree of tensors.

    Returns:
        The last carry.

    Raises:
        DTypeError: A part of the carry changes its dtype, or ``cond_fn`` returns no bool.
        ShapeError: The carry changes its structure or a shape, or ``cond_fn`` returns no scalar.

    Example:
        >>> import firebrick as fb
        >>> fb.while_loop(lambda x: x < 100.0, lambda x: x * 3.0, fb.asarray(1.0)).item()
        243.0
    """
    carry = _Tree("while_loop: init", init)
    trace = current.get()
    if trace is None:
        return all_or_none(lambda: _looped(cond_fn, body_fn, carry))  # type: ignore[no-any-return]
    if not carry.leaves:
        raise OperandError("while_loop: init holds at least one tensor", repr(init), "put changing tensors into the carry")
    pred = _staged_pred(cond_fn(carry.again()), trace, trace.device or carry.leaves[0].device)
    return _bound_while(carry, pred, *_step(cond_fn, body_fn, carry, Body))  # type: ignore[no-any-return]


def _looped(cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], carry: _Tree) -> Any:
    """``while_loop`` outside of a trace."""
    now = carry.again()
    note_choice()  # of how many steps there are
    going: Tensor | None = None  # under ``vmap``: which examples go on
    while True:
        pred = _pred(cond_fn(_owned(now)))
        if not isinstance(pred, bool) and _differs(pred):
            if going is None and carry.leaves:
                start = _Tree("while_loop: init", now)
                try:
                    step = _step(cond_fn, body_fn, start, Eager)
                except (UnsupportedError, DataDependentError):  # of draws and reads, which a graph cannot have
                    pass
                else:
                    return _bound_while(start, pred, *step)
            going = pred if going is None else bind(OPS["logical_and"], (going, pred), {})
            pred = any_example(going)
        if not pred:
            return now
        after = carry.same("while_loop: the carry keeps", body_fn(now if going is None else _owned(now)))
        if going is not None:
            after = [bind(OPS["where"], (going, a, b), {}) for a, b in zip(after, trees.flatten(now)[0], strict=True)]
        now = _owned(carry.build(after))


def _step(cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], carry: _Tree, kind: type[Body]) -> tuple[Body, int]:
    """The trace of a step of ``while_loop``, and the number of its checks."""
    device = _home(carry)
    with body("the body of fb.while_loop", device, kind=kind) as b:
        after = carry.same("while_loop: the carry keeps", body_fn(carry.build([b.input(t, "carry") for t in carry.leaves])))
        more = _staged_pred(cond_fn(carry.build(list(map(own_handle, after)))), b, device)
        flags = []
        for c in list(b.checks):  # a step that fails a check is the last one
            ok = b.handle(c.number, device)
            flags.append(bind(OPS["logical_and"], (b.fresh(Aval((), bool_), "carry", device), ok), {}))
            more = bind(OPS["logical_and"], (more, ok), {})
        b.finish([more, *after, *flags])
    return b, len(flags)


def _home(carry: _Tree) -> Device:
    """The device of a loop."""
    trace = current.get()
    found: Device = (None if trace is None else trace.device) or carry.leaves[0].device
    return found


def _bound_while(carry: _Tree, pred: Tensor, b: Body, checks: int) -> Any:
    """``while_loop`` as one operation: in a trace, and outside of one where the examples of ``vmap`` end each by itself."""
    trace, device = current.get(), _home(carry)
    graph, consts = b.made(), b.operands()
    true = np.asarray(True)
    holding = [hooks.from_host(true, device) if trace is None else trace.constant(true, device) for _ in range(checks)]
    made = bind(WHILE, (*consts, pred, *carry.leaves, *holding), {"body": graph, "consts": len(consts)})
    _look(trace, b.checks, made[len(carry.leaves) :])
    return carry.build(made[: len(carry.leaves)])


def scan(
    fn: Callable[[Any, Any], tuple[C, Y]], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[C, Y]:
    """A loop over sequences: ``carry, y = fn(carry, x)`` for each element; the last carry, and the ys as sequences.

    Under ``jit`` ``fn`` is traced once, so the graph is as small for a thousand steps as for one. In the backward pass each
    step runs again from the carry before it, the only value that is kept. Random draws in ``fn`` are those of the plain loop.

    Args:
        fn: From the carry and an element to the next carry, of the same structure, shapes and dtypes, and a result.
        init: The first carry: a tensor, a tree of tensors, or None.
        xs: Tensors whose first axis is the sequence, as one tensor or a tree; None for steps without elements.
        length: How many steps; needed only without ``xs``.
        reverse: Whether to go from the last element to the first; results are in the order of their elements.

    Returns:
        The last carry, and the results with the sequence as first axis.

    Raises:
        DTypeError: A part of the carry changes its dtype, or results of two steps differ in it.
        ShapeError: The carry changes its structure or a shape, or the sequences differ in length.

    Example:
        >>> import firebrick as fb
        >>> total, sums = fb.scan(lambda c, x: (c + x, c + x), fb.asarray(0.0), fb.asarray([1.0, 2.0, 3.0]))
        >>> total.item(), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])
    """
    carry, elements = _Tree("scan: init", init), _Tree("scan: xs", xs)
    steps = _length(elements, length)
    trace = current.get()
    if trace is not None:
        return _traced_scan(trace, fn, carry, elements, steps, reverse)
    return all_or_none(lambda: _scanned(fn, carry, elements, steps, reverse))


# inside a trace


def _traced_scan(
    trace: Trace, fn: Callable[[Any, Any], Any], carry: _Tree, elements: _Tree, length: int, reverse: bool
) -> tuple[Any, Any]:
    leaves = [*carry.leaves, *elements.leaves]
    device = trace.device or (leaves[0].device if leaves else hooks.find_device(None))
    with body("the body of fb.scan", device, length) as b:
        start = carry.build([b.input(t, "carry") for t in carry.leaves])
        element = elements.build([b.fresh(Aval(t.shape[1:], t.dtype), "x", t.device, t.label) for t in elements.leaves])
        now, y = _pair(fn(start, element))
        after = carry.same("scan: the carry keeps", now)
        result = _Tree(_RESULT, y)
        b.finish([*after, *result.leaves, *(b.handle(c.number, device) for c in b.checks)])
    if not b.sources:  # an operation has an operand
        b.outer[0, 0, 0, 0] = b.take(trace.constant(np.asarray(True), device))
    graph, consts = b.made(), b.operands()
    made = bind_scan(
        graph, consts, carry.leaves, [*elements.leaves, *_keys(trace, b, length, reverse, device)], length, reverse
    )
    ends = len(carry.leaves)
    results = ends + len(result.leaves)
    _look(trace, b.checks, [bind(OPS["all"], (f,), {"axes": (0,), "keepdims": False}) for f in made[results:]])
    return carry.build(made[:ends]), result.build(made[ends:results])


def _look(trace: Trace | None, checks: Sequence[Check], flags: Sequence[Tensor]) -> None:
    """Let each run check the conditions of bodies; outside of a trace, check them now, for all examples."""
    for c, flag in zip(checks, flags, strict=True):
        if trace is not None:
            trace.check(flag, c.error)
        elif not of_all_examples(flag):
            raise c.error()


def _staged_pred(pred: Any, trace: Trace, device: Device) -> Tensor:
    """The result of a loop's condition as a value of the graph."""
    checked = _pred(pred)
    return trace.constant(np.asarray(checked), device) if isinstance(checked, bool) else checked


def _keys(trace: Trace, b: Body, length: int, reverse: bool, device: Device) -> list[Tensor]:
    """The keys of all steps, as sequences: those that a loop would have drawn, in its order."""
    whole: dict[int, Tensor] = {}
    for number, draws in b.draws.items():
        inside = region.get()
        if inside is not None:
            inside.note_generator(draws.generator)
        if length:
            keys = trace.keys(draws.generator, b.finders[number], device, length * draws.count)
        else:
            keys = trace.constant(np.zeros((0, 4), np.uint32), device)
        keys = bind(OPS["reshape"], (keys,), {"shape": (length, draws.count, 4)})
        whole[number] = bind(OPS["flip"], (keys,), {"axes": (0,)}) if reverse else keys
    out = []
    for generator, first, count in b.blocks:
        stop = first + (1 if count is None else count)
        part = {"starts": (0, first, 0), "stops": (length, stop, 4), "steps": (1, 1, 1)}
        shape = (length, 4) if count is None else (length, count, 4)
        out.append(bind(OPS["slice"], (whole[id(generator)],), part | {"shape": shape}))
    return out


# outside


def _scanned(fn: Callable[[Any, Any], Any], carry: _Tree, elements: _Tree, steps: int, reverse: bool) -> tuple[Any, Any]:
    """``scan`` outside of a trace."""
    if not steps:
        note_choice()
        with _probing():
            first = elements.build([_zeros(t.shape[1:], t) for t in elements.leaves])
            result = _Tree(_RESULT, _pair(fn(carry.again(), first))[1])
        return carry.again(), result.build([_zeros((0, *t.shape), t) for t in result.leaves])
    parts = [_elements(x) for x in elements.leaves]
    now = carry.again()
    results: list[list[Tensor]] = []
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        now, y = _pair(fn(now, elements.build([p[t] for p in parts])))
        carry.same("scan: the carry keeps", now)
        now, y = _owned(now), _owned(y)  # their values: the handles may be changed by later steps
        if not results:
            result = _Tree(_RESULT, y)
        results.append(result.same("scan: all steps return", y, "of the first step", "of a later one"))
    if reverse:
        results.reverse()
    return now, result.build([_stacked(column) for column in zip(*results, strict=True)])


class _Probe:
    """Marks a function that runs for its result's shapes only: its effects are undone, state is not updated, and draws
    repeat."""

    keep = staticmethod(save)
    repeats = True

    def __init__(self) -> None:
        self.states: dict[Any, int] = {}

    def note_generator(self, generator: Any) -> None:
        self.states.setdefault(generator, generator.place())


@contextmanager
def _probing() -> Iterator[None]:
    """For a ``with`` block, functions run only for the structure and shapes of their results."""
    probe = _Probe()
    token = region.set(probe)
    try:
        with no_grad(), undone():
            yield
    finally:
        region.reset(token)
        for generator, state in probe.states.items():
            generator.go_back(state)


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    made: Tensor = hooks.from_host(np.zeros(shape, like.dtype.np), like.device)
    return made


def _elements(x: Tensor) -> list[Tensor]:
    """The elements of a sequence; their gradients are joined in one operation."""
    parts = bind(OPS["split"], (x,), {"sizes": (1,) * x.shape[0], "axis": 0})
    return [bind(OPS["reshape"], (p,), {"shape": x.shape[1:]}) for p in parts]


def _stacked(column: Sequence[Tensor]) -> Tensor:
    rows = [bind(OPS["reshape"], (t,), {"shape": (1, *t.shape)}) for t in column]
    made: Tensor = bind(OPS["concat"], tuple(rows), {"axis": 0})
    return made


# arguments and results


class _Tree:
    """A tree of tensors whose structure, shapes and dtypes others must have."""

    def __init__(self, name: str, tree: Any) -> None:
        self.name, self.tree = name, tree
        self.leaves: list[Tensor]
        self.leaves, self.spec = trees.flatten(tree)
        for i, t in enumerate(self.leaves):
            if not isinstance(t, Tensor):
                where, _, what = name.partition(": ")
                raise not_a_tensor(where, what + trees.leaves_with_paths(tree)[i][0], t, None)

    def build(self, leaves: Sequence[Tensor]) -> Any:
        return trees.unflatten(self.spec, list(leaves))

    def again(self) -> Any:
        """The same values in other handles, which may be rebound."""
        return self.build([own_handle(t) for t in self.leaves])

    def same(self, rule: str, tree: Any, first: str = "before", second: str = "after") -> list[Tensor]:
        """The leaves of another tree, which has this one's structure, shapes and dtypes."""
        leaves, spec = trees.flatten(tree)
        if spec != self.spec:
            raise ShapeError(
                f"{rule} one structure",
                f"{first} {_structure(self.tree)}, {second} {_structure(tree)}",
                "return the same containers, with the same keys, each time",
            )
        for i, (a, b) in enumerate(zip(self.leaves, leaves, strict=True)):
            if isinstance(b, Tensor) and a.shape == b.shape and a.dtype is b.dtype:
                continue
            path = trees.leaves_with_paths(tree)[i][0]
            if not isinstance(b, Tensor):
                raise not_a_tensor(rule.partition(":")[0], f"{self.name.partition(': ')[2]}{path}", b, a.device.name)
            kind, what, remedy = (
                (DTypeError, "dtype", f"cast it: fb.astype(…, fb.{a.dtype.name}), or start from {b.dtype.name}")
                if a.dtype is not b.dtype
                else (ShapeError, "shape", "reshape it; return growing values as results of fb.scan, which stacks them")
            )
            leaf = f"leaf {path} " if path else ""
            raise kind(f"{rule} one {what}", f"{leaf}{first} {a.aval}, {second} {b.aval}", remedy)
        return leaves


_RESULT = "scan: the result of fn"


def _structure(tree: Any) -> str:
    return str(trees.tree_map(lambda t: _Shown(str(t.aval) if isinstance(t, Tensor) else type(t).__name__), tree))


class _Shown(str):
    """Text that shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _copies(values: tuple[Any, ...], copy: Callable[[Tensor], Tensor]) -> Any:
    """Arguments with other handles of the same tensors, which may be rebound; parameters and other subclasses of tensors stay
    themselves."""
    return trees.tree_map(lambda v: copy(v) if type(v) is Tensor else v, values)


def _owned(result: Any) -> Any:
    """What a function returned, in handles that nothing else changes, since a graph returns values too."""
    return trees.tree_map(lambda v: own_handle(v) if isinstance(v, Tensor) else v, result)


def _check_pred(name: str, pred: Any) -> None:
    if not isinstance(pred, Tensor):
        raise OperandError(f"{name} is a bool tensor of shape ()", f"{type(pred).__name__} {pred!r:.80}", "compare tensors")
    if pred.dtype is not bool_:
        raise DTypeError(f"{name} is a bool tensor of shape ()", describe("pred", pred), "compare it: pred != 0")
    if pred.shape != ():
        raise ShapeError(
            f"{name} is a bool tensor of shape ()", describe("pred", pred), "reduce it with fb.any or fb.all; fb.where chooses "
            "elementwise",
        )  # fmt: skip


def _pred(pred: Any) -> Any:
    """A loop's condition, checked."""
    pred = python_scalar(pred)
    if not isinstance(pred, bool):
        _check_pred("while_loop: the result of cond_fn", pred)
    return pred


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise OperandError("scan: fn returns a pair, the next carry and a result", got, "return carry, None for no result")
    return result


def _length(elements: _Tree, length: Any) -> int:
    """How many steps a scan takes."""
    sizes = set()
    for (path, _), t in zip(trees.leaves_with_paths(elements.tree), elements.leaves, strict=True):
        if not t.shape:
            raise ShapeError(
                "scan: the first axis of each of xs is the sequence", describe(f"xs{path}", t), "give it that axis"
            )
        sizes.add(t.shape[0])
    if length is not None:
        if isinstance(length, bool) or not hasattr(length, "__index__"):
            raise OperandError("scan: length is an int", f"{type(length).__name__} {length!r:.80}", "pass e.g. 10")
        sizes.add(operator.index(length))
    if len(sizes) == 1 and (found := sizes.pop()) >= 0:
        return found
    if not sizes and length is None:
        raise ShapeError("scan: the number of steps comes from xs or length", "neither", "pass length=")
    shown = ", ".join(
        [describe(f"xs{path}", t) for path, t in trees.leaves_with_paths(elements.tree)]
        + ([f"length = {length}"] if length is not None else [])
    )
    raise ShapeError("scan: all sequences, and length, have one size ≥ 0", shown, "cut or pad them")
