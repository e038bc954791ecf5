"""Special functions: PyTorch's in float64, with what it lacks: the relative error of ψ next to its zero, negative numbers of
higher derivatives, and the last digits of the inverse error function."""

from __future__ import annotations

import math
from functools import wraps
from typing import Any

import torch

from firebrick.backends.torch.precision import Kernel, in_float32
from firebrick.ops.special import zeta
from firebrick.scalar.gamma import cotangent_polynomial
from firebrick.scalar.special_coefficients import DIGAMMA_ROOT, TABLE


def _in_float64(kernel: Kernel) -> Kernel:
    """A function of float32 operands computed in float64 and rounded once; MPS has no float64."""

    @wraps(kernel)
    def run(x: Any, **params: Any) -> Any:
        if x.dtype is torch.float32 and x.device.type != "mps":
            return kernel(x.double(), **params).float()
        return kernel(x, **params)

    return in_float32(run)


def _polynomial(x: Any, coefficients: Any) -> Any:
    out = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


def _reflected(x: Any) -> tuple[Any, Any, Any]:
    """Whether x is negative, the positive number that is computed with, and the distance of x from an integer."""
    below = x < 0
    return below, torch.where(below, 1 - x, x), x - torch.round(x)


def _sine(part: Any) -> Any:
    """sin(π · part) / π for |part| ≤ ½."""
    return part * torch.sinc(part)


def _cotangent(part: Any) -> Any:
    """cot(π · part) for |part| ≤ ½."""
    return _sine(0.5 - part.abs()) / _sine(part)


def _lgamma(x: Any) -> Any:
    below, up, part = _reflected(x)
    out = torch.lgamma(up)
    pole = (part == 0) | torch.isinf(x)
    return torch.where(below, torch.where(pole, torch.inf, -torch.log(_sine(part).abs()) - out), out)


def _digamma(x: Any) -> Any:
    below, up, part = _reflected(x)
    first, second = DIGAMMA_ROOT["float64"]
    near = (up - first - second) * _polynomial(up - 1.5, TABLE["DIGAMMA", "float64"])
    out = torch.where((up - 1.5).abs() <= 0.5, near, torch.digamma(up))
    reflected = torch.where(part == 0, torch.nan, out - math.pi * _cotangent(part))
    return torch.where(below, reflected, out)


def _polygamma(x: Any, *, n: int) -> Any:
    below, up, part = _reflected(x)
    size = zeta(n + 1, up) * float(math.factorial(n))
    reflected = -size - math.pi ** (n + 1) * _polynomial(_cotangent(part), cotangent_polynomial(n))
    reflected = torch.where(part == 0, torch.inf if n % 2 else torch.nan, reflected)
    return torch.where(below, reflected, size if n % 2 else -size)


def _erfinv(x: Any) -> Any:
    """The same polynomials as compiled kernels: PyTorch's own iteration stops at 1 - 2^-53 with fewer digits."""
    distance = -torch.log((1.0 - x) * (1.0 + x))
    root = torch.sqrt(distance)
    far = _polynomial(root - 3.125, TABLE["ERFINV_FAR", "float64"])
    far = torch.where(root < 4.015625, far, _polynomial(root - 5.125, TABLE["ERFINV_END", "float64"]))
    out = x * torch.where(distance < 5.0, _polynomial(distance - 2.5, TABLE["ERFINV", "float64"]), far)
    end = torch.where(x.abs() == 1, x * torch.inf, torch.nan)
    return torch.where(x.abs() < 1, out, end)


def _bessel(scaled: Kernel, odd: bool = False) -> Kernel:
    """A Bessel function from the one that is divided by exp(|x|), which overflows where the result does not yet."""

    def run(x: Any) -> Any:
        near = x.clamp(-1500.0, 1500.0)
        half = torch.exp(near.abs() * 0.5)
        return torch.copysign(half * scaled(near) * half, x) if odd else half * scaled(near) * half

    return run


def _gamma_path(alpha: Any, log_z: Any) -> Any:
    return log_z.expand(torch.broadcast_shapes(alpha.shape, log_z.shape)).clone()


PLAIN: dict[str, Kernel] = {
    "gamma_path": _gamma_path,
    "lgamma": _in_float64(_lgamma), "digamma": _in_float64(_digamma),
    "erfinv": _in_float64(_erfinv), "i0": _in_float64(_bessel(torch.special.i0e)),
    "i1": _in_float64(_bessel(torch.special.i1e, odd=True)),
}  # fmt: skip


KERNELS: dict[str, Kernel] = {**PLAIN, "polygamma": _in_float64(_polygamma)}
