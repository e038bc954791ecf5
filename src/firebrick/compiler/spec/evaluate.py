"""``interpret``: the results of a specification in NumPy, the reference of every generator of kernels.

It shares no code with any target. An operand is read from a flat buffer through its view, and every address is checked.
Expressions are computed in their own dtypes, sums and products of floats in float64, so it is at least as exact as a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.base import Result
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.copy import Copy
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.faults import first_fault, out_of_range, sites_of
from firebrick.compiler.spec.kinds import KernelSpec
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve
from firebrick.compiler.spec.nest import Fold, Map, Nest, Row
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import FOLDS, Scatter
from firebrick.compiler.spec.search import Search
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.spec.window import Window
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.views import View
from firebrick.scalar.expr import FLOATS, Expr, load, steps, walk, whole_number
from firebrick.scalar.interpret import apply, evaluate
from firebrick.scalar.storage import computed

Array = np.ndarray[Any, Any]


def interpret(spec: KernelSpec, inputs: Sequence[Array], counts: Sequence[int], dtypes: Sequence[str]) -> list[Array]:
    """The results of a specification, as flat arrays.

    Args:
        spec: The specification.
        inputs: The group's inputs, row-major.
        counts: Elements of each result.
        dtypes: Dtype of each result in memory.

    Raises:
        OutOfRangeError: An index is outside of its axis.
        IndexError: A view exceeds its buffer: the specification is wrong.

    Example:
        >>> import numpy as np
        >>> from firebrick.compiler.spec.nest import Map
        >>> from firebrick.compiler.spec.evaluate import interpret
        >>> from firebrick.compiler.spec.base import Operand, Result
        >>> from firebrick.core.views import row_major
        >>> from firebrick.scalar.expr import load
        >>> x = row_major((2, 3))
        >>> double = Map((2, 3), (), (Operand(0, "float32", x),), (Result(load(0, "float32") * 2.0, "float32", x),))
        >>> interpret(double, [np.arange(6, dtype=np.float32)], [6], ["float32"])[0].tolist()
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    outs, fault = outcome(spec, inputs, counts, dtypes)
    if fault is not None:
        raise sites_of(spec)[fault.site].error(fault.payload)
    return outs


def outcome(
    spec: KernelSpec, inputs: Sequence[Array], counts: Sequence[int], dtypes: Sequence[str]
) -> tuple[list[Array], Fault | None]:
    """What kernels of a specification do: the results, of indices that are clamped, and the fault that is reported.

    Args:
        spec: As for ``interpret``, as are the others.
        inputs: The group's inputs.
        counts: Elements of each result.
        dtypes: Of each result.
    """
    flat = [_reals(np.ascontiguousarray(x).reshape(-1)) for x in inputs]
    outs = [_unwritten(n, d) for n, d in zip(counts, dtypes, strict=True)]
    with np.errstate(all="ignore"):
        fault = INTERPRETERS[type(spec)](spec, flat, [_reals(out) for out in outs])
    return outs, fault


def _reals(x: Array) -> Array:
    """A flat array; of complex numbers, the same memory as their parts."""
    return x.view(x.real.dtype) if x.dtype.kind == "c" else x


def _unwritten(count: int, dtype: str) -> Array:
    """Memory with values that results rarely have, so that elements that are not written are noticed."""
    return np.full(count * as_dtype(dtype).itemsize, 0xA5, np.uint8).view(as_dtype(dtype).np)


def addresses(view: View, indices: Sequence[Array]) -> Array:
    """The addresses of a view's elements at indices along its axes, which broadcast together."""
    out: Array = np.asarray(view.offset)
    for axis, index in zip(view.axes, indices, strict=True):
        rest = index
        for number, (size, stride) in enumerate(reversed(axis)):
            here = rest % size if number < len(axis) - 1 else rest
            out = out + here * stride
            rest = rest // max(size, 1)
    return out


def _grid(domain: Sequence[int]) -> list[Array]:
    return list(np.ogrid[tuple(slice(n) for n in domain)]) if domain else []


def _read(buffer: Array, at: Array, dtype: str) -> Array:
    if at.size and (at.min() < 0 or at.max() >= buffer.size):
        raise IndexError(f"an address in [{at.min()}, {at.max()}] of a buffer of {buffer.size} elements")
    return buffer[at].astype(computed(dtype)) if buffer.size or at.size else np.zeros(at.shape, computed(dtype))


