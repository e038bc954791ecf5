"""A random program is data: inputs, steps in order, and what is returned. It prints as Python for each of three libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from differential.rules import RULES, Params, Shape

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
HALVES = ("float16", "bfloat16")
NUMPY_DTYPES: dict[str, Any] = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "int64": np.int64, "bool": np.bool_,
}  # fmt: skip
# how the values of an input are drawn: {r} is a NumPy generator, {s} the shape
VALUES = {
    "normal": "{r}.normal(size={s})",
    "positive": "{r}.uniform(0.5, 2.0, size={s})",
    "shifted": "{r}.normal(20.0, 1.0, size={s})",
    "large": "{r}.normal(0.0, 30.0, size={s})",
    "small": "{r}.normal(0.0, 0.01, size={s})",
    "whole": "{r}.integers(-3, 4, size={s})",
    "truths": "{r}.random(size={s}) < 0.5",
}


@dataclass(frozen=True)
class Input:
    """An operand of the program: an array drawn from its own generator, seen through a view.

    Attributes:
        values: Key of ``VALUES``.
        dtype: Its dtype, by name.
        shape: Shape of the array that is drawn.
        view: Text of what is passed, with ``{x}`` for the array and ``{m}`` for the module (``fb`` or ``np``).
        seed: Of its generator.
    """

    values: str
    dtype: str
    shape: Shape
    view: str
    seed: int

    @cached_property
    def array(self) -> np.ndarray[Any, Any]:
        """The array that is drawn, in the input's dtype."""
        drawn = eval(self._drawn(), {"np": np})
        return np.asarray(drawn, np.float64 if self.is_float else None).astype(NUMPY_DTYPES[self.dtype])

    @cached_property
    def truth(self) -> np.ndarray[Any, Any]:
        """What is passed, widened to float64 for floats."""
        wide = self.array.astype(np.float64) if self.is_float else self.array
        return np.asarray(eval(self.view.format(x="x", m="np"), {"np": np, "x": wide}))

    @property
    def is_float(self) -> bool:
        return self.dtype in EPS

    def _drawn(self) -> str:
        return VALUES[self.values].format(r=f"np.random.default_rng({self.seed})", s=self.shape)

    def source(self, module: str) -> str:
        """The input as an expression of Firebrick or NumPy."""
        made = f"fb.asarray({self._drawn()}, dtype=fb.{self.dtype})" if module == "fb" else f"np.asarray({self._drawn()})"
        return self.view.format(x=made, m=module)

    def view_of(self, array: Any, fb: Any) -> Any:
        """What is passed of a Firebrick tensor."""
        return array if self.view == "{x}" else eval(self.view.format(x="x", m="fb"), {"fb": fb, "x": array})


@dataclass(frozen=True)
class Step:
    """One application of a rule to earlier values (inputs first, then steps)."""

    rule: str
    operands: tuple[int, ...]
    params: Params
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        seed: What it was drawn from.
        inputs: Its operands.
        steps: What it does, in order.
        outputs: Values that it returns.
        loss: The value that gradients are taken of, or None.

    Equal inputs are one tensor, passed more than once; inputs that differ only in their view share its storage.
    """

    seed: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    loss: int | None

    def dtype(self, value: int) -> str:
        n = len(self.inputs)
        return self.inputs[value].dtype if value < n else self.steps[value - n].dtype

    def name(self, value: int) -> str:
        n = len(self.inputs)
        return f"x{value}" if value < n else f"v{value - n}"

    def body(self, library: str, traced: bool = False) -> Iterable[str]:
        """The steps as statements of a library.

        If ``traced``, each passes through ``r(value, number)`` with its slack, whose ``e`` and ``d`` take the number too, and
        torch's operands pass through ``c(value, number)``, for their cotangents.
        """
        for k, step in enumerate(self.steps):
            rule = RULES[step.rule]
            names = [self.name(v) for v in step.operands]
            if traced and library == "torch":
                names = [f"c({name}, {k})" for name in names]
            text = getattr(rule, library).format(*names, **step.params)
            if traced and rule.slack:
                slack = re.sub(r"\b([ed])\(", rf"\1({k}, ", rule.slack).replace("np.", f"{library}.")
                text = f"{text} + {slack.format(*names, **step.params)}"
            yield f"v{k} = r({text}, {k})" if traced else f"v{k} = {text}"

    def source(self, library: str, traced: bool = False, loss_first: bool = False) -> str:
        """A function ``program`` of the inputs that returns the outputs.

        Args:
            library: ``fb``, ``np`` or ``torch``.
            traced: As in ``body``; the inputs pass through ``r`` too.
            loss_first: Whether it takes the float inputs as a list, then the others, and returns (loss, outputs).
        """
        names = [f"x{k}" for k in range(len(self.inputs))]
        floats = [n for n, i in zip(names, self.inputs, strict=True) if i.is_float]
        others = [n for n in names if n not in floats]
        lines = [f"def program({', '.join(['floats', *others] if loss_first else names)}):"]
        if loss_first:
            lines.append(f"    [{', '.join(floats)}] = floats")
        if traced:
            lines += [f"    {n} = r({n}, {k - len(names)})" for k, n in enumerate(names)]
        lines += [f"    {line}" for line in self.body(library, traced)]
        outputs = f"({', '.join(map(self.name, self.outputs))},)"
        if loss_first:
            assert self.loss is not None
            lines.append(f"    return {self.name(self.loss)}, {outputs}")
        else:
            lines.append(f"    return {outputs}")
        return "\n".join([*lines, ""])

    def pruned(self) -> Program:
        """Without the steps and inputs that no output needs."""
        wanted = {*self.outputs, *(() if self.loss is None else (self.loss,))}
        n = len(self.inputs)
        for k in range(len(self.steps) - 1, -1, -1):
            if k + n in wanted:
                wanted.update(self.steps[k].operands)
        kept = [v for v in range(n + len(self.steps)) if v in wanted]
        place = {v: k for k, v in enumerate(kept)}
        steps = tuple(
            Step(s.rule, tuple(place[v] for v in s.operands), s.params, s.dtype, s.shape)
            for k, s in enumerate(self.steps)
            if k + n in wanted
        )
        inputs = tuple(i for k, i in enumerate(self.inputs) if k in wanted)
        loss = None if self.loss is None else place[self.loss]
        return Program(self.seed, inputs, steps, tuple(place[v] for v in self.outputs), loss)
