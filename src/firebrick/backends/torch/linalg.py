"""Linear algebra and Fourier transforms through ``torch.linalg`` and ``torch.fft``, with the op table's unique choices.

The checks wait for the device: an error must name the matrix before anything computes with what came out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from firebrick.backends.torch.precision import Kernel
from firebrick.core.errors import LinAlgError
from firebrick.ops import linalg as table
from firebrick.ops.decomposition import LEADING


def _check(bad: Any, error: Callable[[Any], LinAlgError]) -> None:
    if bool(bad.any()):
        raise error(bad.cpu().numpy())


def _check_finite(op: str, x: Any) -> None:
    _check(~torch.isfinite(x).flatten(-2).all(-1), lambda bad: table.not_finite(op, bad))


def _adjoint(x: Any) -> Any:
    return x.mT.conj().resolve_conj()


def _hermitian(x: Any) -> Any:
    return (x + _adjoint(x)) * 0.5


def _unit_conjugates(z: Any) -> Any:
    size = z.abs()
    none = size == 0
    return torch.where(none, torch.ones_like(z), z.conj().resolve_conj() / torch.where(none, 1, size))


def _turns(v: Any) -> Any:
    """For each column, the unit number that makes its leading component real and positive."""
    if not v.numel():
        return v.new_ones((*v.shape[:-2], 1, v.shape[-1]))
    size = v.abs()
    at = (size >= LEADING * size.amax(-2, keepdim=True)).int().argmax(-2, keepdim=True)
    return _unit_conjugates(v.gather(-2, at))


def cholesky(x: Any) -> Any:
    """``cholesky_ex`` of the Hermitian part."""
    _check_finite("cholesky", x)
    factor, info = torch.linalg.cholesky_ex(_hermitian(x))
    _check(info != 0, table.not_positive_definite)
    return factor


def solve(x1: Any, x2: Any) -> Any:
    """``solve_ex``, of matrices always."""
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # without it, torch may take a stack for vectors
    found, info = torch.linalg.solve_ex(x1, x2.expand(*batch, *x2.shape[-2:]))
    _check(info != 0, lambda bad: table.singular("solve", bad))
    return found


def solve_triangular(x1: Any, x2: Any, *, upper: bool) -> Any:
    """Substitution, after a check of the diagonal."""
    _check((x1.diagonal(dim1=-2, dim2=-1) == 0).any(-1), lambda bad: table.singular("solve_triangular", bad))
    return torch.linalg.solve_triangular(x1, x2, upper=upper)


def slogdet(x: Any) -> tuple[Any, Any]:
    """Sign and log of the absolute determinant."""
    sign, logabs = torch.linalg.slogdet(x)
    return sign, logabs


def det(x: Any) -> Any:
    """From the sign and the logarithm, as the reference."""
    sign, logabs = torch.linalg.slogdet(x)
    return sign * logabs.exp()


def qr(x: Any, *, complete: bool) -> tuple[Any, Any]:
    """QR, with the diagonal of R turned real and non-negative."""
    q, upper = torch.linalg.qr(x, mode="complete" if complete else "reduced")
    turn = _unit_conjugates(upper.diagonal(dim1=-2, dim2=-1))
    k = turn.shape[-1]
    q = torch.cat([q[..., :k] * turn.conj()[..., None, :], q[..., k:]], -1)
    return q, torch.cat([upper[..., :k, :] * turn[..., None], upper[..., k:, :]], -2).triu()


def eigh(x: Any) -> tuple[Any, Any]:
    """Eigenvalues and turned eigenvectors of the Hermitian part."""
    _check_finite("eigh", x)
    w, v = torch.linalg.eigh(_hermitian(x))
    return w, v * _turns(v)


def eig(x: Any) -> tuple[Any, Any]:
    """Sorted eigenvalues and turned eigenvectors."""
    _check_finite("eig", x)
    if not x.numel():
        empty = x.to(torch.promote_types(x.dtype, torch.complex64))
        return empty.sum(-1), empty
    w, v = torch.linalg.eig(x)
    order = torch.argsort(w.imag, stable=True)
    order = order.gather(-1, torch.argsort(w.real.gather(-1, order), stable=True))
    w, v = w.gather(-1, order), v.gather(-1, order[..., None, :].expand(v.shape))
    return w, v * _turns(v)


def lu(x: Any) -> tuple[Any, Any]:
    """LAPACK's row exchanges as an order of the rows."""
    if not x.numel():
        return x.clone(), torch.arange(x.shape[-2], device=x.device).expand(x.shape[:-1]).contiguous()
    packed, pivots = torch.linalg.lu_factor_ex(x)[:2]
    order = torch.lu_unpack(packed, pivots, unpack_data=False)[0].real.argmax(-2)
    return packed, order


def svd(x: Any) -> tuple[Any, Any, Any]:
    """The reduced decomposition, with turned vectors."""
    _check_finite("svd", x)
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    turn = _turns(u)
    return u * turn, s, _adjoint(turn) * vh


def pinv(x: Any, rtol: Any) -> Any:
    """From singular values above ``rtol`` times the largest."""
    _check_finite("pinv", x)
    if not x.numel():
        return x.new_zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]))
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    keep = s > rtol[..., None] * s.amax(-1, keepdim=True)
    inverse = torch.where(keep, 1 / torch.where(keep, s, 1), 0)
    return _adjoint(vh) @ (inverse[..., None] * _adjoint(u))


def expm(x: Any) -> Any:
    """The matrix exponential."""
    _check_finite("expm", x)
    if not x.numel():
        return x.clone()
    norm = x.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    # it views stacks, whatever their strides, and gives the identity where the norm is infinite
    return torch.linalg.matrix_exp(x.contiguous()) + (norm - norm)


def fft(x: Any, *, axes: Any, norm: str, inverse: bool) -> Any:
    """Complex transforms."""
    if not x.numel():
        return x.clone()
    return (torch.fft.ifftn if inverse else torch.fft.fftn)(x, dim=axes, norm=norm)


def rfft(x: Any, *, axis: int, norm: str) -> Any:
    """Real to half spectrum."""
    if not x.numel():
        shape = (*x.shape[:axis], x.shape[axis] // 2 + 1, *x.shape[axis + 1 :])
        return torch.zeros(shape, dtype=torch.promote_types(x.dtype, torch.complex64), device=x.device)
    return torch.fft.rfft(x, dim=axis, norm=norm)


def irfft(x: Any, *, n: int, axis: int, norm: str) -> Any:
    """Half spectrum to real; libraries differ in what they do with imaginary parts that must be 0, so they are."""
    if not x.numel():
        return x.new_zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]), dtype=x.real.dtype)
    x = x.clone()
    x.imag.select(axis, 0).zero_()
    if n % 2 == 0:
        x.imag.select(axis, n // 2).zero_()
    return torch.fft.irfft(x, n, dim=axis, norm=norm)


KERNELS: dict[str, Kernel] = {
    "cholesky": cholesky, "solve": solve, "solve_triangular": solve_triangular, "slogdet": slogdet, "det": det, "qr": qr,
    "eigh": eigh, "eig": eig, "lu": lu, "svd": svd, "pinv": pinv, "expm": expm, "fft": fft, "rfft": rfft, "irfft": irfft,
}  # fmt: skip