def _stored(x: Array, like: Array) -> Array:
    """Values as they are written to memory."""
    return x.astype(like.dtype)


def _write(out: Array, at: Array, value: Array, shape: Sequence[int]) -> None:
    where = np.broadcast_to(at, shape)
    out[where.reshape(-1)] = _stored(np.broadcast_to(value, shape).reshape(-1), out)


class _Domain:
    """Evaluates expressions at all positions of a domain."""

    def __init__(self, domain: Sequence[int], leaf: Callable[[Expr, Array | None], Array], reduced: Sequence[int] = ()) -> None:
        self.domain, self.leaf, self.reduced = tuple(domain), leaf, tuple(reduced)
        self.grid = _grid(domain)
        self.values: dict[Expr, Array] = {}
        self.fault: Fault | None = None

    def __call__(self, root: Expr) -> Array:
        for e in walk([root]):
            if e not in self.values:
                self.values[e] = self._value(e, [self.values[a] for a in e.args])
        return self.values[root]

    def _value(self, e: Expr, args: list[Array]) -> Array:
        if e.op in ("load", "gather"):
            return self.leaf(e, args[0] if args else None)
        if e.op == "const":
            return np.asarray(e.value, e.dtype)
        if e.op == "index":
            parts = [self.grid[a] * s for a, s in enumerate(steps(e, len(self.domain))) if s]
            return np.asarray(sum(parts, np.zeros((), np.int64)))
        if e.op == "reduce":
            return _reduced(str(e.value), np.broadcast_to(args[0], self.domain), self.reduced, e.dtype)
        if e.op == "bounded":
            size, site = (int(x) for x in str(e.value).split(":"))
            self.fault = first_fault(self.fault, out_of_range(site, args[0], size))
        return apply(e.op, e.dtype, args, e.value)


def _reduced(kind: str, x: Array, axes: tuple[int, ...], dtype: str) -> Array:
    if kind in ("max", "min"):
        return np.asarray(getattr(np, kind)(x, axis=axes, keepdims=True))
    wide = x.astype(np.float64) if dtype in FLOATS else x
    return np.asarray(getattr(np, kind)(wide, axis=axes, keepdims=True, dtype=wide.dtype)).astype(dtype)


def _nest(spec: Nest, inputs: Sequence[Array], outs: Sequence[Array]) -> Fault | None:
    grid = _grid(spec.domain)

    def leaf(e: Expr, further: Array | None) -> Array:
        x = spec.operands[int(e.value or 0)]
        at = addresses(x.view, grid)
        return _read(inputs[x.source], at if further is None else at + further, x.dtype)

    of = _Domain(spec.domain, leaf, spec.reduced)
    for r, out in zip(spec.results, outs, strict=True):
        for part in r.reals:
            _write_result(part, out, of(part.expression), spec.domain)
    return of.fault


def _write_result(r: Result, out: Array, value: Array, domain: Sequence[int]) -> None:
    at, shape = addresses(r.view, _grid(domain)), list(domain)
    if r.summed:
        value = _reduced("sum", np.broadcast_to(value, domain), r.summed, r.expression.dtype)
    # where the address does not depend on an axis, one element of it is written
    for a in range(len(domain)):
        if all(s == 0 for _, s in r.view.axes[a]) and np.ndim(value) > a and np.shape(value)[a] == 1:
            shape[a] = min(1, shape[a])
            at = at.take([0], axis=a) if np.ndim(at) > a and at.shape[a] > 1 else at
    _write(out, at, value, shape)


def factor(x: Factor, inputs: Sequence[Array], part: Part, lanes: int) -> Array:
    """A or B of a contraction, [*batch, lanes, k], in float64."""
    domain = *part.batch, lanes, part.k
    at, inside = np.broadcast_to(addresses(x.view, _grid(domain)), domain), within(x, domain)
    out = np.zeros(domain)
    out[inside] = _read(inputs[x.source], at[inside], x.dtype)
    return out


