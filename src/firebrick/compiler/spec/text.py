"""Specifications as JSON, and as text for readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.serialize import from_json as kernel_from_json
from firebrick.compiler.kernel.serialize import to_json as kernel_to_json
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.base import Operand, Result
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.spec.copy import Copy, Piece
from firebrick.compiler.spec.custom import Custom, CustomResult, KernelSite
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.kinds import KernelSpec
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve
from firebrick.compiler.spec.nest import Fold, Map, Nest, Row
from firebrick.compiler.spec.parts import Bound, Factor, Part
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import Scatter
from firebrick.compiler.spec.search import Search
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.spec.window import Window, Windows
from firebrick.core.errors import KernelCompileError, OperandError
from firebrick.core.views import Digit, View
from firebrick.scalar.expr import Expr, node, walk

SPECS: dict[str, type] = {
    t.__name__: t
    for t in (
        Attention, Cholesky, Contract, Copy, Custom, Fold, Map, Prefix, Row, Scatter, Search, Sort, TriangularSolve, Window,
    )
}  # fmt: skip
"""The kinds of specifications, by name."""
PARTS: dict[str, type] = {
    t.__name__: t for t in (Bound, Convolution, CustomResult, Factor, KernelSite, Operand, Part, Piece, Result, Site, Windows)
}
"""The classes of their fields, by name."""


def to_json(spec: KernelSpec) -> str:
    """A specification as JSON; ``from_json`` gives an equal one.

    Example:
        >>> from firebrick.compiler.spec.copy import Copy, Piece
        >>> from firebrick.compiler.spec.text import from_json, to_json
        >>> from firebrick.core.views import row_major
        >>> x = row_major((3,))
        >>> spec = Copy(4, 3, (Piece(0, 0, x, x),))
        >>> from_json(to_json(spec)) == spec
        True
    """
    nodes: list[Any] = []
    numbers: dict[Expr, int] = {}
    tree = _encoded(spec, nodes, numbers)
    return json.dumps({"nodes": nodes, "spec": tree})


def _encoded(x: Any, nodes: list[Any], numbers: dict[Expr, int]) -> Any:
    if isinstance(x, View):
        return {"view": [[list(d) for d in axis] for axis in x.axes], "offset": x.offset}
    if isinstance(x, Expr):
        for e in walk([x]):
            if e not in numbers:
                numbers[e] = len(nodes)
                value = {"float": e.value.hex()} if isinstance(e.value, float) else e.value
                nodes.append([e.op, e.dtype, [numbers[a] for a in e.args], value])
        return {"expression": numbers[x]}
    if isinstance(x, Function):
        return {"kernel": json.loads(kernel_to_json(x))}
    if is_dataclass(x) and not isinstance(x, type):
        return {"type": type(x).__name__, **{f.name: _encoded(getattr(x, f.name), nodes, numbers) for f in fields(x)}}
    if isinstance(x, tuple):
        return [_encoded(y, nodes, numbers) for y in x]
    return {"float": x.hex()} if isinstance(x, float) else x


def from_json(text: str) -> KernelSpec:
    """The specification that ``to_json`` wrote.

    Raises:
        OperandError: The text is not that of a specification.
    """
    try:
        found = json.loads(text)
        nodes: list[Expr] = []
        for op, dtype, args, value in found["nodes"]:
            nodes.append(node(op, dtype, tuple(nodes[a] for a in args), _decoded(value, nodes)))
        made = _decoded(found["spec"], nodes)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, KernelCompileError) as e:
        raise OperandError(
            "the text is a specification written by to_json", f"{type(e).__name__}: {e}", "write it again"
        ) from e
    if type(made) not in SPECS.values():
        raise OperandError("the text is a specification written by to_json", type(made).__name__, "write it again")
    found_spec: KernelSpec = made
    return found_spec


def _decoded(x: Any, nodes: Sequence[Expr]) -> Any:
    if isinstance(x, list):
        return tuple([_decoded(y, nodes) for y in x])
    if not isinstance(x, dict):
        return x
    if "type" in x:
        return (SPECS.get(x["type"]) or PARTS[x["type"]])(**{k: _decoded(v, nodes) for k, v in x.items() if k != "type"})
    if "view" in x:
        return View(tuple(tuple(Digit(*d) for d in axis) for axis in x["view"]), x["offset"])
    if "kernel" in x:
        return kernel_from_json(json.dumps(x["kernel"]))
    if "expression" in x:
        return nodes[x["expression"]]
    return float.fromhex(x["float"])


def printed(spec: KernelSpec) -> str:
    """A specification as lines of text: its kind and sizes, what it reads and writes, expressions node by node.

    Example:
        >>> from firebrick.compiler.spec.base import Operand, Result
        >>> from firebrick.compiler.spec.nest import Map
        >>> from firebrick.compiler.spec.text import printed
        >>> from firebrick.core.views import row_major
        >>> from firebrick.scalar.expr import load
        >>> x = row_major((2, 3))
        >>> print(printed(Map((2, 3), (), (Operand(0, "float32", x),), (Result(load(0, "float32") * 2.0, "float32", x),))))
        Map over [2, 3]
          operand 0: input 0, float32, strides [3, 1]
          result 0: float32, strides [3, 1] = v1
            v0 = load[0]: float32
            v1 = mul v0, 2.0: float32
    """
    lines = [type(spec).__name__ + _head(spec)]
    if isinstance(spec, Contract):
        for part in spec.parts:
            lines.append(f"  C[{', '.join(map(str, part.domain))}] over k = {part.k}, {_view(part.result)}")
            if part.omits:
                lines.append("    products outside of bounds are omitted")
            for name, x in (("A", part.left), ("B", part.right)):
                bounds = f", {len(x.bounds)} bounds" if x.bounds else ""
                lines.append(f"    {name}: input {x.source}, {x.dtype}, {_view(x.view)}{bounds}")
    if isinstance(spec, (Nest, Contract)):
        first = int(isinstance(spec, Contract))
        for k, operand in enumerate(spec.operands, first):
            lines.append(f"  operand {k}: input {operand.source}, {operand.dtype}, {_view(operand.view)}")
        names: dict[Expr, str] = {}
        for k, r in enumerate(spec.results):
            body = _nodes(r.expression, names)
            summed = f", summed along {list(r.summed)}" if r.summed else ""
            lines.append(f"  result {k}: {r.dtype}, {_view(r.view)}{summed} = {names[r.expression]}")
            lines += [f"    {line}" for line in body]
    elif isinstance(spec, Copy):
        for p in spec.pieces:
            what = f"number {p.bits:#x}" if p.source is None else f"input {p.source}, {_view(p.read)}"
            lines.append(f"  {list(p.write.shape)} at {_view(p.write)} from {what}")
    elif isinstance(spec, Custom):
        lines += _kernel(spec)
    else:
        lines += [f"  {f.name}: {getattr(spec, f.name)}" for f in fields(spec)]
    if isinstance(spec, Nest):
        lines += [f"  check {k}: {f.op} into {f.size}" + (f", {f.line}" if f.line else "") for k, f in enumerate(spec.sites)]
    return "\n".join(lines)


def _head(spec: KernelSpec) -> str:
    if isinstance(spec, Nest):
        return f" over {list(spec.domain)}" + (f", reduced along {list(spec.reduced)}" if spec.reduced else "")
    if isinstance(spec, Custom):
        return f" over {list(spec.grid)}" + (f", groups of {spec.function.group}" if spec.function.group else "")
    return f" of {spec.itemsize}-byte elements" if isinstance(spec, Copy) else ""


def _kernel(spec: Custom) -> list[str]:
    """The lines of a kernel of the kernel language: its arrays, numbers, checks and statements."""
    names = {b: a.name for a, b in zip(spec.function.arrays, spec.buffers, strict=True)}
    lines = []
    for k, x in enumerate(spec.operands):
        name = f" {names[k]}" if k in names else ""
        lines.append(f"  operand {k}{name}: input {x.source}, {x.dtype}{list(x.view.shape)}, {_view(x.view)}")
    for k, r in enumerate(spec.results):
        before = f", before operand {r.copied}" if r.copied is not None else ""
        before += f", before {r.filled.value}" if r.filled is not None else ""
        name = names[len(spec.operands) + k]
        lines.append(f"  result {k} {name}: {r.dtype}{list(r.view.shape)}, {_view(r.view)}{before}")
    lines += [f"  size {name} = {number}" for name, number in spec.numbers.items()]
    for k, check in enumerate(spec.checks):
        what = f"axis {check.axis} of {check.array} has {check.size}" if check.array else check.message
        lines.append(f"  check {k}: {what}" + (f", {check.line}" if check.line else ""))
    return [*lines, *(f"  {line}" for line in str(spec.function).splitlines())]


def _view(view: View) -> str:
    offset = f" from {view.offset}" if view.offset else ""
    if view.strides is not None:
        return f"strides {list(view.strides)}{offset}"
    axes = " · ".join("(" + " ".join(f"{d.size}@{d.stride}" for d in axis) + ")" for axis in view.axes)
    return f"digits {axes}{offset}"


def _nodes(root: Expr, names: dict[Expr, str]) -> list[str]:
    lines = []
    for e in walk([root]):
        if e in names:
            continue
        if e.op == "const":
            names[e] = repr(e.value)
            continue
        names[e] = f"v{sum(n.startswith('v') for n in names.values())}"
        tag = "" if e.value is None else f"[{e.value}]"
        args = " " + ", ".join(names[a] for a in e.args) if e.args else ""
        lines.append(f"{names[e]} = {e.op}{tag}{args}: {e.dtype}")
    return lines
