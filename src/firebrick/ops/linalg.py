"""Linear algebra on stacks of matrices (the last two axes), through each engine's LAPACK; float32 and wider only.

Matrices that must be Hermitian are taken as (x + xᴴ) / 2, so their gradients are Hermitian. A matrix for which there is no
answer raises ``LinAlgError``, which names its place in the stack.

Source of the rules: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation",
2008; for ``pinv`` Golub, Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems", 1973.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import real_of
from firebrick.core.errors import DTypeError, LinAlgError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Sample
from firebrick.core.shapes import broadcast_shapes
from firebrick.ops import batch_rules, forward_rules
from firebrick.ops.casts import conjugate, real
from firebrick.ops.declare import Array, Declare, values
from firebrick.ops.elementwise import abs_, equal, where
from firebrick.ops.matmul import adjoint, matmul
from firebrick.ops.movement import broadcast_to, concat, reshape, slice_
from firebrick.ops.reduction import max_, sum_, sum_to, zeros_like
from firebrick.ops.table import register

DTYPES = ("float64", "float32", "complex64", "complex128")


def check_precise(op: str, *xs: Any) -> None:
    """Raise DTypeError for half precision, which LAPACK and FFT libraries do not compute in."""
    for x in xs:
        if x.dtype.itemsize < 4:
            raise DTypeError(
                f"{op} computes in float32, float64, complex64 or complex128",
                f"{x.dtype.name}[{','.join(map(str, x.shape))}]",
                "cast it: fb.astype(x, fb.float32)",
                op=op,
            )


def check_matrix(op: str, x: Any, square: bool = False, name: str = "x") -> None:
    """Raise ShapeError (or DTypeError) unless x has matrices along its last two axes."""
    check_precise(op, x)
    if len(x.shape) < 2 or (square and x.shape[-1] != x.shape[-2]):
        raise ShapeError(
            f"{op}: {name} must be {'square matrices' if square else 'matrices'} along its last two axes",
            f"{name} {x.shape}",
            "reshape it, or check which axes hold the matrix",
        )


FINITE, POSITIVE_DEFINITE, INVERTIBLE = "finite", "positive definite", "invertible"
REMEDIES = {
    FINITE: "look for NaN or infinity in what made it (fb.detect_anomaly)",
    POSITIVE_DEFINITE: "add a small multiple of the identity, or use eigh",
    INVERTIBLE: "check it for equal or zero rows, or use fb.linalg.pinv or lstsq",
}
"""What a matrix must be, and what to do where one is not."""


def no_such_matrix(op: str, want: str, stack: tuple[int, ...], first: int, count: int) -> LinAlgError:
    """The error for ``count`` matrices of a stack, of which the first one in row-major order has this number."""
    place = tuple(int(i) for i in np.unravel_index(first, stack)) if stack else ()
    at = f"matrix {place} of a stack of shape {stack}" if stack else "the matrix"
    more = f" ({count} in all)" if count > 1 else ""
    return LinAlgError(f"{op}: every matrix must be {want}", f"{at} is not{more}", REMEDIES[want], op=op)


def _marked(op: str, want: str, bad: Array) -> LinAlgError:
    """The error for the matrices of a stack that ``bad`` (of the stack's shape) marks."""
    return no_such_matrix(op, want, bad.shape, int(np.argmax(bad)), int(np.count_nonzero(bad)))


def not_finite(op: str, bad: Array) -> LinAlgError:
    """The error for matrices that hold NaN or infinity."""
    return _marked(op, FINITE, bad)


def not_positive_definite(bad: Array) -> LinAlgError:
    """The error of ``cholesky``."""
    return _marked("cholesky", POSITIVE_DEFINITE, bad)


def singular(op: str, bad: Array) -> LinAlgError:
    """The error for matrices without an inverse."""
    return _marked(op, INVERTIBLE, bad)


def check_finite(op: str, x: Array) -> None:
    """Raise LinAlgError if a matrix holds NaN or infinity."""
    bad = np.asarray(~np.isfinite(x).all((-2, -1)))
    if bad.any():
        raise not_finite(op, bad)


# what rules are written with


def _keep(x: Any, mask: Array) -> Any:
    return where(hooks.from_host(mask, x.device), x, 0.0)


def diagonal_part(x: Any) -> Any:
    """x with zeros off the diagonal."""
    return _keep(x, np.eye(x.shape[-1], dtype=np.bool_))


def lower_part(x: Any, k: int = 0) -> Any:
    """x with zeros above the k-th diagonal."""
    return _keep(x, np.tri(x.shape[-2], x.shape[-1], k, dtype=np.bool_))


def upper_part(x: Any, k: int = 0) -> Any:
    """x with zeros below the k-th diagonal."""
    return _keep(x, ~np.tri(x.shape[-2], x.shape[-1], k - 1, dtype=np.bool_))


def hermitian(x: Any) -> Any:
    """The Hermitian part."""
    return (x + adjoint(x)) * 0.5


def as_row(v: Any) -> Any:
    """Vectors along the last axis as matrices of one row."""
    return reshape(v, shape=(*v.shape[:-1], 1, v.shape[-1]))


def as_column(v: Any) -> Any:
    """Vectors along the last axis as matrices of one column."""
    return reshape(v, shape=(*v.shape, 1))


def identity(x: Any, n: int) -> Any:
    """The unit matrix of n rows, of x's dtype and device."""
    return hooks.from_host(np.eye(n, dtype=x.dtype.np), x.device)


# what references are written with


def herm(x: Array) -> Array:
    """The Hermitian part."""
    return np.asarray((x + np.conj(np.swapaxes(x, -1, -2))) * x.dtype.type(0.5))


def singular_values(a: Array) -> Array:
    """Singular values of each matrix; NaN counts as 0."""
    return np.asarray(np.linalg.svd(np.nan_to_num(a), compute_uv=False))


def condition(a: Array) -> Array:
    """Condition number of each matrix, with two axes more to broadcast."""
    if not a.size:
        return np.ones((*a.shape[:-2], 1, 1))
    s = singular_values(a)
    return np.asarray(s[..., 0] / s[..., -1])[..., None, None]


def size_of_matrix(a: Array) -> Array:
    """The largest magnitude of each matrix, with two axes more to broadcast."""
    return np.asarray(np.max(np.abs(a), (-2, -1), keepdims=True, initial=0.0))


# samples


def _orthonormal(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if name.startswith("c") else 0.0)
    return np.linalg.qr(x)[0]


def with_values(rng: np.random.Generator, name: str, shape: tuple[int, ...], s: Array, hermitian: bool = False) -> Array:
    """Matrices of a shape with these singular values (eigenvalues, if Hermitian)."""
    k = min(shape[-2:])
    u = _orthonormal(rng, (*shape[:-1], k), name)
    v = u if hermitian else _orthonormal(rng, (*shape[:-2], shape[-1], k), name)
    return np.asarray((u * s[:k]) @ np.conj(np.swapaxes(v, -1, -2))).astype(name)


SQUARE: tuple[tuple[int, ...], ...] = ((2, 3, 3), (2, 1, 4, 4), (1, 1), (2, 0, 0), (0, 3, 3), (2, 2, 2))
ANY: tuple[tuple[int, ...], ...] = ((2, 3, 3), (2, 4, 2), (3, 2, 4), (2, 1, 3, 2), (1, 1), (2, 3, 0), (0, 2, 3))
LARGE = (2, 24, 24)
# each stack has two matrices at least: a layout may repeat what lies along the first longer axis, and a matrix of equal
# rows has no inverse


def square_samples(first: float, step: float, hermitian: bool) -> Any:
    """Square matrices with singular values (eigenvalues, if Hermitian) first, first + step, …"""

    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        return [
            Sample(
                (with_values(rng, name, s, first + step * np.arange(s[-1]), hermitian),),
                grad_safe=s != LARGE,
                name=f"{s}",
            )
            for s in (*SQUARE, LARGE)
        ]

    return samples


def _cubic(flops: float) -> Any:
    def cost(ins: Any, outs: Any, params: Any) -> Cost:
        size = ins[0].size * (min(ins[0].shape[-2:]) if ins[0].size else 0)
        return Cost(flops * size, sum(a.nbytes for a in (*ins, *outs)))

    return cost


_OF_STACKS = batch_rules.leading()


def matrix_op(vjp: Any, infer: Any, samples: Any, *, flops: float, scale: Any, tolerance: float, residuals: Any,
              operands: str = "x:inexact", batch: Any = _OF_STACKS, **more: Any) -> Declare:  # fmt: skip
    """Register an op on matrices whose work grows with the cube of their size."""
    return register(
        operands=operands, infer=infer, vjp=vjp, residuals=residuals, samples=samples, cost=_cubic(flops),
        bound="compute", fusion="opaque", tolerance=tolerance, complex_tolerance=tolerance, scale=scale, dtypes=DTYPES,
        batch=batch, **more,
    )  # fmt: skip


# Cholesky


def _infer_cholesky(x: Any) -> Aval:
    check_matrix("cholesky", x, square=True)
    return Aval(x.shape, x.dtype)


def _cholesky_vjp(g: Any, r: Any) -> Any:
    """L⁻ᴴ Φ(Lᴴ g) L⁻¹, made Hermitian; Φ is the lower triangle with half of the diagonal."""
    factor = r.outputs[0]
    inner = matmul(adjoint(factor), g)
    half = lower_part(inner) - diagonal_part(inner) * 0.5
    left = solve_triangular(adjoint(factor), half, upper=True)
    return (hermitian(adjoint(solve_triangular(adjoint(factor), adjoint(left), upper=True))),)


def _cholesky_jvp(r: Any) -> Any:
    """L Φ(L⁻¹ ẋ L⁻ᴴ)."""
    factor = r.results[0]
    left = solve_triangular(factor, hermitian(r.tangents[0]), upper=False)
    inner = adjoint(solve_triangular(factor, adjoint(left), upper=False))
    return matmul(factor, lower_part(inner) - diagonal_part(inner) * 0.5)


def _cholesky_scale(x: Array) -> Array:
    return np.asarray(condition(herm(x)) * np.sqrt(size_of_matrix(x)))


@matrix_op(_cholesky_vjp, _infer_cholesky, square_samples(1.0, 1.0, True), flops=1 / 3, scale=_cholesky_scale, tolerance=2,
           residuals=("outputs",), jvp=_cholesky_jvp, partial=True, kind="cholesky",
           facts=lambda operands, results: {})  # fmt: skip
def cholesky(x: Array) -> Array:
    """Lower triangular L with positive diagonal and L Lᴴ = x, for a positive definite Hermitian matrix."""
    check_finite("cholesky", x)  # some LAPACKs take NaN for a positive pivot
    a = herm(x)
    try:
        return np.asarray(np.linalg.cholesky(a))
    except np.linalg.LinAlgError:
        pass
    bad = np.zeros(a.shape[:-2], np.bool_)
    for at in np.ndindex(bad.shape):
        try:
            np.linalg.cholesky(a[at])
        except np.linalg.LinAlgError:
            bad[at] = True
    raise not_positive_definite(bad)


# linear equations


def _infer_solve(op: str) -> Any:
    def infer(x1: Any, x2: Any, **_: Any) -> Aval:
        check_matrix(op, x1, square=True, name="x1")
        check_matrix(op, x2, name="x2")
        if x1.shape[-1] != x2.shape[-2]:
            raise ShapeError(
                f"{op}: x2 must have as many rows as x1",
                f"x1 {x1.shape} and x2 {x2.shape}",
                "check the sizes; a stack of vectors needs an axis of size 1 at its end",
            )
        return Aval((*broadcast_shapes(x1.shape[:-2], x2.shape[:-2], op=op), *x2.shape[-2:]), x2.dtype)

    return infer


def _solve_samples(triangular: bool) -> Any:
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((2, 3, 3), (2, 3, 2)), ((2, 1, 3, 3), (4, 3, 1)), ((2, 4, 4), (4, 2)), ((1, 1), (1, 3)), ((1, 1), (2, 1, 1)),
        ((2, 0, 0), (2, 0, 2)), ((0, 3, 3), (3, 2)), ((2, 2, 2), (2, 2, 0)), (LARGE, (2, 24, 5)),
    )  # fmt: skip

    def samples(rng: np.random.Generator, name: str) -> list[Sample]:
        out = []
        for i, (a, b) in enumerate(cases):
            x1 = with_values(rng, name, a, 1 + np.arange(a[-1]) / 4)
            if triangular:  # what lies in the other triangle must not matter
                x1 = x1 + 2 * np.eye(a[-1], dtype=x1.dtype)
            params = {"upper": i % 2 == 0} if triangular else {}
            out.append(Sample((x1, values(rng, name, b)), params, a != LARGE, f"{a} into {b}"))
        return out

    return samples


