"""Rules of forward mode held to those of gradients: ``jvp`` of every op against its gradient rule, differentiated once more.

The gradient rules are proved by central differences (``testing.gradients``), in float64 on ``numpy``; so is what this compares
with. Tangents are those of all inexact operands together, and of each by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from firebrick.autodiff.forward import jvp
from firebrick.autodiff.linear import Linear
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.hooks import hooks
from firebrick.core.op import Op, Sample
from firebrick.core.tensor import Tensor
from firebrick.ops.accuracy import Deviation, deviation, widen
from firebrick.ops.declare import COMPLEX, FLOATS, Array, values
from firebrick.testing.cases import chosen, samples_of, storable
from firebrick.testing.gradients import has_gradient, tolerance_of
from firebrick.testing.report import Report, Verdict


def _of_some(op: Op, operands: list[Tensor], places: list[int], params: dict[str, Any]) -> Callable[..., tuple[Tensor, ...]]:
    """The inexact results as a function of some operands."""

    def fn(*some: Tensor) -> tuple[Tensor, ...]:
        full = list(operands)
        for i, t in zip(places, some, strict=True):
            full[i] = t
        out = op(*full, **params)
        return tuple(t for t in (out if isinstance(out, tuple) else (out,)) if t.dtype.is_inexact)

    return fn


def _check(op: Op, device: Device, sample: Sample, places: list[int], directions: list[Array]) -> Deviation:
    """The worst deviation of a tangent on a device, at its own dtype, from the one in float64 on ``numpy``."""
    home = find_device("numpy")
    near = [hooks.from_host(np.asarray(a), device) for a in sample.inputs]
    far = [hooks.from_host(widen(np.asarray(a)), home) for a in sample.inputs]
    along = [hooks.from_host(d, device) for d in directions]
    _, found = jvp(_of_some(op, near, places, sample.params), [near[i] for i in places], along)
    wide = [hooks.from_host(widen(d), home) for d in directions]
    at = Linear(_of_some(op, far, places, sample.params), [far[i] for i in places])
    k = tolerance_of(op, tuple(np.asarray(a) for a in sample.inputs))
    worst, condition = Deviation(0.0, k, (), None, None), _condition(op, sample)
    for got, want, y in zip(found, at.push(wide), at.results, strict=True):
        exact = np.zeros(y.shape, y.dtype.np) if want is None else want.numpy()
        finite = np.abs(exact[np.isfinite(exact)])
        scale = np.full(exact.shape, max(1.0, float(finite.max(initial=0.0))) * condition)
        d = deviation(got.numpy(), exact, k, scale)
        worst = d if d.units > worst.units or not d.ok else worst
        if not d.ok:
            break
    return worst


def _condition(op: Op, sample: Sample) -> float:
    """What a difference in the operands of a factorisation grows by: the gradient rule, which tangents are compared with, has
    errors of that size itself, even where the rule of forward mode has none."""
    if not (callable(op.scale) and op.fusion == "opaque" and len(op.operands) == 1):
        return 1.0
    found = op.scale(*(widen(np.asarray(a)) for a in sample.inputs), **sample.params)
    scales = [np.asarray(s) for s in (found if isinstance(found, tuple) else (found,))]
    return max(1.0, *(float(s[np.isfinite(s)].max(initial=1.0)) for s in scales))


def check_tangents(device: Any, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, seed: int = 0) -> Report:
    """Compare forward mode of ops, on a device, with their gradient rules.

    Args:
        device: Device or device string.
        ops: Names of ops; all by default.
        dtypes: Names of dtypes; ``("float64", "complex128")`` by default.
        seed: Of the samples and the directions.

    Returns:
        Counts, worst deviations by op, and the failures with their names.

    Example:
        >>> from firebrick.testing import check_tangents
        >>> check_tangents("numpy", ops=["multiply", "softmax"]).ok
        True
    """
    home, rng = find_device(device), np.random.default_rng(seed)
    report = Report(home.name, seed)
    wanted = [d for d in (*FLOATS, *COMPLEX) if d in (("float64", "complex128") if dtypes is None else tuple(dtypes))]
    for op in chosen(ops):
        for name in (d for d in wanted if d in op.dtypes):
            for sample in samples_of(op, name, seed):
                if not storable(home, op, sample) or not has_gradient(op, sample):
                    continue
                every = [i for i, a in enumerate(sample.inputs) if as_dtype(np.asarray(a).dtype).is_inexact]
                for places in [every, *([i] for i in every if len(every) > 1)]:
                    shown = f"{sample.name} along {', '.join(map(str, places))}"
                    given = [np.asarray(sample.inputs[i]) for i in places]
                    directions = [values(rng, as_dtype(a.dtype).name, a.shape, -1, 1) for a in given]
                    report.add(_verdict(op, home, name, shown, sample, places, directions))
    return report


def _verdict(
    op: Op, home: Device, dtype: str, name: str, sample: Sample, places: list[int], directions: list[Array]
) -> Verdict:
    units, message = 0.0, ""
    try:
        found = _check(op, home, sample, places, directions)
        units, message = found.units, "" if found.ok else f"the tangent is off by {found}"
    except Exception as e:  # noqa: BLE001 - an engine may raise anything, and the verdict says what
        message = f"{type(e).__name__}: {e}"
    return Verdict(not message, op.name, dtype, name, "contiguous", "none", units, message)
