"""Specifications that differ from a given one in a single number, name or switch: ``changes`` walks through all fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from firebrick.compiler.spec.convolution import DIRECTIONS
from firebrick.compiler.spec.nest import Fold, Map, Nest, Row
from firebrick.core.views import Digit, View
from firebrick.scalar.expr import FLOATS, Expr, const, node, walk

NAMES: tuple[tuple[str, ...], ...] = (
    ("float32", "int32"),
    ("int32", "float32"),
    ("float64", "float32", "int64"),
    ("int64", "float64", "int32"),
    ("float16", "bfloat16"),
    ("bfloat16", "float16"),
    ("complex64", "float32"),
    ("bool", "uint8"),
    ("sum", "prod", "max"),
    ("max", "min", "mean"),
    ("min", "max"),
    ("mean", "max"),
    ("prod", "sum"),
    ("add", "set", "mul"),
    ("set", "add"),
    ("mul", "add"),
)
"""A name, and what it is changed to: names of dtypes and of ways to combine elements."""
CHANGED = {name: others for name, *others in NAMES} | {d: [o for o in DIRECTIONS if o != d] for d in DIRECTIONS}
REDUCED = {"sum": "max", "max": "min", "min": "max", "prod": "sum"}

Path = tuple[str, ...]


def changes(spec: Any) -> Iterator[tuple[str, Any]]:
    """Each specification that differs in one place, with the path of that place."""
    for path, changed in _changes(spec):
        yield ".".join(path), changed
    if isinstance(spec, Nest):
        for kind in (Map, Row, Fold):
            if kind is not type(spec):
                yield f"as {kind.__name__}", kind(spec.domain, spec.reduced, spec.operands, spec.results, spec.sites)


def _changes(x: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(x, View):
        yield from _views(x)
    elif isinstance(x, Expr):
        yield from _expressions(x)
    elif is_dataclass(x) and not isinstance(x, type):
        for f in fields(x):
            for path, changed in _changes(getattr(x, f.name)):
                yield (f.name, *path), _with(x, f.name, changed)
    elif isinstance(x, tuple):
        for i, y in enumerate(x):
            for path, changed in _changes(y):
                yield (str(i), *path), (*x[:i], changed, *x[i + 1 :])
        if x:
            yield ("less",), x[:-1]
            yield ("more",), (*x, x[-1])
        if len(set(x)) > 1:
            yield ("exchanged",), (x[1], x[0], *x[2:]) if x[0] != x[1] else (*x[:-2], x[-1], x[-2])
    else:
        for changed in _values(x):
            yield (), changed


def _with(x: Any, name: str, value: Any) -> Any:
    return replace(x, **{name: value})


def _values(x: Any) -> Iterator[Any]:
    if isinstance(x, bool):
        yield not x
    elif isinstance(x, int):
        yield x + 1
        if x > 0:
            yield x - 1
    elif isinstance(x, float):
        yield x * 2.0 if x else 1.0
        yield -x
    elif isinstance(x, str):
        yield from CHANGED.get(x, [f"{x}?"])
    elif x is None:
        yield 1
    else:
        raise TypeError(f"a specification holds a {type(x).__name__}")


def _views(x: View) -> Iterator[tuple[Path, View]]:
    for a, axis in enumerate(x.axes):
        for d, (size, stride) in enumerate(axis):
            others = {(size + 1, stride), (size, stride + 1), (size, -stride), (size, 0), (size, stride or 1)}
            for other in sorted(others - {(size, stride)}):
                changed = (*axis[:d], Digit(*other), *axis[d + 1 :])
                how = f"axis {a}", f"digit {other} for {(size, stride)}"
                yield how, View((*x.axes[:a], changed, *x.axes[a + 1 :]), x.offset)
    for a in range(len(x.axes) - 1):
        if x.axes[a] != x.axes[a + 1] and [d.size for d in x.axes[a]] == [d.size for d in x.axes[a + 1]]:
            turned = (*x.axes[:a], x.axes[a + 1], x.axes[a], *x.axes[a + 2 :])
            yield (f"axes {a} and {a + 1} exchanged",), View(turned, x.offset)
    yield ("offset",), View(x.axes, x.offset + 1)


def _expressions(root: Expr) -> Iterator[tuple[Path, Expr]]:
    """One node changed: another operand, another constant, another axis, another reduction, operands exchanged, left out."""
    loads = sorted({int(e.value or 0) for e in walk([root]) if e.op == "load"})
    for number, e in enumerate(walk([root])):
        for how, other in _nodes(e, loads):
            yield (f"node {number}, {how}",), _replaced(root, e, other)


def _nodes(e: Expr, loads: list[int]) -> Iterator[tuple[str, Expr]]:
    if e.op == "load":
        yield from (("another operand", node("load", e.dtype, (), k)) for k in loads if k != e.value)
    elif e.op == "const":
        value = not e.value if isinstance(e.value, bool) else (e.value or 0) + 1
        yield "another number", const(value, e.dtype)
    elif e.op == "reduce" and e.value in REDUCED:
        yield "another reduction", node("reduce", e.dtype, e.args, REDUCED[str(e.value)])
    elif len(e.args) == 2 and e.args[0] is not e.args[1] and e.args[0].dtype == e.args[1].dtype:
        yield "operands exchanged", node(e.op, e.dtype, e.args[::-1], e.value)
    for i, a in enumerate(e.args):
        if a.dtype == e.dtype and e.op != "gather":
            yield f"only operand {i}", a
    if e.dtype in FLOATS:
        yield "negated", node("neg", e.dtype, (e,))


def _replaced(root: Expr, old: Expr, new: Expr) -> Expr:
    done: dict[Expr, Expr] = {}
    for e in walk([root]):
        args = tuple(done[a] for a in e.args)
        done[e] = new if e is old else (e if args == e.args else node(e.op, e.dtype, args, e.value))
    return done[root]
