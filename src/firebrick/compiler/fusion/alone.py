"""``doubt_single``: whether the specification of a node that has kernels of its own is what the node means.

What a copy moves is proved by addresses, as for groups. Of windows, attention and scatters, each number of the specification
is found again from the shapes and parameters of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.fusion.affine import Affine, affine, variable
from firebrick.compiler.kernel.language.annotations import size_name
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.base import Operand
from firebrick.compiler.spec.copy import Copy, Piece
from firebrick.compiler.spec.custom import Custom, CustomResult, KernelSite
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import FEW, Scatter
from firebrick.compiler.spec.search import Search
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.spec.window import Window, Windows
from firebrick.core.aval import Aval
from firebrick.core.dtypes import float32, float64
from firebrick.core.views import View, row_major, strided
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.index_maps import unflattened
from firebrick.scalar.expr import const
from firebrick.scalar.storage import computed

Address = Callable[[View, Sequence[Affine | int]], Affine]
Single = Copy | Window | Attention | Scatter | Prefix | Sort | Search | Cholesky | TriangularSolve | Custom


def doubt_single(body: Graph, spec: Single, address: Address) -> str:
    """Why a specification is not proved to be that of a group's last node; empty if it is.

    Args:
        body: The group: its last node, and numbers that it takes.
        spec: Its specification.
        address: The address of a view's element.
    """
    n, avals = body.nodes[-1], body.avals
    operands = [avals[v] for v in n.inputs]
    if isinstance(spec, Copy):
        return _copy(body, n, operands, spec, address)
    if any(v >= len(body.inputs) for v in n.inputs) and not isinstance(spec, Scatter):
        return f"{n.op.name} takes no numbers"
    if spec.sources != tuple(v for v in n.inputs if v < len(body.inputs)):
        return f"{n.op.name} reads its operands in another order"
    checks = CHECKS[type(spec)]
    wrong = [name for name, wanted in checks(body, n, operands).items() if not _equal(getattr(spec, name), wanted)]
    return f"{', '.join(wrong)} of {n.op.name} is another" if wrong else ""


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are the same; NaN is itself, and zeros have signs."""
    return a.hex() == b.hex() if isinstance(a, float) and isinstance(b, float) else bool(a == b)


def _number(body: Graph, v: int) -> Any:
    """The number of the program that a value is."""
    made_by = {u: m for m in body.nodes for u in m.results}
    while made_by[v].op is not CONSTANT:
        v = made_by[v].inputs[0]
    return made_by[v].params["value"].reshape(())


def _reals(x: Aval) -> Aval:
    """A complex array as its parts, next to each other."""
    parts = {"complex64": float32, "complex128": float64}
    return Aval((*x.shape, 2), parts[x.dtype.name]) if x.dtype.name in parts else x


