"""Gradient rules held to the truth: on ``numpy`` in float64 against central differences, elsewhere against that.

``check_gradients`` proves the rules, once, whatever the engine. ``compare`` then holds a rule as it runs on an engine, at
the engine's own dtype, against the same rule in float64.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from firebrick.autodiff import gradcheck, vjp
from firebrick.autodiff.gradcheck import check_slopes
from firebrick.backends.registry import find_device
from firebrick.core.aval import Aval
from firebrick.core.dtypes import float64
from firebrick.core.errors import FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.op import MissingRule, Op, Sample
from firebrick.core.tensor import Tensor
from firebrick.graph import jit
from firebrick.ir.keys import key_of
from firebrick.ops import OPS
from firebrick.ops.accuracy import Deviation, deviation, widen
from firebrick.ops.accuracy import tolerance_of as tolerance_of_op
from firebrick.ops.declare import Array, values
from firebrick.testing.cases import Case, avals_of, chosen, samples_of
from firebrick.testing.report import Report, Verdict

GRADIENT_FACTOR = 8.0
"""A rule composes a few ops, each of which rounds: its tolerance is this many times the op's (at least one unit)."""

NO_DIFFERENCES = {
    "gamma_path": "its slope is that of the draw, not of its result; see tests/random/test_distributions_drawn.py",
}
"""Ops whose rules central differences cannot check, each with the reason; engines are compared all the same."""


def has_gradient(op: Op, sample: Sample) -> bool:
    """Whether a gradient check makes sense for an op at a sample."""
    ins, outs = avals_of(op, sample)
    return (
        op.differentiable
        and not isinstance(op.vjp, MissingRule)
        and sample.grad_safe
        and any(a.dtype.is_inexact for a in ins)
        and any(a.dtype.is_inexact for a in outs)
    )


def tolerance_of(op: Op, arrays: tuple[Array, ...]) -> float:
    """k of an op's gradient for these operands."""
    return GRADIENT_FACTOR * max(tolerance_of_op(op, arrays), 1.0)


def _pull(op: Op, operands: list[Tensor], params: dict[str, Any], cotangent: Tensor) -> tuple[Tensor, ...]:
    """The cotangents of the inexact operands, from that of the first inexact result."""
    places = [i for i, t in enumerate(operands) if t.dtype.is_inexact]

    def first(*floats: Tensor) -> Tensor:
        full = list(operands)
        for i, t in zip(places, floats, strict=True):
            full[i] = t
        out = op(*full, **params)
        return next(o for o in out if o.dtype.is_inexact) if isinstance(out, tuple) else out  # type: ignore[no-any-return]

    return vjp(first, *(operands[i] for i in places))[1](cotangent)


