"""``gradcheck``: gradient rules against central differences, in float64 and complex128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.autodiff.tape import grad_mode
from firebrick.autodiff.transforms import check_arguments, vjp
from firebrick.core.dtypes import complex_of, float64
from firebrick.core.errors import DTypeError, GradientError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor


def gradcheck(
    fn: Callable[..., Any],
    inputs: Sequence[Tensor],
    *,
    order: int = 1,
    step: float = 1e-6,
    rtol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Check the gradient of ``fn`` by every floating or complex input along random directions.

    For a random cotangent u and direction v, ⟨pullback(u), v⟩ must equal the central difference of ⟨fn, u⟩ along v. Complex
    numbers count as pairs of real ones: both parts are moved, and ⟨a, b⟩ is the real part of Σ conj(a) · b.

    Args:
        fn: Function of tensors that returns a tensor or a tuple of them; must be smooth at ``inputs``.
        inputs: Tensors; the floating ones (float64) and the complex ones (complex128) are checked.
        order: 2 checks the gradient of the gradient as well.
        step: Half the distance of the two points.
        rtol: Largest difference, relative to the size of the terms summed.
        seed: Of the random directions.

    Raises:
        GradientError: The gradient is wrong; the message gives both values.
        DTypeError: A floating or complex input is not float64 or complex128.
        OperandError: The inputs are one tensor, no list.

    Example:
        >>> import firebrick as fb
        >>> fb.gradcheck(fb.sin, [fb.asarray([0.5, 1.0], dtype=fb.float64)])
    """
    check_arguments("gradcheck", "inputs", inputs, "write fb.gradcheck(fn, [x]) for a function of one argument")
    check_slopes(fn, inputs, order, step, rtol, seed, float(np.finfo(np.float64).eps))


def check_slopes(
    fn: Callable[..., Any], inputs: Sequence[Tensor], order: int, step: float, rtol: float, seed: int, precision: float
) -> None:  # fmt: skip
    """``gradcheck`` of a function whose results are rounded to a precision, whatever their dtype."""
    checked = [i for i, t in enumerate(inputs) if t.dtype.is_inexact]
    for i in checked:
        wide = complex_of(float64) if inputs[i].dtype.kind == "complex" else float64
        if inputs[i].dtype is not wide:
            raise DTypeError(
                f"gradcheck needs {wide.name}", f"input {i}: {inputs[i].aval}", f"cast it: fb.astype(x, fb.{wide.name})"
            )
    rng = np.random.default_rng(seed)

    def like(t: Tensor) -> Tensor:
        drawn = rng.uniform(-1, 1, t.shape)
        if t.dtype.kind == "complex":
            drawn = drawn + 1j * rng.uniform(-1, 1, t.shape)
        made: Tensor = hooks.from_host(drawn, t.device)
        return made

    def outputs_of(result: Any) -> list[Tensor]:
        items = result if isinstance(result, tuple) else (result,)
        return [o for o in items if o.dtype.is_inexact]

    for k in range(len(outputs_of(fn(*inputs)))):
        _check_output(fn, list(inputs), checked, k, outputs_of, like, order, step, rtol, precision)


def _linearised(fn: Callable[..., Tensor], primals: list[Tensor]) -> tuple[Tensor, Any]:
    """``vjp``, also of a function that its arguments do not reach: its pullback is zero, which is checked like any."""
    with grad_mode(False):
        plain = fn(*primals)
    try:
        return vjp(fn, *primals)
    except GradientError as e:
        if not e.expected.startswith("the result must depend"):
            raise
        return plain, lambda u: tuple(hooks.from_host(np.zeros(p.shape, p.dtype.np), p.device) for p in primals)


def _check_output(
    fn: Callable[..., Any], inputs: list[Tensor], checked: list[int], k: int, outputs_of: Any, like: Any, order: int,
    step: float, rtol: float, precision: float,
) -> None:  # fmt: skip
    def of_floats(*xs: Tensor) -> Tensor:
        full = list(inputs)
        for i, x in zip(checked, xs, strict=True):
            full[i] = x
        out: Tensor = outputs_of(fn(*full))[k]
        return out

    primals = [inputs[i] for i in checked]
    out, pull = _linearised(of_floats, primals)
    u = like(out)
    slopes = pull(u)
    for n, i in enumerate(checked):
        v = like(inputs[i])
        host_v = v.numpy()

        def at(t: float, n: int = n, host_v: Any = host_v) -> Any:
            moved = list(primals)
            moved[n] = hooks.from_host(primals[n].numpy() + t * host_v, primals[n].device)
            with grad_mode(False):
                return of_floats(*moved).numpy()

        host_u = u.numpy()
        numeric_terms = np.real(np.conj(host_u) * (at(step) - at(-step))) / (2 * step)
        analytic_terms = np.real(np.conj(slopes[n].numpy()) * host_v)
        numeric, analytic = float(np.sum(numeric_terms)), float(np.sum(analytic_terms))
        size = float(np.sum(np.abs(numeric_terms)) + np.sum(np.abs(analytic_terms)))
        noise = 64 * precision / step * float(np.sum(np.abs(host_u * at(0.0))))
        if not abs(numeric - analytic) <= rtol * size + noise + 1e-12:
            raise GradientError(
                f"the gradient by input {i} must equal the slope of output {k}",
                f"gradient {analytic:.10g}, central difference {numeric:.10g} (shape {inputs[i].shape})",
                "check the gradient rule",
            )
    if order > 1:
        weights = hooks.from_host(np.asarray(u.numpy()), u.device)

        def first(*xs: Tensor) -> Any:
            return vjp(of_floats, *xs)[1](weights)

        if any(t.size for t in primals):
            check_slopes(lambda *xs: first(*xs), primals, order - 1, step, rtol * 10, 0, precision)