def _attention(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    first = len(operands) - 4
    q, k, v, mask = (a.shape for a in operands[first:])
    return {
        "gradient": len(n.avals) == 3, "dtype": operands[0].dtype.name, "lead": q[:-2], "n": q[-2], "m": k[-2], "d": k[-1],
        "e": v[-1], "mask": mask, "scale": n.params["scale"], "causal": n.params["causal"],
    }  # fmt: skip


def _window(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    p = n.params
    gradient = "size" in p
    image, places = operands[0].shape, n.avals[0].shape
    if gradient:
        image, places = places, image
    rank = len(image) - 2

    def triple(axes: Sequence[int], missing: int) -> tuple[int, int, int]:
        z, y, x = (missing,) * (3 - rank) + tuple(axes)
        return z, y, x

    windows = Windows(
        image[0] * image[1], triple(image[2:], 1), triple(places[2:], 1), triple(p["kernel"], 1), triple(p["stride"], 1),
        triple([a for a, _ in p["padding"]], 0), triple(p.get("dilation", (1,) * rank), 1),
    )  # fmt: skip
    indices = len(n.avals) == 2 or len(operands) == 2
    return {
        "windows": windows, "fold": "max" if indices else "mean", "gradient": gradient, "dtype": operands[0].dtype.name,
        "index": operands[1].dtype.name if len(operands) == 2 else "",
    }  # fmt: skip


def _scatter(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    x, at = _reals(operands[0]), operands[1]
    axis, shape = n.params.get("axis", 0), x.shape
    assert n.op.facts is not None
    facts = n.op.facts(operands, n.avals, **n.params)
    site = None if n.op.indexes is None else Site(n.op.known_as or n.op.name, shape[axis], n.line or "")
    known = [v >= len(body.inputs) for v in n.inputs]
    moved = facts["fold"] == "set" and x.dtype.name in ("float16", "bfloat16") and not any(known)
    found: dict[str, Any] = {
        "outer": prod(shape[:axis]), "size": shape[axis], "inner": prod(shape[axis + 1 :]),
        "count": at.size if facts["slices"] else at.shape[axis], "dtype": "uint16" if moved else x.dtype.name,
        "index": at.dtype.name, "site": site, **facts,
    }  # fmt: skip
    dtype, adds = found["dtype"], facts["fold"] in ("add", "mul")
    wide = {"float16": "float32", "bfloat16": "float32", "float32": "float64" if found["count"] > FEW else "float32"}
    found["total"] = wide.get(dtype, dtype) if adds else dtype
    exact = np.float64 if x.dtype.is_floating else x.dtype.np
    found["start"] = _number(body, n.inputs[0]).astype(x.dtype.np).astype(exact).item() if known[0] else None
    found["update"] = _number(body, n.inputs[2]).astype(computed(found["total"])).item() if known[2] else None
    return found


def _prefix(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    x, axis = _reals(operands[-1]), n.params["axis"]
    assert n.op.facts is not None
    facts = n.op.facts(operands, n.avals, **n.params)
    dtype = x.dtype.name
    wide = "float32" if len(n.avals) == 2 else "float64"
    wider = dict.fromkeys(("float16", "bfloat16", "float32"), wide)
    return {
        "outer": prod(x.shape[:axis]), "size": x.shape[axis], "inner": prod(x.shape[axis + 1 :]),
        "reverse": n.params["reverse"], "dtype": dtype, "total": wider.get(dtype, dtype), **facts,
    }  # fmt: skip


def _sort(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    (x,), (values, *at), axis = operands, n.avals, n.params["axis"]
    assert n.op.facts is not None
    return {
        "outer": prod(x.shape[:axis]), "size": x.shape[axis], "inner": prod(x.shape[axis + 1 :]), "kept": values.shape[axis],
        "dtype": x.dtype.name, "index": at[0].dtype.name if at else "", **n.op.facts(operands, n.avals, **n.params),
    }  # fmt: skip


def _search(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    (array, wanted), (found,) = operands, n.avals
    assert n.op.facts is not None
    return {
        "size": array.size, "count": wanted.size, "dtype": array.dtype.name, "index": found.dtype.name,
        **n.op.facts(operands, n.avals, **n.params),
    }  # fmt: skip


def _cholesky(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    (x,) = operands
    return {"stack": x.shape[:-2], "n": x.shape[-1], "block": min(x.shape[-1], 4), "dtype": x.dtype.name}


def _triangular_solve(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    t, x = operands
    result = n.avals[0].shape
    rows, columns = x.shape[-2:]

    def ordered(shape: tuple[int, ...], reversed_axes: int, repeated: bool = True) -> View:
        """An operand, repeated along axes of the batch, or the result, in the order of elimination."""
        *lead, height, width = shape
        padded = [1] * (len(result) - len(shape)) + lead
        strides = [0 if d == 1 and repeated else s for d, s in zip(padded, _steps([*padded, height, width]), strict=False)]
        if not n.params["upper"]:
            return strided((*result[:-2], height, width), (*strides, width, 1))
        last = (height - 1) * width + (width - 1 if reversed_axes == 2 else 0)
        return strided((*result[:-2], height, width), (*strides, -width, -1 if reversed_axes == 2 else 1), last)

    return {
        "stack": t.shape[:-2], "triangle": ordered(t.shape, 2), "right": ordered(x.shape, 1),
        "result": ordered(result, 1, repeated=False), "block": min(rows, 4), "columns": min(columns, 4),
        "dtype": x.dtype.name,
    }  # fmt: skip


def _custom(body: Graph, n: Node, operands: Sequence[Aval]) -> dict[str, Any]:
    program: KernelProgram = n.op.program.program([a.dtype for a in operands], n.params)
    signature, function = program.signature, program.translated.function
    known = {k: v for k, v in program.instance.constants if type(v) is int} | dict(n.params["statics"])
    arrays = [*zip(program.operands, operands, strict=False), *zip(signature.results, n.avals, strict=True)]
    for name, aval in arrays:
        for axis, size in enumerate(aval.shape):
            known[f"{name}_size{axis}"] = size
            if name in program.operands and name in signature.arrays:
                known[size_name(name, axis, signature.arrays[name].sizes[axis])] = size
    place = {name: k for k, (name, _) in enumerate(arrays[: len(program.operands)])}
    place |= {name: len(operands) + k for k, name in enumerate(signature.results)}

    def first(name: str) -> dict[str, Any]:
        if signature.results[name].role == "InOut":
            return {"copied": program.operands.index(name)}
        value, unread = program.filled.get(name), {"unread": signature.results[name].unread}
        return unread if value is None else {"filled": const(value, computed(dict(arrays)[name].dtype.name)), **unread}

    def check(site: Any) -> KernelSite:
        size = 0 if not site.array else int(site.size) if site.size.isdecimal() else known[site.size]
        return KernelSite(n.op.program.name, site.array, site.axis, size, "" if site.array else site.size, site.line)

    return {
        "name": n.op.program.name, "function": function,
        "operands": tuple(
            Operand(v, a.dtype.name, strided(a.shape, _steps(a.shape))) for v, a in zip(n.inputs, operands, strict=True)
        ),
        "results": tuple(
            CustomResult(a.dtype.name, strided(a.shape, _steps(a.shape)), **first(name))
            for name, a in zip(signature.results, n.avals, strict=True)
        ),
        "buffers": tuple(place[a.name] for a in function.arrays), "scalars": tuple(known[s.name] for s in function.scalars),
        "grid": tuple(known[s.text] if s.text in known else s.value(known) for s in signature.grid) or (1,),
        "checks": tuple(map(check, program.translated.sites)),
    }  # fmt: skip


def _steps(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array."""
    return tuple(prod(shape[a + 1 :]) for a in range(len(shape)))


CHECKS: dict[type, Callable[[Graph, Node, Sequence[Aval]], dict[str, Any]]] = {
    Window: _window, Attention: _attention, Scatter: _scatter, Prefix: _prefix, Sort: _sort, Search: _search,
    Cholesky: _cholesky, TriangularSolve: _triangular_solve,
    Custom: _custom,
}  # fmt: skip
"""Kind of specification → (group, its node, the operands) → what fields of the specification must be."""


# copies


Box = tuple[tuple[int, int, int], ...]
"""First index, step and length along each axis of the result."""


def _copy(body: Graph, n: Node, operands: Sequence[Aval], spec: Copy, address: Address) -> str:
    (out,) = n.avals
    if (spec.itemsize, spec.elements) != (out.dtype.itemsize, out.size):
        return f"the result of {n.op.name} has another size"
    wanted = _boxes(n, operands)
    boxes: list[Box] = []
    left = [k for k, (_, box) in enumerate(wanted) if all(size for _, _, size in box)]
    for piece in spec.pieces:
        if piece.read.shape != piece.write.shape:
            return "a piece is read in another shape than it is written in"
        all_of_it = piece.write == row_major(out.shape)
        if piece.whole != all_of_it or (all_of_it and piece.read != piece.write):  # the result may use the input's memory
            return "a piece is the whole result, or is not"
        own = tuple(variable(("piece", a), d) for a, d in enumerate(piece.write.shape))
        box = _box(unflattened(address(piece.write, own), out.shape), piece.write.shape, out.shape)
        if box is None:
            return "a piece is no part of the result"
        boxes.append(box)
        if not left:
            return "there are more pieces than operands"
        operand, region = wanted[left[0]]
        if operand is None or n.inputs[operand] >= len(body.inputs):
            number = n.params["value"] if operand is None else _number(body, n.inputs[operand])
            bits = int.from_bytes(np.asarray(number).astype(out.dtype.np).tobytes(), "little")
            if piece.source is not None or piece.bits != bits:
                return "a piece is filled with another number"
            if operand is None:  # filled regions may be cut in any way: that they are the rest follows from their number
                if _meets(box, wanted[-1][1]):
                    return "a number is written where an element goes"
                if sum(prod(size for _, _, size in b) for b in boxes) == out.size - operands[0].size:
                    left.pop(0)
                continue
        elif not _reads(body, n, operand, piece, own, operands[operand].shape, address):
            return f"a piece is not operand {operand} of {n.op.name}"
        if box != region:
            return f"operand {operand} of {n.op.name} goes elsewhere"
        left.pop(0)
    if any(wanted[k][0] is not None for k in left):
        return f"operands of {n.op.name} are missing"
    whole = tuple((0, 1, d) for d in out.shape)
    if whole not in boxes:
        if any(_meets(a, b) for a, b in combinations(boxes, 2)):
            return "pieces lie over each other"
        if sum(prod(size for _, _, size in b) for b in boxes) != out.size:
            return "pieces are not all of the result"
    return ""


def _boxes(n: Node, operands: Sequence[Aval]) -> list[tuple[int | None, Box]]:
    """Where each operand goes, by number; None for a number that fills the rest."""
    p, out = n.params, n.avals[0].shape
    if "axis" in p:
        found, at = [], 0
        for i, x in enumerate(operands):
            found.append((i, tuple((at if a == p["axis"] else 0, 1, d) for a, d in enumerate(x.shape))))
            at += x.shape[p["axis"]]
        return list(found)
    whole = tuple((0, 1, d) for d in out)
    if "widths" in p:
        inner = tuple((before, 1, d) for (before, _), d in zip(p["widths"], operands[0].shape, strict=True))
        rest: list[tuple[int | None, Box]] = [] if operands[0].size == prod(out) else [(None, whole)]
        return [*rest, (0, inner)]
    steps = zip(p["starts"], p["steps"], operands[1].shape, strict=True)
    part = tuple((start, step if d > 1 else 1, d) for start, step, d in steps)  # of one element any step is 1, as in ``_box``
    return [(0, whole), (1, part)]


def _box(index: Sequence[Affine | int], shape: Sequence[int], out: Sequence[int]) -> Box | None:
    """The part of the result that indices reach, one axis of the piece along each of the result's; None if they do not."""
    found = []
    for a, (i, d) in enumerate(zip(index, shape, strict=True)):
        at = affine(i)
        step = next((k for t, k in at.terms.items() if t[1] == ("piece", a)), None)
        if len(at.terms) > (d > 1) or (d > 1 and (step is None or at.terms != {("variable", ("piece", a), d): step})):
            return None
        low, high = at.range
        if low < 0 or high >= out[a]:
            return None
        found.append((at.constant, step or 1, d))
    return tuple(found)


def _meets(a: Box, b: Box) -> bool:
    """Whether two boxes have an element in common; may be true of boxes with steps that pass each other."""

    def ends(x: tuple[int, int, int]) -> tuple[int, int]:
        start, step, size = x
        last = start + step * (size - 1)
        return min(start, last), max(start, last)

    if any(size == 0 for _, _, size in (*a, *b)):
        return False
    pairs = [(ends(x), ends(y)) for x, y in zip(a, b, strict=True)]
    return all(low <= other_high and other_low <= high for (low, high), (other_low, other_high) in pairs)


def _reads(
    body: Graph, n: Node, operand: int, piece: Piece, own: Sequence[Affine | int], shape: tuple[int, ...], address: Address
) -> bool:  # fmt: skip
    """Whether a piece is all of an operand, element by element."""
    if piece.source != n.inputs[operand] or piece.read.shape != shape or body.inputs[n.inputs[operand]].shape != shape:
        return False
    where = unflattened(address(piece.read, own), shape)
    return all(affine(i) == affine(j) for i, j in zip(where, own, strict=True))
