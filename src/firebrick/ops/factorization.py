"""Decompositions of general square and rectangular matrices: LU with row exchanges, and eigenvalues of any square matrix.

Row exchanges are LAPACK's: of a column's candidates the first one with the largest |re| + |im|. Eigenvalues come in ascending
order of their real parts, then of their imaginary parts; eigenvectors have length 1 and their leading component real and
positive, as those of ``decomposition``.

Source of the rules: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation",
2008; de Hoog, Anderssen, Lukas, "Differentiation of matrix functionals using triangular factorization", 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import complex_of, finfo, int64, real_of
from firebrick.core.hooks import hooks
from firebrick.core.op import Sample
from firebrick.ops.casts import cast, conjugate, real
from firebrick.ops.declare import Array
from firebrick.ops.decomposition import _NEAR, _inner, _phase_free, turning, turns
from firebrick.ops.elementwise import abs_, equal, greater_equal, where
from firebrick.ops.indexing import gather
from firebrick.ops.linalg import (
    ANY,
    LARGE,
    SQUARE,
    as_column,
    as_row,
    check_finite,
    check_matrix,
    condition,
    diagonal_part,
    lower_part,
    matrix_op,
    size_of_matrix,
    solve,
    solve_triangular,
    upper_part,
    with_values,
)
from firebrick.ops.matmul import adjoint, matmul
from firebrick.ops.movement import broadcast_to, concat, slice_
from firebrick.ops.reduction import max_, sum_, zeros_like

# LU


def _infer_lu(x: Any) -> tuple[Aval, Aval]:
    check_matrix("lu", x)
    return Aval(x.shape, x.dtype), Aval(x.shape[:-1], int64)


def _lu_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    shapes = (*ANY, LARGE)
    out = [Sample((with_values(rng, name, s, 1.0 + np.arange(max(s)) / 2),), {}, s != LARGE, f"{s}") for s in shapes]
    singular = np.asarray([[[0, 0, 1], [0, 0, 2], [0, 0, 0]], [[1, 2, 3], [2, 4, 6], [0, 0, 0]]], name)
    return [*out, Sample((singular,), grad_safe=False, name="singular")]


def _block(x: Any, rows: slice, columns: slice) -> Any:
    """A block of matrices; both slices have a start and a stop."""
    lead = (0,) * (len(x.shape) - 2)
    return slice_(x, starts=(*lead, rows.start, columns.start), stops=(*x.shape[:-2], rows.stop, columns.stop),
                  steps=(1,) * len(x.shape))  # fmt: skip


def _unit_lower(x: Any) -> Any:
    return lower_part(x, -1) + hooks.from_host(np.eye(x.shape[-2], x.shape[-1], dtype=x.dtype.np), x.device)


def _lu_vjp(gs: Any, r: Any) -> Any:
    """P L⁻ᴴ (tril(Lᴴ g_L, -1) + triu(g_U Uᴴ)) U⁻ᴴ of the leading square block; the rest of a longer side comes before it."""
    g, (packed, order) = gs[0], r.outputs
    m, n = packed.shape[-2:]
    k, rows = min(m, n), len(packed.shape) - 2
    top, left = slice(0, k), slice(0, k)
    lower, upper = _unit_lower(_block(packed, top, left)), upper_part(_block(packed, top, left))
    square = _block(g, top, left)
    inner_lower, inner_upper = matmul(adjoint(lower), lower_part(square, -1)), matmul(upper_part(square), adjoint(upper))
    rest = None
    if m > k:  # the rows of L below the square
        below, its = _block(g, slice(k, m), left), _block(packed, slice(k, m), left)
        inner_upper = inner_upper - matmul(adjoint(its), below)
        rest = adjoint(solve_triangular(upper, adjoint(below), upper=True))
    if n > k:  # the columns of U beyond the square
        beyond, its = _block(g, top, slice(k, n)), _block(packed, top, slice(k, n))
        inner_lower = inner_lower - matmul(beyond, adjoint(its))
        rest = solve_triangular(adjoint(lower), beyond, upper=True)
    core = lower_part(inner_lower, -1) + upper_part(inner_upper)
    core = adjoint(solve_triangular(upper, adjoint(core), upper=True))
    found = solve_triangular(adjoint(lower), core, upper=True)
    if rest is not None:
        found = concat(found, rest, axis=rows if m > k else rows + 1)
    return (matmul(permutation(order, found.dtype), found),)


def _lu_jvp(r: Any) -> Any:
    """With C = L⁻¹ ẏ U⁻¹ of the leading square block of the exchanged rows y: L tril(C, -1) and triu(C) U; the rest of a longer
    side follows from these."""
    (packed, order), t = r.results, r.tangents[0]
    if not packed.size:
        return zeros_like(packed), None
    m, n = packed.shape[-2:]
    k, rows = min(m, n), len(packed.shape) - 2
    at = broadcast_to(as_column(order), shape=t.shape)
    moved = gather(t, at, axis=rows)
    top, left = slice(0, k), slice(0, k)
    lower, upper = _unit_lower(_block(packed, top, left)), upper_part(_block(packed, top, left))
    inner = solve_triangular(lower, _block(moved, top, left), upper=False)
    inner = adjoint(solve_triangular(adjoint(upper), adjoint(inner), upper=False))
    low, up = matmul(lower, lower_part(inner, -1)), matmul(upper_part(inner), upper)
    found = lower_part(low, -1) + upper_part(up)
    if m > k:  # the rows of L below the square
        below = _block(moved, slice(k, m), left) - matmul(_block(packed, slice(k, m), left), up)
        found = concat(found, adjoint(solve_triangular(adjoint(upper), adjoint(below), upper=False)), axis=rows)
    if n > k:  # the columns of U beyond the square
        beyond = _block(moved, top, slice(k, n)) - matmul(low, _block(packed, top, slice(k, n)))
        found = concat(found, solve_triangular(lower, beyond, upper=False), axis=rows + 1)
    return found, None


def permutation(order: Any, dtype: Any) -> Any:
    """The matrices P with P[order[i], i] = 1."""
    rows = hooks.from_host(np.arange(order.shape[-1])[:, None], order.device)
    return cast(equal(rows, as_row(order)), dtype=dtype)


def _lu_scale(x: Array) -> tuple[Array, Array]:
    k = min(x.shape[-2:])
    size = size_of_matrix(x)
    worst = np.minimum(condition(x[..., :k, :k]) if k else size, 1e6)
    return np.asarray(np.maximum(size, 1.0) * worst), np.zeros(x.shape[:-1])


def _exchanged(a: Array, order: Array, k: int) -> None:
    """Column k of a and its row exchange, in place."""
    column = a[..., k:, k]
    at = np.argmax(np.abs(column.real) + np.abs(column.imag), -1)[..., None] + k
    for x, rows in ((a, at[..., None]), (order[..., None], at[..., None])):
        index = np.broadcast_to(rows, (*rows.shape[:-1], x.shape[-1]))
        chosen = np.take_along_axis(x, index, -2)
        np.put_along_axis(x, index, x[..., k : k + 1, :].copy(), -2)
        x[..., k : k + 1, :] = chosen
    pivot = a[..., k, k, None]
    a[..., k + 1 :, k] /= np.where(pivot == 0, 1, pivot)


def _factor(a: Array, order: Array) -> None:
    """LU of a [..., m, n], in place, by halves; ``order`` [..., m] has its rows exchanged alike."""
    m, n = a.shape[-2:]
    k = min(m, n)
    if k <= 8:
        for j in range(k):
            _exchanged(a, order, j)
            a[..., j + 1 :, j + 1 :] -= a[..., j + 1 :, j, None] * a[..., j, None, j + 1 :]
        return
    half = k // 2
    places = np.broadcast_to(np.arange(m), order.shape).copy()
    _factor(a[..., :half], places)
    right = np.take_along_axis(a[..., half:], places[..., None], -2)
    lower = np.tril(a[..., :half, :half], -1) + np.eye(half, dtype=a.dtype)
    right[..., :half, :] = np.linalg.solve(lower, right[..., :half, :])
    right[..., half:, :] -= a[..., half:, :half] @ right[..., :half, :]
    order[...] = np.take_along_axis(order, places, -1)
    places = np.broadcast_to(np.arange(m - half), (*order.shape[:-1], m - half)).copy()
    _factor(right[..., half:, :], places)
    a[..., half:] = right
    a[..., half:, :half] = np.take_along_axis(a[..., half:, :half], places[..., None], -2)
    order[..., half:] = np.take_along_axis(order[..., half:], places, -1)


@matrix_op(_lu_vjp, _infer_lu, _lu_samples, flops=2 / 3, scale=_lu_scale, tolerance=8, residuals=("outputs",),
           jvp=_lu_jvp)  # fmt: skip
def lu(x: Array) -> tuple[Array, Array]:
    """L and U in one matrix, without the ones on the diagonal of L, and the order of x's rows whose product they are."""
    a = np.array(x)
    order = np.broadcast_to(np.arange(x.shape[-2]), x.shape[:-1]).copy()
    if x.size:
        _factor(a, order)
    return a, order


