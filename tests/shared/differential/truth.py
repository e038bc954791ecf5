"""What a program must give: its value in float64 by NumPy, its gradient by torch, and how far rounding may move them.

The scale of an error is measured, not assumed. The program is evaluated again several times in float64, every input and every
step multiplied by 1 + a · eps(dtype of the step) with a random a (Monte Carlo arithmetic). Where results move much, the program
is ill-conditioned, whatever the reason: cancellation, a kink, a tie. A result may be ``MARGIN`` times as far from the truth as
the XX
Source: Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from differential.program import EPS, HALVES, Program
from differential.rules import RULES, Rule

MARGIN = 4.0
Array = np.ndarray[Any, Any]
_NOISE = np.random.default_rng(0).uniform(0.5, 1.0, 1 << 18) * np.where(np.random.default_rng(1).random(1 << 18) < 0.5, -1, 1)


class Unstable(Exception):
    """A bool or an int of the program depends on rounding, or a value is not finite."""


class TruthError(Exception):
    """NumPy and torch give a program different values: a rule is wrong."""


@dataclass(frozen=True)
class Expected:
    """An array and how far from each element a result may be."""

    value: Array
    tolerance: Array

    def worst(self, got: Array) -> tuple[float, tuple[int, ...]]:
        """The largest error in units of the tolerance, and where it is."""
        if got.shape != self.value.shape:
            return np.inf, ()
        with np.errstate(all="ignore"):
            error = np.abs(np.subtract(got, self.value, dtype=np.float64)) / self.tolerance
        error = np.where(got == self.value, 0.0, np.where(np.isnan(error), np.inf, error))
        if not error.size:
            return 0.0, ()
        place = np.unravel_index(int(np.argmax(error)), error.shape)
        return float(error[place]), tuple(int(k) for k in place)


def amplitude(dtype: str) -> float:
    """By how much a value of a dtype is moved, relative to it; 0 for exact dtypes."""
    return EPS.get(dtype, 0.0) * (4.0 if dtype in HALVES else 16.0)


def amplitude_of_input(dtype: str) -> float:
    """The same for an operand of the program, which is exact: what computes with 16-bit numbers rounds in float32."""
    return amplitude("float32" if dtype in HALVES else dtype)


def amplitude_of_step(rule: Rule, result: str, operands: Iterable[str]) -> float:
    """The same for the result of a step: what is made of a 16-bit operand alone is rounded to 16 bits in a wide result too."""
    return max(map(amplitude, (result, *(operands if rule.composed and result in EPS else ()))))


def noise(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random numbers of size 0.5 to 1 and either sign: no two are equal, so that ties are broken."""
    size = math.prod(shape)
    start = int(rng.integers(len(_NOISE) - size))
    return _NOISE[start : start + size].reshape(shape)


def moved(value: Any, by: float, rng: np.random.Generator | None) -> Array:
    """A value with its elements multiplied by 1 ± ``by``; as it is without a generator."""
    array = np.asarray(value)
    if rng is None or array.dtype.kind != "f" or not by:
        return array
    return np.asarray(array * (1.0 + by * noise(array.shape, rng)))


def slack(value: Any, by: float, rng: np.random.Generator | None) -> Any:
    """A value times ± ``by``; 0 without a generator."""
    return np.asarray(value) * (0.0 if rng is None else by * noise(np.shape(value), rng))


def expected(runs: list[Array], dtype: str) -> Expected:
    """From an evaluation as it is and moved ones, for a result of a dtype."""
    exact, *others = runs
    if exact.dtype.kind != "f":
        if any(not np.array_equal(exact, o) for o in others):
            raise Unstable("a bool or an int depends on rounding")
        return Expected(exact, np.full(exact.shape, 0.5))
    if not all(np.isfinite(r).all() for r in runs):
        raise Unstable("a value is not finite")
    spread = np.max([np.abs(o - exact) for o in others], axis=0) if others else np.zeros(exact.shape)
    # two units at least, for what is exact in the program but rounded in the result; numbers near the end of a dtype's range
    # have fewer bits, and a product or a cotangent of what was as small on its way is as coarse
    tiny = {"float16": 2.0**-8, "float64": 1e-290}.get(dtype, 2.0**-100)
    return Expected(exact, np.maximum(MARGIN * spread, 2 * EPS[dtype] * np.maximum(np.abs(exact), tiny)))


def _amplitudes(program: Program) -> list[float]:
    """Of the steps, then of the inputs, so that inputs have negative numbers."""
    steps = [amplitude_of_step(RULES[s.rule], s.dtype, map(program.dtype, s.operands)) for s in program.steps]
    return steps + [amplitude_of_input(i.dtype) for i in program.inputs]


_CODE: dict[str, Any] = {"np": np, "math": math, "stop": lambda v: v}


