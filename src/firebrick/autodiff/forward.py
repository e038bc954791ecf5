"""Forward mode: ``fb.jvp``, by the ``jvp`` rules of the op table, and ``fb.linearize``.

Inside ``fb.jvp`` a tensor that depends on the primals holds its value and its tangent (``core.duals``). An operation on it
runs on the values, and its rule on values and tangents; an op without a rule is recorded, and its gradient rule
differentiated once more (``autodiff.linear``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.autodiff.backward import check_cotangent, filled
from firebrick.autodiff.linear import Linear
from firebrick.autodiff.tape import constant_above, own_handle
from firebrick.autodiff.transforms import check_arguments, check_floating, check_primals
from firebrick.core import trees
from firebrick.core.autocast import NARROW
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.duals import Dual, box, dual
from firebrick.core.errors import GradientError
from firebrick.core.journal import all_or_none, journaled
from firebrick.core.levels import Kind, Level, enter, leave
from firebrick.core.op import Forward, Op
from firebrick.core.precision import narrowed, widened
from firebrick.core.tensor import Tensor


def taken_apart(t: Tensor, level: Level) -> tuple[Tensor, Tensor | None]:
    """The value and the tangent that a level has beneath a tensor."""
    data = t.storage.data
    return (data.value, data.tangent) if type(data) is Dual and data.level is level else (t, None)


def execute(
    level: Level, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...]
) -> tuple[Tensor, ...]:
    """The results of an operation, with their tangents."""
    values, tangents = zip(*(taken_apart(t, level) for t in inputs), strict=True)
    made = bind(op, values, params)
    results = made if isinstance(made, tuple) else (made,)
    found: Sequence[Tensor | None] = (None,) * len(results)
    if op.differentiable and level.depth > constant_above.get() and any(t is not None for t in tangents):
        found = _tangents(level, op, values, tangents, results, params)
    return tuple(dual(level, t, tangent) if t.dtype.is_inexact else t for t, tangent in zip(results, found, strict=True))


def _tangents(
    level: Level, op: Op, values: tuple[Tensor, ...], tangents: tuple[Tensor | None, ...], results: tuple[Tensor, ...],
    params: dict[str, Any],
) -> Sequence[Tensor | None]:  # fmt: skip
    """The tangents of the results. A rule of several steps computes half precision in float32 and rounds it once."""
    found: Any = None
    if op.jvp is not None:
        wide = op.widens and any(v.dtype in NARROW for v in values)
        given = (values, tangents, results)
        if wide:
            given = tuple(tuple(t if t is None else widened(t) for t in ts) for ts in given)  # type: ignore[assignment]

        def each(fn: Callable[..., Any]) -> Any:
            out = fn(*(dual(level, v, t) for v, t in zip(given[0], given[1], strict=True)), **params)
            several = tuple(taken_apart(t, level)[1] for t in (out if isinstance(out, tuple) else (out,)))
            return several if len(several) > 1 else several[0]

        found = op.jvp(Forward(op, given[0], given[1], given[2], params, wide, each))
        if wide and found is not None:
            rounded = found if isinstance(found, tuple) else (found,)
            found = tuple(narrowed(t, y.dtype) for t, y in zip(rounded, results, strict=True))
    if found is None:
        return _by_double_vjp(level, op, values, tangents, results, params)
    several = found if isinstance(found, tuple) else (found,)
    _check(op, several, results)
    return several


def _by_double_vjp(
    level: Level, op: Op, values: tuple[Tensor, ...], tangents: tuple[Tensor | None, ...], results: tuple[Tensor, ...],
    params: dict[str, Any],
) -> list[Tensor | None]:  # fmt: skip
    """The transpose of what the gradient rule computes."""
    places = [i for i, t in enumerate(tangents) if t is not None]

    def of_some(*some: Tensor) -> tuple[Tensor, ...]:
        operands = list(values)
        for i, t in zip(places, some, strict=True):
            operands[i] = t
        made = bind(op, tuple(operands), params)
        return made if isinstance(made, tuple) else (made,)

    token = enter(level.parent)  # the tape of this is beneath
    try:
        return Linear(of_some, [values[i] for i in places]).push([tangents[i] for i in places])
    finally:
        leave(token)


def _check(op: Op, tangents: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
    """Check what a rule returned."""
    if len(tangents) != len(results):
        raise GradientError(
            f"the jvp rule of {op.shown} returns a tangent, or None, for each of {len(results)} results",
            str(len(tangents)), "return a tuple of as many", op=op.shown,
        )  # fmt: skip
    for t, y in zip(tangents, results, strict=True):
        if t is not None and not isinstance(t, Tensor):
            raise GradientError(
                f"the jvp rule of {op.shown} returns tensors", type(t).__name__, "return a tangent or None", op=op.shown
            )
        if t is not None and y.dtype.is_inexact and (t.shape, t.dtype) != (y.shape, y.dtype):
            raise GradientError(
                f"the jvp rule of {op.shown} must return {y.aval}", str(t.aval), "keep shape and dtype of the result",
                op=op.shown,
            )  # fmt: skip


DIRECTIONS = Kind(execute, box)


# the public verbs


def _pairs(name: str, primals: Any, tangents: Any) -> tuple[list[Tensor], list[Tensor], Any]:
    """Primals and tangents as lists, checked."""
    given, spec = trees.flatten(tuple(primals))
    along, other = trees.flatten(tuple(tangents))
    if len(given) != len(along):
        raise GradientError(f"{name} needs one tangent for each primal", f"{len(given)} and {len(along)}", "add one")
    if spec != other:
        raise GradientError(
            f"{name}: tangents are in the containers that the primals are in",
            f"primals {trees.shown(tuple(primals))}, tangents {trees.shown(tuple(tangents))}",
            "pass one tangent for each argument of the function, as a tree of the same structure",
        )
    for (path, p), t in zip(trees.leaves_with_paths(tuple(primals)), along, strict=True):
        check_floating(f"primals{path}", p)
        check_cotangent(p, t, (f"primals{path}", f"tangents{path}"))
    return given, along, spec


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """``fn(*primals)`` and its derivative in the direction ``tangents``, computed together in forward mode.

    Each operation computes its tangent by a rule of its own, so this takes about as much as two calls of ``fn`` and keeps no
    values for a backward pass. Inside ``fn`` tensors have their values.

    Args:
        fn: Function of tensors, or trees of them, that returns a tensor or a tree of tensors.
        primals: Where to take the derivative: a tuple with an entry for each argument.
        tangents: Its direction: a tuple of tensors of the shapes and dtypes of ``primals``.

    Returns:
        What ``fn`` returns, and its derivative in the same structure.

    Raises:
        GradientError: A primal has no tangent, or ``fn`` returns something else than tensors.
        OperandError: Primals or tangents are one tensor, no tuple.

    Example:
        >>> import firebrick as fb
        >>> y, dy = fb.jvp(lambda x: x * x, (fb.asarray(3.0),), (fb.asarray(1.0),))
        >>> y.item(), dy.item()
        (9.0, 6.0)
    """
    for what, values in (("primals", primals), ("tangents", tangents)):
        check_arguments("jvp", what, values, "write fb.jvp(fn, (x,), (dx,)) for a function of one argument")
    check_primals("jvp", tuple(primals))
    given, along, spec = _pairs("jvp", primals, tangents)
    return all_or_none(lambda: _jvp(fn, given, along, spec))


def _jvp(fn: Callable[..., Any], given: list[Tensor], along: list[Tensor], spec: Any) -> tuple[Any, Any]:
    level = Level(getattr(fn, "__name__", type(fn).__name__), DIRECTIONS)
    token = enter(level)
    try:
        arguments = [dual(level, own_handle(p), own_handle(t), p.label) for p, t in zip(given, along, strict=True)]
        with journaled() as journal:
            try:
                result = fn(*trees.unflatten(spec, arguments))
                leaves, structure = trees.flatten(result)
                for (path, _), t in zip(trees.leaves_with_paths(result), leaves, strict=True):
                    if not isinstance(t, Tensor):
                        received = f"result{path}: {type(t).__name__}"
                        raise GradientError("a function to differentiate returns tensors", received, "return tensors only")
                pairs = [taken_apart(t, level) for t in leaves]  # before what was changed in place loses its tangents
            finally:
                for t in journal.rebound():  # state keeps values, without tangents
                    _show_value(t, level)
    finally:
        level.running = False
        leave(token)
    values = [own_handle(v) for v, _ in pairs]
    directions = [filled(0.0, v._another()) if t is None else own_handle(t) for v, t in pairs]
    return trees.unflatten(structure, values), trees.unflatten(structure, directions)


def _show_value(t: Tensor, level: Level) -> None:
    data = t.storage.data
    if type(data) is Dual and data.level is level:
        t.storage, t.node, t.slot = data.value.storage, data.value.node, data.value.slot


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``fn(*primals)``, and the linear function from tangents of the primals to the tangent of the result.

    ``fn`` runs once, and so does its backward pass; each call of the linear function then takes about as much as ``fn``. For
    one direction, ``fb.jvp`` takes less.

    Args:
        fn: Function of tensors, or trees of them, that returns a tensor or a tree of tensors.
        *primals: Where to take the derivative.

    Returns:
        What ``fn`` returns, and a function of tangents, in the structure of ``primals``.

    Raises:
        GradientError: ``fn`` returns something else than tensors; the linear function, called with other tangents.

    Example:
        >>> import firebrick as fb
        >>> y, push = fb.linearize(lambda x: x**3.0, fb.asarray(2.0))
        >>> y.item(), push(fb.asarray(1.0)).item(), push(fb.asarray(0.5)).item()
        (8.0, 12.0, 6.0)
    """
    given, spec = trees.flatten(primals)
    check_primals("linearize", primals)
    at = all_or_none(lambda: Linear(lambda *leaves: fn(*trees.unflatten(spec, list(leaves))), given))

    def push(*tangents: Any) -> Any:
        _, along, _ = _pairs("linearize", primals, tangents)
        found = at.push(along)
        return trees.unflatten(
            at.spec, [filled(0.0, y._another()) if t is None else t for t, y in zip(found, at.results, strict=True)]
        )

    return trees.unflatten(at.spec, at.results), push