def within(x: Factor, domain: Sequence[int]) -> Array:
    """Which elements of A or B are inside of their bounds."""
    grid = _grid(domain)
    inside = np.ones(tuple(domain), bool)
    for b in x.bounds:
        coordinate = np.asarray(b.start)
        for axis, coefficients, index in ((x.view.axes[-2], b.lanes, grid[-2]), (x.view.axes[-1], b.k, grid[-1])):
            rest = index
            for (size, _), c in zip(reversed(axis), reversed(coefficients), strict=True):
                coordinate = coordinate + rest % max(size, 1) * c
                rest = rest // max(size, 1)
        inside &= (coordinate >= 0) & (coordinate < b.size)
    return inside


def _product(part: Part, a: Array, b: Array) -> Array:
    """C of a contraction, in float64."""
    c = np.asarray(np.matmul(a, np.swapaxes(b, -1, -2)))
    if not part.omits or bool(np.isfinite(a).all() and np.isfinite(b).all()):
        return c
    inside = [within(x, (*part.batch, n, part.k)) for x, n in ((part.left, part.m), (part.right, part.n))]
    for *batch, i, j in np.argwhere(np.isnan(c)):  # with the products that count alone
        counted = inside[0][*batch, i] & inside[1][*batch, j]
        c[*batch, i, j] = np.sum(a[*batch, i][counted] * b[*batch, j][counted])
    return c