# eigenvalues of any square matrix


def _infer_eig(x: Any) -> tuple[Aval, Aval]:
    check_matrix("eig", x, square=True)
    dtype = x.dtype if x.dtype.kind == "complex" else complex_of(x.dtype)
    return Aval(x.shape[:-1], dtype), Aval(x.shape, dtype)


def _eig_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for shape in (*SQUARE, LARGE):
        n = shape[-1]
        core = np.zeros((n, n))
        core[np.arange(n), np.arange(n)] = np.arange(n) // 2 - 1.5
        if name.startswith("c"):  # where rounding would choose the order of equal real parts
            core = np.diag(0.5 * np.arange(n) - 1.5 + 1j * (np.arange(n) % 3))
        else:  # pairs of conjugates
            for j in range(1, n, 2):
                core[j - 1, j], core[j, j - 1] = 0.75 + j / 4, -0.75 - j / 4
        turn = with_values(rng, name, shape, 1.0 + np.arange(n) / (4 * max(n, 1)))
        x = turn @ core @ np.linalg.inv(turn) if turn.size else turn
        out.append(Sample((x.astype(name),), {}, shape != LARGE, f"{shape}"))
    return out


def _eig_vjp(gs: Any, r: Any) -> Any:
    """V⁻ᴴ (diag g_w + conj(F) ∘ Vᴴ g_V) Vᴴ with F_ij = 1 / (w_j - w_i), g_V without the parts that normalising removes."""
    (gw, gv), (w, v) = gs, r.outputs
    core = as_column(gw) * adjoint(v)
    if r.given[1] and v.size:
        free = _phase_free(gv, v, _inner(gv, v))
        free = free - v * real(_inner(v, free))
        core = core + matmul(_over_conjugate_differences(matmul(adjoint(v), free), w), adjoint(v))
    found = solve(adjoint(v), core)
    return (found if r.avals[0].dtype.kind == "complex" else real(found),)