def _pull_of(name: str, params: dict[str, Any], operands: list[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
    return _pull(OPS[name], operands, params, cotangent)


def _wide(op: Op, arrays: tuple[Array, ...]) -> list[Tensor]:
    """Operands at the reference's precision; of a kernel, whose dtypes are its own, as they are."""
    home = find_device("numpy")
    narrow = op.program is not None and "float64" not in op.dtypes
    return [hooks.from_host(a if narrow else widen(a), home) for a in arrays]


class _Reference(NamedTuple):
    """Gradients in float64, and the sizes that their errors are relative to, of each inexact operand."""

    gradients: list[Array]
    sizes: list[float]


_kept: dict[Any, _Reference] | None = None


@contextmanager
def references_kept() -> Iterator[None]:
    """Within, ``compare`` computes a rule in float64 once for equal operands, whatever the engine and the mode."""
    global _kept
    outer = _kept
    _kept = {} if outer is None else outer
    try:
        yield
    finally:
        _kept = outer


def _reference(op: Op, arrays: tuple[Array, ...], params: dict[str, Any], u: Array) -> _Reference:
    if _kept is None:
        return _computed_reference(op, arrays, params, u)
    key = op, op.vjp, key_of(params), *((a.dtype.str, a.dtype.name, a.shape, a.tobytes()) for a in (*arrays, u))
    if key not in _kept:
        _kept[key] = _computed_reference(op, arrays, params, u)
    return _kept[key]


def _computed_reference(op: Op, arrays: tuple[Array, ...], params: dict[str, Any], u: Array) -> _Reference:
    wide = _cotangent(op, arrays, params, u)
    home = find_device("numpy")
    want = [g.numpy() for g in _pull(op, _wide(op, arrays), params, hooks.from_host(wide, home))]
    found = [want, *_magnitudes(op, arrays, params, hooks.from_host(np.abs(wide).astype(wide.dtype), home))]
    return _Reference(want, [max(map(_top, of)) for of in zip(*found, strict=True)])


def _magnitudes(op: Op, arrays: tuple[Array, ...], params: dict[str, Any], cotangent: Tensor) -> list[list[Array]]:
    """The gradients for |cotangent|, and where the op's errors are relative to its operands, for these without signs too."""
    found = [_pull(op, _wide(op, arrays), params, cotangent)]
    if op.scale == "operands":
        magnitudes = tuple(np.abs(a).astype(a.dtype) if a.dtype.kind not in "biu" else a for a in arrays)
        found.append(_pull(op, _wide(op, magnitudes), params, cotangent))
    return [[g.numpy() for g in gradients] for gradients in found]


def _drawn_cotangent(case: Case) -> Array:
    out = next(a for a in case.avals[1] if a.dtype.is_inexact)
    return values(np.random.default_rng(case.number), out.dtype.name, out.shape, -1, 1)


def pulled(case: Case, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients that an engine computes for a case, of the inexact operands."""
    pull = partial(_pull_of, case.op.name, case.sample.params)
    pull = case.programs.setdefault("pull", jit(pull)) if case.compiled else pull
    return pull([t.detach() for t in operands], hooks.from_host(_drawn_cotangent(case), case.device))


def compare(
    case: Case, arrays: tuple[Array, ...], got: tuple[Tensor, ...]
) -> Generator[Sequence[Tensor], Sequence[Array], Deviation]:
    """The worst deviation of the gradients on an engine, at its own dtype, from those in float64 on ``numpy``.

    A generator, which yields the gradients, ``pulled``, and is sent their values.

    Errors are relative to the largest element of the operand's gradient, of that with |cotangent| in place of the cotangent
    (a rule may sum), and of whatever else the op's own scale says: of a normalisation over equal elements, such as those of a
    broadcast operand, the terms of a rule are as large as 1 / √eps and cancel.
    """
    op, params, u = case.op, case.sample.params, _drawn_cotangent(case)
    reference = _reference(op, arrays, params, u)
    floor = max(map(_top, (*arrays, u))) if op.scale not in ("result", "operands") else 0.0
    if callable(op.scale) and "eps" in params:  # terms divided by a spread, √eps at least
        scales = op.scale(*map(widen, arrays), **params)
        floor = max(floor, _top(scales[0] if type(scales) is tuple else scales))
    k = tolerance_of(op, arrays)
    worst = Deviation(0.0, k, (), None, None)
    for g, w, size in zip((yield got), *reference, strict=True):
        found = deviation(g, w, k, np.full(w.shape, max(floor, size)))
        if not found.ok or found.units > worst.units:
            worst = found
            if not found.ok:
                break
    return worst


def _cotangent(op: Op, arrays: tuple[Array, ...], params: dict[str, Any], u: Array) -> Array:
    """``u`` in the dtype that the op's first inexact result has for operands at the reference's precision."""
    inferred = op.infer(*(t.aval for t in _wide(op, arrays)), **params)
    outs = (inferred,) if type(inferred) is Aval else inferred
    return u.astype(next(a for a in outs if a.dtype.is_inexact).dtype.np)


def _top(x: Array) -> float:
    return float(np.max(np.abs(widen(x)))) if x.size and x.dtype.kind != "b" else 0.0


def check_gradients(ops: Iterable[str] | None = None, *, order: int = 1, seed: int = 0) -> Report:
    """Check the gradient rules of ops in float64 and complex128 on ``numpy`` against central differences; of an op of one's own
    that has samples in float32 alone, in that, less exactly. Ops in ``NO_DIFFERENCES`` are left out.

    Args:
        ops: Names of ops; all by default.
        order: 1 checks every ``grad_safe`` sample; 2 checks the gradient of the gradient as well, on one sample of each dtype.
        seed: Of the samples.

    Example:
        >>> from firebrick.testing import check_gradients
        >>> check_gradients(["sin"]).ok
        True
    """
    report = Report("numpy:0", seed)
    home = find_device("numpy")
    for op, dtype in ((o, d) for o in chosen(ops) if o.name not in NO_DIFFERENCES for d in _widest(o)):
        safe = [s for s in samples_of(op, dtype, seed) if has_gradient(op, s)]
        if order > 1:
            safe = [s for s in safe if all(x.size for x in s.inputs) and any(x.size > 1 for x in s.inputs)][:1]
        for sample in safe:
            operands = [hooks.from_host(x, home) for x in sample.inputs]
            message = ""
            try:
                if dtype == "float32":
                    _check_narrow(op, operands, sample.params, order, seed)
                else:
                    gradcheck(lambda *xs, op=op, sample=sample: op(*xs, **sample.params), operands, order=order, seed=seed)
            except FirebrickError as e:
                message = f"{type(e).__name__}: {e}"
            report.add(Verdict(not message, op.name, dtype, sample.name, f"gradient {order}", "none", 0.0, message))
    return report


def _widest(op: Op) -> list[str]:
    wide: list[str] = [d for d in ("float64", "complex128") if d in op.dtypes]
    return wide or [d for d in op.dtypes if d == "float32"]


def _check_narrow(op: Op, operands: list[Tensor], params: dict[str, Any], order: int, seed: int) -> None:
    """``gradcheck`` of an op that computes in float32: of the op between casts, with a longer step."""
    narrow, cast = [t.dtype.is_inexact for t in operands], OPS["cast"]

    def widened(*xs: Tensor) -> Any:
        found = op(*(cast(x, dtype=t.dtype) if n else x for x, t, n in zip(xs, operands, narrow, strict=True)), **params)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(cast(r, dtype=float64) if r.dtype.is_floating else r for r in results)

    wide = [cast(t, dtype=float64) if n else t for t, n in zip(operands, narrow, strict=True)]
    check_slopes(widened, wide, order, 2.0**-10, 1e-2, seed, float(np.finfo(np.float32).eps))