def _contract(spec: Contract, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
    for part in spec.parts:
        a, b = factor(part.left, inputs, part, part.m), factor(part.right, inputs, part, part.n)
        c = _product(part, a, b).astype(computed(spec.dtype))
        if len(spec.parts) > 1:
            _write(outs[0], addresses(part.result, _grid(part.domain)), c, part.domain)
            continue

        def leaf(e: Expr, further: Array | None, c: Array = c, part: Part = part) -> Array:
            if not e.value:
                return c
            x = spec.operands[int(e.value) - 1]
            return _read(inputs[x.source], addresses(x.view, _grid(part.domain)), x.dtype)

        of = _Domain(part.domain, leaf)
        for r, out in zip(spec.results, outs, strict=True):
            for x in r.reals:
                _write(out, addresses(x.view, _grid(part.domain)), of(x.expression), part.domain)


def _attention(spec: Attention, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
    given = [inputs[i] for i in spec.sources]
    q, k, v = (
        x.astype(np.float64).reshape(*spec.lead, n, f)
        for x, n, f in zip(given[int(spec.gradient) :], (spec.n, spec.m, spec.m), (spec.d, spec.d, spec.e), strict=False)
    )
    seen = np.broadcast_to(given[-1].astype(bool).reshape(spec.mask), (*spec.lead, spec.n, spec.m))
    if spec.causal:
        i, j = np.arange(spec.n)[:, None], np.arange(spec.m)[None, :]
        seen = seen & (j <= i)
    s = np.where(seen, spec.scale * np.einsum("...nd,...md->...nm", q, k), -np.inf)
    top = np.max(s, -1, keepdims=True, initial=-np.inf)
    weights = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    none = ~seen.any(-1, keepdims=True)
    weights = np.where(none, 0, weights / np.where(none, 1, np.where(total == 0, np.nan, total)))
    if not spec.gradient:
        found = [np.einsum("...nm,...me->...ne", weights, v)]
    else:
        g = given[0].astype(np.float64).reshape(*spec.lead, spec.n, spec.e)
        w = np.where(seen, np.einsum("...ne,...me->...nm", g, v), 0)
        u = weights * (w - (weights * w).sum(-1, keepdims=True))
        found = [
            spec.scale * np.einsum("...nm,...md->...nd", u, k), spec.scale * np.einsum("...nm,...nd->...md", u, q),
            np.einsum("...nm,...ne->...me", weights, g),
        ]  # fmt: skip
    for out, x in zip(outs, found, strict=True):
        out[:] = _stored(x.reshape(-1), out)


def _window(spec: Window, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
    w = spec.windows
    given = inputs[spec.sources[0]].astype(np.float64)
    inner, count = prod(w.image), prod(w.kernel)
    if not spec.gradient:
        images = given.reshape(w.planes, inner)
        best = np.full((w.planes, *w.places), -np.inf)
        where = np.full(best.shape, -1)
        total = np.zeros(best.shape)
        for element in w.elements:
            at, inside = _windows_at(w, element)
            x = np.where(inside, images[:, np.where(inside, at, 0)], -np.inf if spec.fold == "max" else 0.0)
            better = inside & ((where < 0) | (x > best) | (np.isnan(x) & ~np.isnan(best)))
            best, where = np.where(better, x, best), np.where(better, at, where)
            total = total + x
        values = best if spec.fold == "max" else total / count
        outs[0][:] = _stored(values.reshape(-1), outs[0])
        if spec.fold == "max":
            outs[1][:] = where.reshape(-1)
        return
    cotangents = given.reshape(w.planes, *w.places)
    out = np.zeros((w.planes, inner))
    planes = np.arange(w.planes)[:, None, None, None]
    indices = inputs[spec.sources[1]].reshape(cotangents.shape) if spec.index else None
    for element in w.elements:
        at, inside = _windows_at(w, element)
        share = np.where(inside, cotangents, 0.0) / (1 if indices is not None else count)
        if indices is not None:
            share = np.where(indices == at, share, 0.0)
        np.add.at(out, (planes, np.where(inside, at, 0)), share)
    outs[0][:] = _stored(out.reshape(-1), outs[0])


def _windows_at(w: Any, element: Sequence[int]) -> tuple[Array, Array]:
    """For one element of each window its index in the image, and whether it lies there."""
    at, inside = np.zeros(w.places, np.int64), np.ones(w.places, bool)
    for axis, grid in enumerate(_grid(w.places)):
        place = grid * w.stride[axis] + w.offset(element, axis)
        at = at * w.image[axis] + place
        inside = inside & (place >= 0) & (place < w.image[axis])
    return at, inside


def _scatter(spec: Scatter, inputs: Sequence[Array], outs: Sequence[Array]) -> Fault | None:
    given = iter(spec.sources)
    shape = spec.outer, spec.size, spec.inner
    dtype = as_dtype(spec.total).np
    bits = spec.dtype == "uint16" and outs[0].dtype != np.uint16  # half precision is moved as it is
    start = np.full(shape, spec.start) if spec.start is not None else inputs[next(given)]
    array = (start.view(np.uint16) if bits else start.astype(outs[0].dtype)).astype(dtype).reshape(shape)
    number = evaluate([whole_number(load(0, computed(spec.index)))], [inputs[next(given)].reshape(-1)])[0]
    fault = out_of_range(0, number, spec.size)
    at = apply("bounded", "int64", [number], f"{spec.size}:0")
    updates = np.asarray(spec.update) if spec.update is not None else inputs[next(given)]
    updates = updates.view(np.uint16) if bits else updates
    every = spec.outer, spec.count, spec.inner
    updates = updates.astype(dtype)
    updates = updates.reshape(every) if updates.ndim else np.broadcast_to(updates, every)
    at = np.broadcast_to(at[None, :, None], updates.shape) if spec.slices else at.reshape(updates.shape)
    put = FOLDS[spec.fold](load(0, computed(spec.total)), load(1, computed(spec.total)))
    outer, inner = np.arange(spec.outer)[:, None], np.arange(spec.inner)[None, :]
    for k in range(spec.count):
        place = outer, at[:, k], inner
        array[place] = evaluate([put], [array[place], updates[:, k]])[0].astype(dtype)
    flat = array.reshape(-1)
    outs[0][:] = flat.view(outs[0].dtype) if bits else _stored(flat, outs[0])
    return fault


def _copy(spec: Copy, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
    out = outs[0].view(f"V{spec.itemsize}")  # bytes of any number
    for piece in spec.pieces:
        shape = piece.write.shape
        grid = _grid(shape)
        if piece.source is None:
            value: Array = np.frombuffer(piece.bits.to_bytes(spec.itemsize, "little"), out.dtype)[0:1].reshape(())
        else:
            at = np.broadcast_to(addresses(piece.read, grid), shape)
            value = inputs[piece.source].view(out.dtype)[at]
        _write(out, addresses(piece.write, grid), value, shape)


INTERPRETERS: dict[type, Callable[[Any, Sequence[Array], Sequence[Array]], Fault | None]] = {
    Map: _nest, Row: _nest, Fold: _nest, Contract: _contract, Attention: _attention, Window: _window, Scatter: _scatter,
    Copy: _copy, Prefix: Prefix.interpret, Sort: Sort.interpret, Search: Search.interpret,
    Cholesky: Cholesky.interpret, TriangularSolve: TriangularSolve.interpret, Custom: Custom.interpret,
}  # fmt: skip
"""Kind of specification → writes its results, and gives the fault that its kernels report: (the specification, flat inputs,
flat results)."""
