"""Operations on tensors of one example of ``fb.vmap``: they run for all examples, by the ``batch`` rules of the op table.

``execute`` is called by ``bind`` in place of an engine. It takes the tensors of all examples out of the operands, runs the
rule, and puts its results back. The rule's ops go through ``bind`` again, where they meet the next level, the tape of what is
outside, a trace or an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.batched import Batched, batched, box, values_of_all
from firebrick.core.bind import bind
from firebrick.core.config import config
from firebrick.core.constants import constant
from firebrick.core.errors import FallbackWarning, OperandError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import Kind, Level
from firebrick.core.lines import warn
from firebrick.core.op import Batching, Op
from firebrick.core.tensor import Tensor
from firebrick.ops import OPS
from firebrick.ops.movement import broadcast_to, concat, reshape, split

_announced: set[str] = set()


def execute(
    level: Level, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...]
) -> tuple[Tensor, ...]:
    """The results of an operation for one example."""
    values, mapped = zip(*(taken(t, level) for t in inputs), strict=True)
    if not any(mapped):
        made = bind(op, values, params)
        return tuple(box(level, t) for t in (made if isinstance(made, tuple) else (made,)))
    shapes = tuple(t.shape for t in inputs)
    b = Batching(op, level.size, values, mapped, shapes, params, lambda fn: _each(level, fn, values, mapped, params))
    found = op.batch(b) if op.batch is not None else None
    if found is None:
        found = in_a_loop(b, avals)
    results = found if isinstance(found, tuple) else (found,)
    _check(op, level, results, avals)
    return tuple(batched(level, t) for t in results)


def taken(t: Tensor, level: Level) -> tuple[Tensor, bool]:
    """What a level has beneath an operand, and whether it has one value for each example."""
    data = t.storage.data
    return (data.value, data.mapped) if type(data) is Batched and data.level is level else (t, False)


def _each(
    level: Level, fn: Callable[..., Any], values: tuple[Tensor, ...], mapped: tuple[bool, ...], params: dict[str, Any]
) -> Any:
    """``fn`` of the operands of one example, and its results with the examples as first axis."""
    made = fn(*(batched(level, v) if m else box(level, v) for v, m in zip(values, mapped, strict=True)), **params)
    several = tuple(with_examples(level, t) for t in (made if isinstance(made, tuple) else (made,)))
    return several if isinstance(made, tuple) else several[0]


def with_examples(level: Level, t: Tensor) -> Tensor:
    """A tensor of one example with the examples as first axis; repeated if it is the same for all."""
    value, mapped = taken(t, level)
    if mapped:
        return value
    found: Tensor = broadcast_to(value, shape=(level.size, *value.shape))
    return found


def of_all_examples(flag: Tensor) -> Tensor:
    """Whether a bool holds for all examples of the levels that run here."""
    data = flag.storage.data
    while type(data) is Batched and data.level.trace is hooks.trace():
        flag = bind(OPS["all"], (data.value,), {"axes": (0,), "keepdims": False}) if data.mapped else data.value
        data = flag.storage.data
    return flag


def any_example(flag: Tensor) -> bool:
    """Whether a bool holds for one example at least, of all levels."""
    flag = values_of_all(flag)
    return bool(bind(OPS["any"], (flag,), {"axes": tuple(range(flag.ndim)), "keepdims": False}))


def _check(op: Op, level: Level, results: tuple[Any, ...], avals: tuple[Aval, ...]) -> None:
    """Check what a batch rule returned."""
    wanted = tuple(Aval((level.size, *a.shape), a.dtype) for a in avals)
    for t in results:
        if not isinstance(t, Tensor):
            raise OperandError(
                f"the batch rule of {op.shown} returns tensors", type(t).__name__, "return one for each result", op=op.shown
            )
    if tuple(t.aval for t in results) != wanted:
        raise ShapeError(
            f"the batch rule of {op.shown} must return {', '.join(map(str, wanted))}",
            ", ".join(str(t.aval) for t in results),
            "put the examples first in the result, and keep its dtype",
            op=op.shown,
        )


def in_a_loop(b: Batching, avals: tuple[Aval, ...]) -> tuple[Tensor, ...]:
    """The operation once for each example, with a warning."""
    if config.fallback == "error":
        raise UnsupportedError(
            f"{b.op.shown} has no batch rule for these operands, and would run in a loop over the examples of fb.vmap",
            ", ".join(f"{s}{' for each example' if m else ''}" for s, m in zip(b.shapes, b.mapped, strict=True)),
            'allow the loop with fb.config.fallback = "warn"',
            op=b.op.shown,
        )
    if b.op.name not in _announced and config.fallback == "warn":
        _announced.add(b.op.name)
        warn(
            f"{b.op.shown} has no batch rule for these operands and runs in a loop over the {b.size} examples of fb.vmap; "
            'docs/ops.md lists the rules, fb.config.fallback = "error" forbids loops',
            FallbackWarning,
        )
    device = b.operands[0].device
    if not b.size:
        return tuple(broadcast_to(constant(0, a.dtype, device), shape=(0, *a.shape)) for a in avals)
    columns = [_rows(x) if m else [x] * b.size for x, m in zip(b.operands, b.mapped, strict=True)]
    rows: list[tuple[Tensor, ...]] = []
    for operands in zip(*columns, strict=True):
        made = bind(b.op, operands, b.params)
        rows.append(made if isinstance(made, tuple) else (made,))
    return tuple(_joined(column) for column in zip(*rows, strict=True))


def _rows(x: Tensor) -> list[Tensor]:
    parts = split(x, sizes=(1,) * x.shape[0], axis=0)
    return [reshape(p, shape=x.shape[1:]) for p in parts]


def _joined(column: tuple[Tensor, ...]) -> Tensor:
    joined: Tensor = concat(*(reshape(t, shape=(1, *t.shape)) for t in column), axis=0)
    return joined


EXAMPLES = Kind(execute, box)