def _solve_vjp(g: Any, r: Any) -> Any:
    a, b = r.inputs
    g2 = solve(adjoint(a), g)
    g1 = sum_to(-matmul(g2, adjoint(r.outputs[0])), a.shape) if r.needs[0] else None
    return g1, sum_to(g2, b.shape) if r.needs[1] else None


def _solve_scale(x1: Array, x2: Array) -> Array:
    return np.asarray(condition(x1) * size_of_matrix(solve.reference(x1, x2)))


def _solve_cost(flops: float) -> Any:
    def cost(ins: Any, outs: Any, params: Any) -> Cost:
        n = ins[0].shape[-1]
        factor = flops * ins[0].size * n
        return Cost(factor + 2.0 * outs[0].size * n, sum(a.nbytes for a in (*ins, *outs)))

    return cost


@register(
    operands="x1:inexact=T x2:inexact=T", infer=_infer_solve("solve"), vjp=_solve_vjp, residuals=("inputs", "outputs"),
    samples=_solve_samples(False), cost=_solve_cost(2 / 3), bound="compute", fusion="opaque", tolerance=6, complex_tolerance=6,
    scale=_solve_scale, dtypes=DTYPES,
    batch=batch_rules.broadcasting,
    jvp=forward_rules.solved, partial=True,
)  # fmt: skip
def solve(x1: Array, x2: Array) -> Array:
    """The X with x1 X = x2, for invertible x1; stacks broadcast."""
    try:
        return np.asarray(np.linalg.solve(x1, x2))
    except np.linalg.LinAlgError:
        raise singular("solve", np.linalg.slogdet(x1)[0] == 0) from None