def _eig_jvp(r: Any) -> Any:
    """With M = V⁻¹ ẋ V: its diagonal, and V (F ∘ M) with F_ij = 1 / (w_j - w_i), less what normalising removes."""
    (w, v), t = r.results, r.tangents[0]
    if not v.size:
        return zeros_like(w), zeros_like(v)
    inner = solve(v, matmul(t if t.dtype.kind == "complex" else cast(t, dtype=v.dtype), v))
    dv = matmul(v, conjugate(_over_conjugate_differences(conjugate(inner), w)))
    dv = dv - v * (cast(real(_inner(v, dv)), dtype=v.dtype) + turning(dv, v))
    return sum_(diagonal_part(inner), axes=(len(v.shape) - 1,), keepdims=False), dv


def _over_conjugate_differences(inner: Any, w: Any) -> Any:
    """Each inner_ij / conj(w_j - w_i), 0 on the diagonal; NaN where two values are equal, up to their rounding."""
    gap = conjugate(as_row(w) - as_column(w))
    size = max_(abs_(w), axes=(len(w.shape) - 1,), keepdims=True)
    near = greater_equal(as_row(size) * (_NEAR * finfo(real_of(w.dtype)).eps), abs_(gap))
    place = hooks.from_host(np.eye(w.shape[-1], dtype=np.bool_), w.device)
    unknown = where(equal(inner, 0.0), inner, float("nan"))
    return where(place, 0.0, where(near, unknown, inner / where(near, 1.0, gap)))


def _eig_scale(x: Array) -> tuple[Array, Array]:
    """Values move by as much as the matrix, times the condition of the vectors; vectors by that over the distance of two."""
    w, v = eig.reference(x)
    n = x.shape[-1]
    bound = condition(v) * size_of_matrix(x) * n
    apart = np.abs(w[..., None] - w[..., None, :]) + np.where(np.eye(n), np.inf, 0)
    gap = np.min(apart, (-2, -1), keepdims=True, initial=np.inf)
    return np.asarray(bound[..., 0]), np.asarray(np.maximum(1.0, bound / gap))


@matrix_op(_eig_vjp, _infer_eig, _eig_samples, flops=25, scale=_eig_scale, tolerance=16, residuals=("outputs",),
           jvp=_eig_jvp)  # fmt: skip
def eig(x: Array) -> tuple[Array, Array]:
    """Eigenvalues of a square matrix, complex, in ascending order, and eigenvectors of length 1 as columns."""
    check_finite("eig", x)
    w, v = np.linalg.eig(x)
    wide = np.result_type(x.dtype, np.complex64)
    order = np.lexsort((w.imag, w.real), -1)
    w = np.take_along_axis(w, order, -1).astype(wide)
    v = np.take_along_axis(v, order[..., None, :], -1).astype(wide)
    return w, np.asarray(v * turns(v))
