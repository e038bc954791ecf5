"""QR, eigenvalue and singular value decompositions of stacks of matrices, made unique, hence equal on every engine.

R of ``qr`` has a non-negative real diagonal. Each eigenvector, and each left singular vector, has its leading component real
and positive, which is the first one of at least 0.55 times the largest magnitude (a tie of two components, common in matrices
with symmetries, is then far from decisive).

Where eigenvalues (or singular values) are equal, up to their rounding, the gradient of their vectors does not exist, and what a
function of the subspace alone would have is a limit that the vectors do not tell: a gradient that passes through these vectors
is NaN, as is one through vectors of singular value 0 of a matrix that is not square. Gradients through the values alone, as
of ``eigvalsh`` and ``svdvals``, use no such differences; second derivatives do.

The derivative of ``det`` looks at the last singular vectors, so it is here too.

Source of the rules: Walter, Lehmann, Lamour, "On evaluating higher-order derivatives of the QR decomposition", 2012; Giles,
"Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008; those of complex vectors
follow from the choice of their leading component.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import finfo, int32, real_of
from firebrick.core.errors import GradientError
from firebrick.core.hooks import hooks
from firebrick.core.op import Sample
from firebrick.ops.casts import cast, conjugate, real
from firebrick.ops.declare import Array
from firebrick.ops.elementwise import abs_, equal, exp, greater, greater_equal, log, pow_, where
from firebrick.ops.linalg import (
    ANY,
    LARGE,
    as_column,
    as_row,
    check_finite,
    check_matrix,
    condition,
    diagonal_part,
    herm,
    hermitian,
    identity,
    lower_part,
    matrix_op,
    singular_values,
    size_of_matrix,
    solve,
    solve_triangular,
    square_samples,
    upper_part,
    with_values,
)
from firebrick.ops.matmul import adjoint, matmul
from firebrick.ops.movement import concat, flip, reshape, slice_
from firebrick.ops.reduction import argmax, max_, sum_, zeros_like

LEADING = 0.55
_NEAR = 16
"""Equal values of a matrix come out of LAPACK up to 13 units in the last place of the largest one apart."""


# what rules are written with


def _skew(x: Any) -> Any:
    return (x - adjoint(x)) * 0.5


def _over_differences(inner: Any, s: Any, squares: bool) -> Any:
    """Each inner_ij / (s_j - s_i), or by the difference of their squares; 0 on the diagonal.

    NaN where two values are equal, and where they differ by no more than their rounding, unless inner is 0 there: vectors that
    a function does not use, as those of the smallest values of a matrix of low rank, do no harm.
    """
    if not s.shape[-1]:
        return inner
    gap = as_row(s) - as_column(s)
    size = max_(abs_(s), axes=(len(s.shape) - 1,), keepdims=True)
    near = greater_equal(as_row(size) * (_NEAR * finfo(s.dtype).eps), abs_(gap))
    if squares:
        gap = gap * (as_row(s) + as_column(s))
    place = hooks.from_host(np.eye(s.shape[-1], dtype=np.bool_), s.device)
    unknown = where(equal(inner, 0.0), inner, float("nan"))  # no product, whose gradient would be NaN wherever it is left out
    found = where(near, unknown, inner / where(near, 1.0, gap))
    return where(place, 0.0, where(equal(gap, 0.0), float("nan"), found))


def _inverse(x: Any) -> Any:
    """1 / x; NaN for 0, so that nothing multiplied by it stays."""
    none = equal(x, 0.0)
    return where(none, float("nan"), 1.0 / where(none, 1.0, x))


def _inner(a: Any, b: Any) -> Any:
    """For each column, Σ conj(a) · b."""
    return sum_(conjugate(a) * b, axes=(len(a.shape) - 2,), keepdims=True)


def _phase_free(g: Any, v: Any, turned: Any) -> Any:
    """The cotangent of complex vectors before their leading components were turned real; ``turned``: Σ conj(g) · v.

    Turning v makes dv - i v · Im(dv_k) / v_k of dv, k being the leading component.
    """
    chosen = _leading(v)
    lead = sum_(where(chosen, v, 0.0), axes=(len(v.shape) - 2,), keepdims=True)
    return g + where(chosen, (turned - conjugate(turned)) * 0.5 / lead, 0.0)


def _leading(v: Any) -> Any:
    """Where the leading component of each column is."""
    size = real(v * conjugate(v))
    rows = len(v.shape) - 2
    big = greater_equal(size, max_(size, axes=(rows,), keepdims=True) * LEADING**2)
    at = argmax(cast(big, dtype=int32), axis=rows, keepdims=True)
    return equal(at, hooks.from_host(np.arange(v.shape[-2], dtype=at.dtype.np)[:, None], v.device))


def turning(dv: Any, v: Any) -> Any:
    """For each column, i Im(dv_k) / v_k of the leading component k: v times it is what keeps that real out of the tangent."""
    place = _leading(v)
    lead, moved = (sum_(where(place, x, 0.0), axes=(len(v.shape) - 2,), keepdims=True) for x in (v, dv))
    return (moved - conjugate(moved)) * 0.5 / lead


# what references are written with


def turns(v: Array) -> Array:
    """For each column, the unit number whose product with it makes the leading component real and positive."""
    if not v.size:
        return np.ones((*v.shape[:-2], 1, v.shape[-1]), v.dtype)
    size = np.abs(v)
    at = np.argmax(size >= LEADING * np.max(size, -2, keepdims=True), -2)[..., None, :]
    return unit_conjugates(np.take_along_axis(v, at, -2))


def unit_conjugates(z: Array) -> Array:
    """conj(z) / |z|; 1 where z is 0."""
    size = np.abs(z)
    return np.asarray(np.where(size == 0, 1, np.conj(z) / np.where(size == 0, 1, size)).astype(z.dtype))


# QR


def _infer_qr(x: Any, *, complete: bool) -> tuple[Aval, Aval]:
    check_matrix("qr", x)
    *lead, m, n = x.shape
    k = m if complete else min(m, n)
    return Aval((*lead, m, k), x.dtype), Aval((*lead, k, n), x.dtype)


def _qr_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = []
    for s in (*ANY, LARGE):
        x = with_values(rng, name, s, 1.0 + np.arange(max(s)))
        for complete in (False, True):
            safe = s != LARGE and (not complete or s[-2] <= s[-1])
            out.append(Sample((x,), {"complete": complete}, safe, f"{s} complete={complete}"))
    return out


def _part(x: Any, first: int, last: int) -> Any:
    """Columns first to last of matrices."""
    lead = (0,) * (len(x.shape) - 1)
    return slice_(x, starts=(*lead, first), stops=(*x.shape[:-1], last), steps=(1,) * len(x.shape))


def _check_determined(m: int, n: int, complete: bool) -> None:
    if complete and m > n:
        raise GradientError(
            "qr: a gradient needs as many columns of Q as are determined by x",
            f'mode="complete" of {m} × {n} matrices, whose last {m - n} columns of Q are arbitrary',
            'use mode="reduced"; of svd, full_matrices=False',
        )


def _over(y: Any, upper: Any) -> Any:
    """y R⁻¹."""
    return adjoint(solve_triangular(adjoint(upper), adjoint(y), upper=False))


def _qr_jvp(r: Any) -> Any:
    """With C = Qᴴ ẋ R⁻¹ and W its strict lower triangle, less that one's adjoint, and i Im diag C: Ṙ = (C - W) R, and Q̇ is
    ẋ R⁻¹ - Q (C - W). Both of the square part of R; the rest of Ṙ is Qᴴ ẋ₂ - W R₂."""
    (t,), (q, upper) = r.tangents, r.results
    m, n = r.operands[0].shape[-2:]
    _check_determined(m, n, r.params["complete"])
    if not q.size:
        return zeros_like(q), zeros_like(upper)
    square, left = (_part(upper, 0, m), _part(t, 0, m)) if m < n else (upper, t)
    moved = _over(left, square)
    inner = matmul(adjoint(q), moved)
    below = lower_part(inner, -1)
    turn = below - adjoint(below) + diagonal_part(_skew(inner))
    dr = upper_part(matmul(inner - turn, square))
    if m > n:
        return moved - matmul(q, inner - turn), dr
    if m < n:
        right = matmul(adjoint(q), _part(t, m, n)) - matmul(turn, _part(upper, m, n))
        dr = concat(dr, right, axis=len(dr.shape) - 1)
    return matmul(q, turn), dr


def _qr_vjp(gs: Any, r: Any) -> Any:
    """With M = g_R Rᴴ - Qᴴ g_Q: (g_Q + Q · (triu(M, 1) + triu(M, 1)ᴴ + Re diag M)) R⁻ᴴ, from the square part of R."""
    (gq, gr), (q, upper) = gs, r.outputs
    m, n = r.avals[0].shape[-2:]
    _check_determined(m, n, r.params["complete"])
    rest = None
    if m < n:  # x = [x₁ x₂], and the right part of R is Qᴴ x₂
        right = _part(gr, m, n)
        rest = matmul(q, right)
        gq = gq + matmul(matmul(q, _part(upper, m, n)), adjoint(right))
        gr, upper = _part(gr, 0, m), _part(upper, 0, m)
    inner = matmul(gr, adjoint(upper)) - matmul(adjoint(q), gq)
    above = upper_part(inner, 1)
    both = above + adjoint(above) + diagonal_part(hermitian(inner))
    g = adjoint(solve_triangular(upper, adjoint(gq + matmul(q, both)), upper=True))
    return (g if rest is None else concat(g, rest, axis=len(g.shape) - 1),)


def _qr_scale(x: Array, *, complete: bool) -> tuple[Array, Array]:
    c = condition(x[..., :, : x.shape[-2]])
    return c, np.asarray(c * size_of_matrix(x))


@matrix_op(_qr_vjp, _infer_qr, _qr_samples, flops=4, scale=_qr_scale, tolerance=6, residuals=("outputs",),
           jvp=_qr_jvp)  # fmt: skip
def qr(x: Array, *, complete: bool) -> tuple[Array, Array]:
    """Q with orthonormal columns and upper triangular R, its diagonal real and ≥ 0, with Q R = x.

    ``complete`` makes Q square; its further columns are those of the product of Householder's reflections.
    """
    q, upper = np.linalg.qr(x, "complete" if complete else "reduced")
    turn = unit_conjugates(np.diagonal(upper, axis1=-2, axis2=-1))
    k = turn.shape[-1]
    q[..., :k] *= np.conj(turn)[..., None, :]
    upper[..., :k, :] *= turn[..., None]
    return q, np.triu(upper)  # without -0 below the diagonal


# eigenvalues


def _infer_eigh(x: Any) -> tuple[Aval, Aval]:
    check_matrix("eigh", x, square=True)
    return Aval(x.shape[:-1], real_of(x.dtype)), Aval(x.shape, x.dtype)


def _eigh_vjp(gs: Any, r: Any) -> Any:
    """V (diag g_w + F ∘ Vᴴ g_V) Vᴴ, made Hermitian, with F_ij = 1 / (w_j - w_i)."""
    (gw, gv), (w, v) = gs, r.outputs
    if not r.given[1]:
        return (hermitian(matmul(v * as_row(gw), adjoint(v))),)
    if v.dtype.kind == "complex" and v.size:
        gv = _phase_free(gv, v, _inner(gv, v))
    inner = _over_differences(matmul(adjoint(v), gv), w, False)
    return (hermitian(matmul(matmul(v, inner) + v * as_row(gw), adjoint(v))),)


def _eigh_jvp(r: Any) -> Any:
    """With M = Vᴴ ẋ V: the real diagonal of M, and V (F ∘ M) with F_ij = 1 / (w_j - w_i), turned so that leading components
    stay real."""
    (w, v), t = r.results, hermitian(r.tangents[0])
    if not v.size:
        return zeros_like(w), zeros_like(v)
    inner = matmul(adjoint(v), matmul(t, v))
    dv = matmul(v, _over_differences(inner, w, False))
    if v.dtype.kind == "complex":
        dv = dv - v * turning(dv, v)
    return _real_diagonal(inner), dv


def _real_diagonal(x: Any) -> Any:
    found = sum_(diagonal_part(x), axes=(len(x.shape) - 1,), keepdims=False)
    return real(found) if found.dtype.kind == "complex" else found


def _gaps(s: Array) -> Array:
    """The smallest distance of two of the values of each matrix, with two axes more to broadcast."""
    if s.shape[-1] < 2:
        return np.full((*s.shape[:-1], 1, 1), np.inf)
    return np.asarray(np.min(np.abs(np.diff(np.sort(s, -1))), -1))[..., None, None]


def _eigh_scale(x: Array) -> tuple[Array, Array]:
    """Values move by as much as the matrix; vectors by that over the distance of two values."""
    w = np.linalg.eigvalsh(herm(x))
    top = np.max(np.abs(w), -1, initial=0.0)
    return np.asarray(top)[..., None], np.asarray(np.maximum(1.0, top[..., None, None] / _gaps(w)))


@matrix_op(_eigh_vjp, _infer_eigh, square_samples(-1.3, 1.0, True), flops=9, scale=_eigh_scale, tolerance=16,
           residuals=("outputs",), jvp=_eigh_jvp)  # fmt: skip
def eigh(x: Array) -> tuple[Array, Array]:
    """Eigenvalues of a Hermitian matrix in ascending order, and its orthonormal eigenvectors as columns."""
    check_finite("eigh", x)
    w, v = np.linalg.eigh(herm(x))
    return np.asarray(w), np.asarray(v * turns(v))


# singular values


def _infer_svd(x: Any) -> tuple[Aval, Aval, Aval]:
    check_matrix("svd", x)
    *lead, m, n = x.shape
    k = min(m, n)
    return Aval((*lead, m, k), x.dtype), Aval((*lead, k), real_of(x.dtype)), Aval((*lead, k, n), x.dtype)


def _svd_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    shapes = (*ANY, LARGE)
    return [Sample((with_values(rng, name, s, 1.0 + np.arange(max(s))),), {}, s != LARGE, f"{s}") for s in shapes]


def _svd_vjp(gs: Any, r: Any) -> Any:
    """U (diag g_S + (X + Xᴴ) S + S (Y + Yᴴ)) Vᴴ and the parts outside of U and V, X = F ∘ Uᴴ g_U and Y = F ∘ Vᴴ g_V.

    F_ij = 1 / (s_j² - s_i²). Complex vectors add i Im diag(Uᴴ g_U) / S.
    """
    (gu, g, gvh), (u, s, vh) = gs, r.outputs
    m, n = r.avals[0].shape[-2:]
    k = s.shape[-1]
    if not (r.given[0] or r.given[2]):
        return (matmul(u * as_row(g), vh),)
    gv, v = adjoint(gvh), adjoint(vh)
    inverse = as_row(_inverse(s))
    turning = u.dtype.kind == "complex" and u.size > 0
    if turning:
        gu = _phase_free(gu, u, _inner(gu, u) + _inner(gv, v))
    uu, vv = matmul(adjoint(u), gu), matmul(adjoint(v), gv)
    x, y = _over_differences(uu, s, True), _over_differences(vv, s, True)
    core = (x + adjoint(x)) * as_row(s) + as_column(s) * (y + adjoint(y))
    if turning:
        core = core + diagonal_part(_skew(uu)) * inverse
    left = matmul(u, core) + u * as_row(g)
    if m > k:
        left = left + (gu - matmul(u, uu)) * inverse
    out = matmul(left, vh)
    if n > k:
        out = out + matmul(u * inverse, adjoint(gv - matmul(v, vv)))
    return (out,)


def _svd_jvp(r: Any) -> Any:
    """With P = Uᴴ ẋ V: Ṡ = Re diag P, U̇ = U (F ∘ (P S + S Pᴴ)) and V̇ = V (F ∘ (S P + Pᴴ S)) with F_ij = 1 / (s_j² - s_i²),
    and the parts outside of U and V. Complex vectors add i Im diag(P) / S to U, and are turned so that leading components stay
    real.
    """
    (u, s, vh), t = r.results, r.tangents[0]
    if not u.size or not vh.size:
        return zeros_like(u), zeros_like(s), zeros_like(vh)
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    v = adjoint(vh)
    tv, tu = matmul(t, v), matmul(adjoint(t), u)
    inner = matmul(adjoint(u), tv)
    across, row, column = adjoint(inner), as_row(s), as_column(s)
    du = matmul(u, _over_differences(inner * row + column * across, s, True))
    dv = matmul(v, _over_differences(column * inner + across * row, s, True))
    inverse = as_row(_inverse(s))
    if m > k:
        du = du + (tv - matmul(u, inner)) * inverse
    if n > k:
        dv = dv + (tu - matmul(v, across)) * inverse
    if u.dtype.kind == "complex":
        du = du + matmul(u, diagonal_part(_skew(inner)) * inverse)
        turn = turning(du, u)
        du, dv = du - u * turn, dv - v * turn
    return du, _real_diagonal(inner), adjoint(dv)


def _svd_scale(x: Array) -> tuple[Array, Array, Array]:
    s = singular_values(x)
    top = np.max(s, -1, initial=0.0)
    m, n = x.shape[-2:]
    # of two sides one has directions of singular value 0 as well
    gap = _gaps(s if m == n else np.concatenate([s, np.zeros_like(s[..., :1])], -1))
    vectors = np.asarray(np.maximum(1.0, top[..., None, None] / gap))
    return vectors, np.asarray(top)[..., None], vectors


@matrix_op(_svd_vjp, _infer_svd, _svd_samples, flops=20, scale=_svd_scale, tolerance=16, residuals=("outputs",),
           jvp=_svd_jvp)  # fmt: skip
def svd(x: Array) -> tuple[Array, Array, Array]:
    """U, S and Vᴴ with U diag(S) Vᴴ = x: orthonormal columns of U and rows of Vᴴ, S ≥ 0 in descending order."""
    check_finite("svd", x)
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    turn = turns(u)
    return np.asarray(u * turn), np.asarray(s), np.asarray(np.conj(np.swapaxes(turn, -1, -2)) * vh)


# determinant


def _infer_det(x: Any) -> Aval:
    check_matrix("det", x, square=True)
    return Aval(x.shape[:-2], x.dtype)


def _last(x: Any, axis: int, count: int = 1) -> Any:
    """The last elements along an axis, counted from the end."""
    axis += len(x.shape)
    starts = tuple(d - count if a == axis else 0 for a, d in enumerate(x.shape))
    return slice_(x, starts=starts, stops=x.shape, steps=(1,) * len(x.shape))


def _cofactors(x: Any) -> Any:
    """The conjugate of the matrix of cofactors, conj(det x) x⁻ᴴ where that exists: the derivative of the determinant at every
    x. Up to three rows they are written out, which is exact in every derivative.

    Matrices of more rows have a rank of n - 1 at least, with all derivatives, or a lower one, with the first two.
    """
    n = x.shape[-1]
    if n < 2:
        return zeros_like(x) + 1.0
    if n < 4:
        return _written_out(conjugate(x))
    u, s, vh = svd(x.detach())
    is_low = greater_equal(_part(s, 0, 1) * (_NEAR * n * finfo(s.dtype).eps), _part(s, n - 2, n - 1))
    low = as_column(is_low)
    regular = _regular_cofactors(where(low, identity(x, n), x), where(low, identity(x, n), u), where(is_low, 1.0, s),
                                 where(low, identity(x, n), vh))  # fmt: skip
    return where(low, _low_cofactors(x, u, s, vh, low), regular)


def _written_out(x: Any) -> Any:
    """The matrix of cofactors of two or three rows."""
    if x.shape[-1] == 2:
        signs = np.asarray([[1.0, -1.0], [-1.0, 1.0]]).astype(x.dtype.np)
        return flip(x, axes=(len(x.shape) - 2, len(x.shape) - 1)) * hooks.from_host(signs, x.device)
    (a, b), (c, d) = ([_rolled(_rolled(x, -2, i), -1, j) for j in (1, 2)] for i in (1, 2))
    return a * d - b * c


def _rolled(x: Any, axis: int, by: int) -> Any:
    """x[i + by] for each i, counted in a circle."""
    axis += len(x.shape)
    start = tuple(by if a == axis else 0 for a in range(len(x.shape)))
    stop = tuple(by if a == axis else d for a, d in enumerate(x.shape))
    steps = (1,) * len(x.shape)
    rest, first = (
        slice_(x, starts=start, stops=x.shape, steps=steps),
        slice_(x, starts=(0,) * len(steps), stops=stop, steps=steps),
    )
    return concat(rest, first, axis=axis)


def _regular_cofactors(x: Any, u: Any, s: Any, vh: Any) -> Any:
    """Those of a matrix of rank n - 1 at least (up to rounding or exactly).

    With u and v the last singular vectors and B± = x ± (sₙ + sₙ₋₁) u vᴴ, it is the mean of conj(det B) B⁻ᴴ over both signs,
    since determinants are affine along a matrix of rank 1. Both B are as far from singular as sₙ₋₁ is from 0. The mean is the
    derivative at every x, whatever u and v are: they count as constants, and higher derivatives are those of the mean.
    """
    length = sum_(_last(s, -1, 2), axes=(len(s.shape) - 1,), keepdims=True)
    move = matmul(_last(u, -1) * as_column(length), _last(vh, -2))
    both = concat(*(reshape(b, shape=(1, *x.shape)) for b in (x + move, x - move)), axis=0)
    inverse, size = solve(adjoint(both), identity(x, x.shape[-1])), conjugate(det(both))
    return sum_(inverse * reshape(size, shape=(*size.shape, 1, 1)), axes=(0,), keepdims=False) * 0.5


def _low_cofactors(x: Any, u: Any, s: Any, vh: Any, low: Any) -> Any:
    """Those of a matrix of a lower rank. There cofactors are 0, and so are their derivatives below a rank of n - 2.

    With E = Uᴴ (x - x₀) V, which is 0, U, S and V those of x₀, and Pᵢ and Pᵢⱼ the products of all values but one or two, they
    are to the first order conj(det U det Vᴴ) U (diag Pᵢ + diag Σⱼ Pᵢⱼ conj(Eⱼⱼ) - P ∘ Eᴴ) Vᴴ. What is differentiated further
    is NaN: the derivatives of |E|^1.5 beyond the first.
    """
    n = x.shape[-1]
    one, two = _products_of_others(s)
    e = matmul(adjoint(u), matmul(where(low, x - x.detach(), 0.0), adjoint(vh)))
    across = adjoint(e)
    sums = matmul(two, as_column(sum_(diagonal_part(across), axes=(len(x.shape) - 1,), keepdims=False)))
    inner = (as_column(one) + sums) * identity(x, n) - two * across
    unknown = pow_(abs_(where(low, e, 1.0)), 1.5)
    phase = conjugate(det(u) * det(vh))
    inner = inner * reshape(phase, shape=(*phase.shape, 1, 1)) + where(low, unknown, 0.0)
    return matmul(u, matmul(inner, vh))


def _products_of_others(s: Any) -> tuple[Any, Any]:
    """For each value the product of all others, and for each two, of all but these; 0 for twice the same one."""
    n = s.shape[-1]
    zero = equal(s, 0.0)
    logs, zeros = where(zero, 0.0, log(where(zero, 1.0, s))), where(zero, 1.0, zeros_like(s))
    every, many = (sum_(v, axes=(len(s.shape) - 1,), keepdims=True) for v in (logs, zeros))

    def product(log_of: Any, count: Any) -> Any:
        return where(greater(count, 0.5), 0.0, exp(log_of))

    two = product(as_row(every) - as_row(logs) - as_column(logs), as_row(many) - as_row(zeros) - as_column(zeros))
    return product(every - logs, many - zeros), where(hooks.from_host(np.eye(n, dtype=np.bool_), s.device), 0.0, two)


def _det_vjp(g: Any, r: Any) -> Any:
    return (_cofactors(r.inputs[0]) * reshape(g, shape=(*g.shape, 1, 1)),)


def _det_jvp(r: Any) -> Any:
    """The trace of the adjugate and ẋ."""
    x, t = r.operands[0], r.tangents[0]
    return sum_(conjugate(_cofactors(x)) * t, axes=(len(x.shape) - 2, len(x.shape) - 1), keepdims=False)


def _det_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    large = with_values(rng, name, LARGE, 0.7 + np.arange(LARGE[-1]) / 30)  # products near 1
    low = with_values(rng, name, (2, 3, 3), np.asarray([2.0, 1.0, 0.0]))
    small = square_samples(0.5, 0.5, False)(rng, name)[:-1]
    return [*small, Sample((large,), grad_safe=False, name=f"{LARGE}"), Sample((low,), name="rank 2")]


def _det_scale(x: Array) -> Array:
    """What the determinant changes by where the matrix changes by its own size: n times the product of the n - 1 largest
    singular values, times the largest one."""
    n = x.shape[-1]
    s = singular_values(x)
    return np.asarray(n * np.prod(s[..., :-1], -1) * s[..., 0] if n else np.ones(x.shape[:-2]))


@matrix_op(_det_vjp, _infer_det, _det_samples, flops=2 / 3, scale=_det_scale, tolerance=2, residuals=("inputs",),
           jvp=_det_jvp)  # fmt: skip
def det(x: Array) -> Array:
    """Determinants; 0 for a singular matrix."""
    sign, logabs = np.linalg.slogdet(x)
    return np.asarray(sign * np.exp(logabs))