def _triangular_vjp(g: Any, r: Any) -> Any:
    a, b = r.inputs
    upper = r.params["upper"]
    g2 = solve_triangular(adjoint(a), g, upper=not upper)
    g1 = None
    if r.needs[0]:
        g1 = sum_to(-matmul(g2, adjoint(r.outputs[0])), a.shape)
        g1 = upper_part(g1) if upper else lower_part(g1)
    return g1, sum_to(g2, b.shape) if r.needs[1] else None


def _triangular_jvp(r: Any) -> Any:
    """T⁻¹ (ẋ2 - Ṫ y)."""
    (y,), (t1, t2), upper = r.results, r.tangents, r.params["upper"]
    if t1 is None:
        moved = t2 if t2.shape == y.shape else broadcast_to(t2, shape=y.shape)
        return solve_triangular(r.operands[0], moved, upper=upper)
    moved = matmul(upper_part(t1) if upper else lower_part(t1), y)
    return solve_triangular(r.operands[0], -moved if t2 is None else t2 - moved, upper=upper)


def _triangle(x: Array, upper: bool) -> Array:
    return np.triu(x) if upper else np.tril(x)


def _triangular_scale(x1: Array, x2: Array, *, upper: bool) -> Array:
    a = _triangle(x1, upper)
    return np.asarray(condition(a) * size_of_matrix(np.linalg.solve(a, x2)))


