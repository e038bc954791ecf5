"""Runs a program in the ways that Firebrick has (engine; eager, ``jit``, compiled at any size; gradients), and judges each.

What is checked of a way: the outputs, and with a gradient the gradients by all float inputs, are within the tolerance of the
ground truth; two calls give the same bits; results of the first call are not written by the second; no input is written; dtypes
are those of the other ways.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from forced import kernels_of_any_size

import firebrick as fb
from differential.program import Program
from differential.truth import Array, Expected, TruthError, Unstable, numpy_truth, torch_truth

SAMPLES, MANY = 2, 48  # evaluations that measure the scale of errors: at first, and before a failure is believed


@dataclass(frozen=True)
class Way:
    """A way to run a program."""

    device: str
    mode: str  # "eager", "jit" or "forced": compiled whatever the size
    gradients: bool = False

    def __str__(self) -> str:
        return f"{self.device} {self.mode}{' gradients' if self.gradients else ''}"

    def __call__(self, program: Program) -> Outcome:
        """Run a program this way."""
        wrap: Callable[..., Any] = (lambda f: f) if self.mode == "eager" else fb.jit
        forced = kernels_of_any_size() if self.mode == "forced" else nullcontext()
        with fb.use_device(self.device), forced, warnings_as_before():
            inputs = _tensors(program)
            kept = [np.array(t.numpy()) for t in inputs]
            if self.gradients:
                fn = wrap(fb.value_and_grad(defined(program, True), has_aux=True))
                floats = [t for t, i in zip(inputs, program.inputs, strict=True) if i.is_float]
                others = [t for t, i in zip(inputs, program.inputs, strict=True) if not i.is_float]

                def call() -> list[fb.Tensor]:
                    (_, found), grads = fn(floats, *others)
                    return [*found, *grads]
            else:
                fn = wrap(defined(program, False))

                def call() -> list[fb.Tensor]:
                    return list(fn(*inputs))

            first = call()
            second = [_bits(t) for t in call()] if self.mode != "eager" else None
            found = [np.array(t.numpy()) for t in first]
            return Outcome(
                found,
                [t.dtype.name for t in first],
                second is None or second == [_bits(t) for t in first],
                all(_same(a, t.numpy()) for a, t in zip(kept, inputs, strict=True)),
            )


@dataclass(frozen=True)
class Outcome:
    """What one way gave: outputs, then gradients; whether a second call gave the same; whether the inputs are as they were."""

    arrays: list[Array]
    dtypes: list[str]
    repeatable: bool
    untouched: bool


@dataclass(frozen=True)
class Failure:
    """What is wrong with a program run one way."""

    way: Way
    what: str  # "value", "gradient", "raised", "repeat", "written", "dtype"
    place: int  # which output or gradient
    text: str

    @property
    def key(self) -> tuple[str, Way]:
        """What must stay the same while a program is made smaller."""
        return self.what, self.way


@contextmanager
def warnings_as_before() -> Iterator[None]:
    """Within, every shape is compiled without a word of how many there are."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.RecompileWarning)
        yield


def _tensors(program: Program) -> list[fb.Tensor]:
    """The inputs; equal ones are one tensor, views of one array share its storage."""
    bases: dict[Any, fb.Tensor] = {}
    views: dict[Any, fb.Tensor] = {}
    for i in program.inputs:
        base = i.values, i.dtype, i.shape, i.seed
        if base not in bases:
            bases[base] = fb.asarray(i.array)
        if i not in views:
            views[i] = i.view_of(bases[base], fb)
    return [views[i] for i in program.inputs]


def defined(program: Program, loss_first: bool) -> Callable[..., Any]:
    """The program as a function of Firebrick tensors, whose lines errors can show."""
    source = program.source("fb", loss_first=loss_first)
    file = f"<random program {program.seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"fb": fb}
    exec(compile(source, file, "exec"), space)
    made: Callable[..., Any] = space["program"]
    return made


def _bits(t: fb.Tensor) -> tuple[Any, ...]:
    array = t.numpy()
    return t.dtype.name, array.shape, array.tobytes()


def _same(a: Array, b: Array) -> bool:
    return a.tobytes() == np.ascontiguousarray(b).tobytes()


class Judge:
    """Judges the ways of one program; the ground truth is computed once, and with more samples before a failure is believed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dtypes: dict[bool, list[str]] = {}
        self._truth: dict[tuple[bool, int], list[Expected]] = {}

    def truth(self, gradients: bool, samples: int) -> list[Expected]:
        """Expected outputs, then gradients.

        Raises:
            Unstable: The program depends on rounding.
            TruthError: NumPy and torch differ.
        """
        key = gradients, samples
        if key not in self._truth:
            wants = numpy_truth(self.program, samples)
            if gradients:
                others, grads = torch_truth(self.program, samples)
                wants = [*wants, *grads]
                for a, b in zip(wants, others, strict=False):
                    units, place = a.worst(b.value)
                    if units > 1 and samples < MANY:
                        return self.truth(gradients, MANY)
                    if units > 8:
                        raise TruthError(
                            f"NumPy and torch differ at {place} by {units:.3g} tolerances on program {self.program.seed}:\n"
                            f"{self.program.source('np')}\n{self.program.source('torch')}"
                        )
                    if units > 1:
                        raise Unstable("NumPy and torch round it differently")
            self._truth[key] = wants
        return self._truth[key]

    def judge(self, way: Way) -> Failure | None:
        """What is wrong with a way, if anything.

        Raises:
            Unstable: The program depends on rounding.
        """
        self.truth(way.gradients, SAMPLES)
        try:
            got = way(self.program)
        except Exception as e:  # noqa: BLE001 - whatever it is, it is the finding
            return Failure(way, "raised", 0, f"{type(e).__name__}: {e}".strip())
        for samples in (SAMPLES, MANY):
            failure = self._compare(way, got, self.truth(way.gradients, samples))
            if failure is None:
                return None
        return failure

    def _compare(self, way: Way, got: Outcome, wants: list[Expected]) -> Failure | None:
        n = len(self.program.outputs)
        for k, (array, want) in enumerate(zip(got.arrays, wants, strict=True)):
            wide = array.astype(np.float64) if want.value.dtype.kind == "f" else array
            units, place = want.worst(wide)
            if units > 1:
                part = f"output {k}" if k < n else f"gradient {k - n}"
                if wide.shape != want.value.shape:
                    text = f"{part} has shape {wide.shape}, want {want.value.shape}"
                else:
                    text = (
                        f"{part} at {place}: got {wide[place]}, want {want.value[place]}, "
                        f"tolerance {want.tolerance[place]:.2g} ({units:.3g} times over)"
                    )
                return Failure(way, "value" if k < n else "gradient", k, text)
        if not got.repeatable:
            return Failure(way, "repeat", 0, "a second call with the same operands gave or left other results")
        if not got.untouched:
            return Failure(way, "written", 0, "an operand was written")
        if self.dtypes.setdefault(way.gradients, got.dtypes) != got.dtypes:
            return Failure(way, "dtype", 0, f"dtypes are {got.dtypes}, and {self.dtypes[way.gradients]} in another way")
        return None


def judged(program: Program, ways: Sequence[Way]) -> list[Failure]:
    """All that is wrong with a program; nothing if it depends on rounding."""
    judge = Judge(program)
    found = []
    for way in ways:
        try:
            failure = judge.judge(way)
        except Unstable:
            return []
        if failure is not None:
            found.append(failure)
    return found