def numpy_runs(program: Program, samples: int) -> list[tuple[Array, ...]]:
    """All values of the program by NumPy: as it is, and moved ``samples`` times."""
    by = _amplitudes(program)
    program = Program(program.seed, program.inputs, program.steps, tuple(range(len(by))), program.loss)
    space: dict[str, Any] = dict(_CODE)
    exec(compile(program.source("np", traced=True), "<random program>", "exec"), space)
    inputs = [i.truth for i in program.inputs]
    found = []
    for k in range(samples + 1):
        rng = np.random.default_rng([program.seed, k]) if k else None
        space["r"] = lambda v, i, rng=rng: moved(v, by[i], rng)
        space["e"] = lambda i, x, rng=rng: slack(x, by[i], rng)
        space["d"] = lambda i, x: 0.0
        with np.errstate(all="ignore"):
            found.append(space["program"](*inputs))
    return found


def numpy_truth(program: Program, samples: int) -> list[Expected]:
    """What the program's outputs must be.

    Raises:
        Unstable: A bool, an int or a value that is not finite depends on rounding, anywhere in the program.
    """
    runs = numpy_runs(program, samples)
    for value in range(len(runs[0])):
        if runs[0][value].dtype.kind != "f":
            expected([r[value] for r in runs], program.dtype(value))
    return [expected([r[v] for r in runs], program.dtype(v)) for v in program.outputs]


def torch_truth(program: Program, samples: int) -> tuple[list[Expected], list[Expected]]:
    """The outputs and the gradients of the loss by the float inputs.

    Raises:
        Unstable: As of ``numpy_truth``.
    """
    import torch

    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        return _torch_truth(program, samples)
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


def _torch_truth(program: Program, samples: int) -> tuple[list[Expected], list[Expected]]:
    import torch

    by = _amplitudes(program)
    space: dict[str, Any] = {"torch": torch, "math": math, "np": np}
    exec(compile(program.source("torch", traced=True, loss_first=True), "<random program>", "exec"), space)

    def tiny(v: Any, k: int) -> Any:
        return torch.from_numpy(np.asarray(by[k] * noise(tuple(v.shape), rng)))

    def move(v: Any, k: int) -> Any:
        return v * (1.0 + tiny(v, k)) if rng is not None and v.is_floating_point() else v

    def used(v: Any, k: int) -> Any:
        """A value as it is, whose cotangent from this use is rounded by itself: of v / v, only then does the gradient move."""
        if rng is None or not v.requires_grad:
            return v
        if program.steps[k].dtype == "float16":  # whose smallest numbers are 2⁻²⁴ apart
            lost.append((v * torch.from_numpy(np.asarray(2.0**-22 * noise(tuple(v.shape), rng)))).sum())
        return v.detach() + (v - v.detach()) * (1.0 + tiny(v, k))

    space["r"], space["c"], space["stop"] = move, used, lambda v: v.detach()
    space["e"] = lambda k, v: v.detach() * 0.0 if rng is None else v * tiny(v, k)
    space["d"] = lambda k, v: 0.0 if rng is None else (v - v.detach()) * tiny(v, k)

    others = [torch.from_numpy(np.array(i.truth)) for i in program.inputs if not i.is_float]
    floats = [i for i in program.inputs if i.is_float]
    outputs, gradients = [], []
    for k in range(samples + 1):
        leaves = [torch.from_numpy(np.array(i.truth)).requires_grad_() for i in floats]
        rng = np.random.default_rng([program.seed, k, 1]) if k else None
        lost: list[Any] = []
        loss, found = space["program"](leaves, *others)
        grads = torch.autograd.grad(sum(lost, loss), leaves, allow_unused=True)
        outputs.append([v.detach().numpy() for v in found])
        gradients.append([np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(leaves, grads, strict=True)])
    wants = [expected([np.asarray(run[j]) for run in outputs], program.dtype(v)) for j, v in enumerate(program.outputs)]
    coarse = "float16" if any(s.dtype == "float16" for s in program.steps) else ""
    return wants, [_smooth(expected([run[j] for run in gradients], coarse or i.dtype), i.dtype) for j, i in enumerate(floats)]


def _smooth(want: Expected, dtype: str) -> Expected:
    """A gradient; any is right where it jumps, at a kink or a tie, as which side takes it is for each library to say."""
    share = {"float64": 1e-6, "float32": 2e-3}.get(dtype, 1.0)  # more than rounding makes of a smooth one
    size = max(0.01, float(np.abs(want.value).max(initial=0.0)))  # where all is 0, terms cancel: those of a loss are no smaller
    jumps = float(want.tolerance.max(initial=0.0)) > share * size
    return Expected(want.value, np.full(want.value.shape, np.inf)) if jumps else want