@register(
    operands="x1:inexact=T x2:inexact=T", infer=_infer_solve("solve_triangular"), vjp=_triangular_vjp,
    residuals=("inputs", "outputs"), samples=_solve_samples(True), cost=_solve_cost(0), bound="compute", fusion="opaque",
    tolerance=4, complex_tolerance=4, scale=_triangular_scale, dtypes=DTYPES,
    batch=batch_rules.broadcasting, jvp=_triangular_jvp, partial=True, kind="triangular_solve",
    facts=lambda operands, results, *, upper: {},
)  # fmt: skip
def solve_triangular(x1: Array, x2: Array, *, upper: bool) -> Array:
    """The X with T X = x2, T being the upper or lower triangle of x1, which alone is read; stacks broadcast."""
    bad = (np.diagonal(x1, axis1=-2, axis2=-1) == 0).any(-1)
    if bad.any():
        raise singular("solve_triangular", bad)
    if upper:  # LU of an upper triangle is the triangle: back substitution is what remains
        return np.asarray(np.linalg.solve(np.triu(x1), x2))
    turned = np.linalg.solve(np.tril(x1)[..., ::-1, ::-1], x2[..., ::-1, :])
    return np.ascontiguousarray(turned[..., ::-1, :])


# determinant


def _infer_slogdet(x: Any) -> tuple[Aval, Aval]:
    check_matrix("slogdet", x, square=True)
    return Aval(x.shape[:-2], x.dtype), Aval(x.shape[:-2], real_of(x.dtype))


def _slogdet_vjp(gs: Any, r: Any) -> Any:
    """(g - i Im(conj(g_sign) · sign)) · x⁻ᴴ, g being the cotangent of log|det|."""
    x, sign, g = r.inputs[0], r.outputs[0], gs[1]
    if x.dtype.kind == "complex":
        turn = conjugate(gs[0]) * sign
        g = g - (turn - conjugate(turn)) * 0.5
    inverse = solve(adjoint(x), identity(x, x.shape[-1]))
    return (inverse * reshape(g, shape=(*g.shape, 1, 1)),)


def _slogdet_jvp(r: Any) -> Any:
    """The trace of x⁻¹ ẋ: its real part, and its imaginary part times i sign."""
    x, t, sign = r.operands[0], r.tangents[0], r.results[0]
    trace = sum_(diagonal_part(solve(x, t)), axes=(len(x.shape) - 2, len(x.shape) - 1), keepdims=False)
    if x.dtype.kind != "complex":
        return None, trace
    return sign * (trace - conjugate(trace)) * 0.5, real(trace)


def _slogdet_scale(x: Array) -> Array:
    return np.asarray(x.shape[-1] * condition(x)[..., 0, 0])


@matrix_op(_slogdet_vjp, _infer_slogdet, square_samples(0.5, 0.5, False), flops=2 / 3, scale=_slogdet_scale, tolerance=2,
           residuals=("inputs", "outputs"), jvp=_slogdet_jvp)  # fmt: skip
def slogdet(x: Array) -> tuple[Array, Array]:
    """det(x) / |det(x)| and log |det(x)|; 0 and -∞ for a singular matrix."""
    sign, logabs = np.linalg.slogdet(x)
    return np.asarray(sign), np.asarray(logabs)


# pseudoinverse


def _infer_pinv(x: Any, rtol: Any) -> Aval:
    check_matrix("pinv", x)
    check_precise("pinv", rtol)
    *lead, m, n = x.shape
    if broadcast_shapes(tuple(lead), rtol.shape, op="pinv") != tuple(lead):
        want = "pinv: rtol has one number for all matrices, or one for each"
        raise ShapeError(want, f"x {x.shape}, rtol {rtol.shape}", "reshape it")
    return Aval((*lead, n, m), x.dtype)


def _pinv_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    real = "float64" if name in ("float64", "complex128") else "float32"
    out = []
    for s in (*ANY, LARGE):
        x = with_values(rng, name, s, 1.0 + np.arange(max(s)) / 2)
        out.append(Sample((x, np.asarray(1e-3, real)), {}, s != LARGE, f"{s}"))
    low = with_values(rng, name, (2, 4, 3), np.asarray([2.0, 1.0, 0.0]))
    out.append(Sample((low, np.asarray([1e-2, 1e-3], real)), name="rank 2"))
    return out


def _pinv_unit(x: Any) -> Any:
    """The largest element of each matrix as a constant that is not 0. Both rules divide x by it, since the third power of the
    pseudoinverse of small or large numbers overflows or underflows; no derivative depends on it."""
    if not x.size:
        return 1.0
    found = max_(abs_(x.detach()), axes=(len(x.shape) - 2, len(x.shape) - 1), keepdims=True)
    return where(equal(found, 0.0), 1.0, found)


def _pinv_vjp(g: Any, r: Any) -> Any:
    """With P the result: -Pᴴ g Pᴴ + (1 - x P) gᴴ P Pᴴ + Pᴴ P gᴴ (1 - P x), which holds at constant rank."""
    unit = _pinv_unit(r.inputs[0])
    x, p = r.inputs[0] / unit, r.outputs[0] * unit
    ph, gh = adjoint(p), adjoint(g)
    right = matmul(gh, matmul(p, ph))
    left = matmul(matmul(ph, p), gh)
    out = right - matmul(x, matmul(p, right)) + left - matmul(matmul(left, p), x) - matmul(matmul(ph, g), ph)
    return out / unit / unit, None


def _pinv_jvp(r: Any) -> Any:
    """With P the result: -P ẋ P + P Pᴴ ẋᴴ (1 - x P) + (1 - P x) ẋᴴ Pᴴ P, which holds at constant rank."""
    t = r.tangents[0]
    if t is None:
        return (None,)
    unit = _pinv_unit(r.operands[0])
    x, p = r.operands[0] / unit, r.results[0] * unit
    ph, th = adjoint(p), adjoint(t)
    first = matmul(matmul(p, ph), th)
    last = matmul(th, matmul(ph, p))
    out = first - matmul(matmul(first, x), p) + last - matmul(p, matmul(x, last)) - matmul(matmul(p, t), p)
    return out / unit / unit


def _pinv_scale(x: Array, rtol: Array) -> Array:
    if not x.size:
        return np.ones((*x.shape[:-2], 1, 1))
    s = singular_values(x)
    least = np.min(np.where(s > rtol[..., None] * s[..., :1], s, np.inf), -1)
    return np.asarray(s[..., 0] / least**2)[..., None, None]


@matrix_op(_pinv_vjp, _infer_pinv, _pinv_samples, flops=24, scale=_pinv_scale, tolerance=8, residuals=("inputs", "outputs"),
           operands="x:inexact rtol:floating", batch=batch_rules.pseudo_inverse, jvp=_pinv_jvp)  # fmt: skip
def pinv(x: Array, rtol: Array) -> Array:
    """The Moore-Penrose inverse; singular values up to rtol times the largest count as 0."""
    check_finite("pinv", x)
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    keep = s > rtol[..., None] * np.max(s, -1, keepdims=True, initial=0.0)
    inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
    return np.asarray(np.conj(np.swapaxes(vh, -1, -2)) @ (inverse[..., None] * np.conj(np.swapaxes(u, -1, -2))))


# exponential


def _infer_expm(x: Any) -> Aval:
    check_matrix("expm", x, square=True)
    return Aval(x.shape, x.dtype)


def _expm_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    out = [Sample((values(rng, name, s, -1, 1),), grad_safe=s != LARGE, name=f"{s}") for s in (*SQUARE, LARGE)]
    out.append(Sample((values(rng, name, (2, 3, 3), -6, 6),), grad_safe=False, name="large norm"))
    out.append(Sample((np.zeros((2, 2, 2), out[0].inputs[0].dtype),), name="zero"))
    return out


def _expm_vjp(g: Any, r: Any) -> Any:
    return (_expm_along(adjoint(r.inputs[0]), g),)


def _expm_along(x: Any, g: Any) -> Any:
    """The upper right block of exp([[x, g], [0, x]]): the derivative at x along g (Van Loan, 1978)."""
    n, last = x.shape[-1], len(x.shape) - 1
    top, bottom = concat(x, g, axis=last), concat(zeros_like(x), x, axis=last)
    whole = expm(concat(top, bottom, axis=last - 1))
    starts, stops = (0,) * (last - 1) + (0, n), (*x.shape[:-2], n, 2 * n)
    return slice_(whole, starts=starts, stops=stops, steps=(1,) * len(x.shape))


_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM = 5.371920351148152


def _expm_scale(x: Array) -> Array:
    """exp(|x|), in which every term of the series adds, and as many times as it is squared in."""
    norm = np.max(np.sum(np.abs(x), -2), -1, initial=0.0)[..., None, None]
    return np.asarray((1.0 + norm) * size_of_matrix(expm.reference(np.abs(x))))


@matrix_op(_expm_vjp, _infer_expm, _expm_samples, flops=30, scale=_expm_scale, tolerance=6, residuals=("inputs",),
           jvp=lambda r: _expm_along(r.operands[0], r.tangents[0]))  # fmt: skip
def expm(x: Array) -> Array:
    """The matrix exponential Σ xᵏ / k!, by scaling, a Padé approximant of degree 13, and squaring.

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.
    """
    check_finite("expm", x)
    norm = np.max(np.sum(np.abs(x), -2), -1, initial=0.0)
    squarings = np.ceil(np.log2(np.maximum(norm / _PADE_NORM, 1.0))).astype(np.int64)[..., None, None]
    a = (x * 0.5**squarings).astype(x.dtype)
    b = [x.dtype.type(c / _PADE[0]) for c in _PADE]
    one = np.eye(x.shape[-1], dtype=x.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a @ (a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2) + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2) + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one
    y = np.linalg.solve(even - odd, even + odd)
    for i in range(int(np.max(squarings, initial=0))):
        y = np.where(i < squarings, y @ y, y)
    return np.asarray(y)
