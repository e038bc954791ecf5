"""Draws programs whose axes have few sizes, {1, n}, so that any axis can be taken for another.

``Drawing.emit`` adds a step if it can be judged: its value is finite, not too large, and moves little under rounding. What is
drawn is mostly: reduce, bring the result back by a trailing broadcast, ``[None]``, ``[:, None]``, a transpose or a reshape, and
use it with what it came from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from differential import idioms
from differential.program import EPS, HALVES, Input, Program, Step
from differential.rules import FAMILIES, RULES, Rule, Shape, reduction
from differential.truth import MARGIN, Array, amplitude_of_input, amplitude_of_step, moved, slack

SIZES = (2, 3, 5, 7, 16, 32, 33, 64)
FAMILY_WEIGHTS = {
    "unary": 14, "number": 7, "binary": 18, "choice": 4, "comparison": 4, "int": 2, "cast": 2, "reduction": 12, "test": 3,
    "along": 6, "movement": 14, "gather": 3, "product": 7, "loss": 2,
}  # fmt: skip
FLAT = ("floor", "ceil", "round", "trunc", "sign")  # no gradient passes
_WIDTH = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
_SAMPLES = 2


class Drawing:
    """A program under construction.

    Attributes:
        d: The random choices.
        dtype: Of most floats.
        n: The size of most axes.
        shapes, dtypes: Of the values so far; inputs and steps are numbered as they come.
    """

    def __init__(self, seed: int) -> None:
        self.d = d = Random(seed)
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.dtype = d.choices(["float32", "float64", "float16", "bfloat16"], [60, 25, 9, 6])[0]
        self.n = d.choices(SIZES, [2, 3, 3, 2, 2, 3, 2, 1])[0]
        self.sizes = [self.n] * 8 + [1] * 2 + [d.choice(SIZES[:5])]
        if d.random() < 0.1:
            self.sizes = [1]
        self.largest = 40_000 if d.random() < 0.04 else 5000
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.order: list[int] = []  # of values: k for input k, -1 - k for step k
        self.shapes: list[Shape] = []
        self.dtypes: list[str] = []
        self.runs: list[list[Array]] = []

    # values

    def kind(self, value: int) -> str:
        dtype = self.dtypes[value]
        return "f" if dtype in EPS else "b" if dtype == "bool" else "i"

    def of_kind(self, kind: str) -> list[int]:
        return [v for v in range(len(self.shapes)) if kind == "a" or self.kind(v) == kind]

    def pick(self, kind: str, ranks: tuple[int, ...] = ()) -> int | None:
        """A value, more often a late one."""
        found = [v for v in self.of_kind(kind) if not ranks or len(self.shapes[v]) in ranks]
        if not found:
            return None
        return self.d.choice(found[-4:] if self.d.random() < 0.65 else found)

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        """A random shape of few sizes, small enough."""
        rank = self.d.choices(range(low, high + 1), [(1, 2, 10, 6, 2)[k] for k in range(low, high + 1)])[0]
        shape = tuple(self.d.choice(self.sizes) for _ in range(rank))
        while math.prod(shape) > self.largest:
            shape = shape[1:]
        return shape

    def _keep(self, runs: list[Array], dtype: str) -> int:
        self.runs.append(runs)
        self.shapes.append(runs[0].shape)
        self.dtypes.append(dtype)
        return len(self.shapes) - 1

    def input(self, shape: Shape, values: str = "", dtype: str = "", view: bool = True) -> int:
        """A new input of a shape."""
        d = self.d
        dtype = dtype or self.dtype
        if not values:
            values = d.choices(["normal", "positive", "shifted", "large", "small"], [10, 4, 0.6, 0.6, 0.6])[0]
        base, text = shape, "{x}"
        if view and shape and d.random() < 0.3:
            base, text = self._view(shape)
        made = Input(values, dtype, base, text, self.seed * 100 + len(self.inputs))
        self.inputs.append(made)
        self.order.append(len(self.inputs) - 1)
        exact = made.truth
        assert exact.shape == shape, (made, shape)
        return self._keep([exact, *(moved(exact, amplitude_of_input(dtype), self.rng) for _ in range(_SAMPLES))], dtype)

    def again(self) -> None:
        """An input once more: the same tensor, or its storage seen from the other end."""
        old = self.d.choice(self.inputs)
        turned = self.d.random() < 0.5 and old.view == "{x}" and bool(old.shape)
        made = replace(old, view="{x}[::-1]") if turned else old
        self.inputs.append(made)
        self.order.append(len(self.inputs) - 1)
        by = amplitude_of_input(made.dtype)
        self._keep([made.truth, *(moved(made.truth, by, self.rng) for _ in range(_SAMPLES))], made.dtype)

    def _view(self, shape: Shape) -> tuple[Shape, str]:
        """A shape and a view of it that has the wanted shape."""
        d = self.d
        way = d.randrange(6)
        if way == 0:
            return shape[::-1], "{x}.T" if len(shape) == 2 else f"{{m}}.permute_dims({{x}}, {tuple(range(len(shape)))[::-1]})"
        if way == 1:
            k = d.randrange(len(shape))
            return shape, f"{{x}}[{', '.join([':'] * k + ['::-1'])}]"
        if way == 2 and math.prod(shape) * 2 <= self.largest:
            return (*shape[:-1], 2 * shape[-1]), "{x}[..., ::2]"
        if way == 3 and math.prod(shape) * 2 <= self.largest:
            return (2 * shape[0], *shape[1:]), "{x}[1::2]"
        if way == 4:
            k = d.randrange(len(shape))
            return (*shape[:k], 1, *shape[k + 1 :]), f"{{m}}.broadcast_to({{x}}, {shape})"
        return (*shape, 2), "{x}[..., 1]"

    def emit(self, name: str, *operands: int | None, **params: Any) -> int | None:
        """A step, if it can be judged; its value, or None."""
        if None in operands:
            return None
        values = [v for v in operands if v is not None]
        rule = RULES[name]
        dtype = self._result(rule, values)
        if dtype is None:
            return None
        text = rule.np.format(*(f"v{v}" for v in values), **params)
        if rule.slack:
            text = f"{text} + {rule.slack.format(*(f'v{v}' for v in values), **params)}"
        code = compile(text, "<step>", "eval")
        by = amplitude_of_step(rule, dtype, [self.dtypes[v] for v in values])
        runs: list[Array] = []
        for k in range(_SAMPLES + 1):
            rng = self.rng if k else None
            space: dict[str, Any] = {"np": np, "math": math, "stop": np.asarray, "d": lambda x: 0.0}
            space["e"] = lambda x, rng=rng: slack(x, by, rng)
            found = np.asarray(eval(code, space | {f"v{v}": self.runs[v][k] for v in values}))
            if not 0 < found.size <= self.largest or found.ndim > 5:
                return None
            runs.append(moved(found, by, rng))
        if not self._judged(runs, dtype):
            return None
        self.steps.append(Step(name, tuple(values), params, dtype, runs[0].shape))
        self.order.append(-len(self.steps))
        return self._keep(runs, dtype)

    def _result(self, rule: Rule, values: list[int]) -> str | None:
        """The result's dtype; None if the operands have no common one here."""
        floats = [self.dtypes[v] for v in values if self.kind(v) == "f"]
        if len({f for f in floats if f in HALVES}) > 1 or (len(set(floats)) > 1 and rule.joined != "broadcast"):
            return None
        if rule.result in ("=", "f"):
            return self.dtypes[values[0]] if rule.result == "=" else max(floats, key=lambda f: _WIDTH[f])
        return {"i": "int64", "b": "bool"}.get(rule.result, rule.result)

    def _judged(self, runs: list[Array], dtype: str) -> bool:
        exact = runs[0]
        if exact.dtype.kind != "f":
            stable = all(np.array_equal(exact, r) for r in runs[1:])
            return stable and (exact.dtype.kind == "b" or int(np.abs(exact).max()) < 1 << 20)
        high = max(float(np.abs(r).max()) for r in runs)
        if not high < (200.0 if self.dtype in HALVES or dtype in HALVES else 2000.0):
            return False
        if (
            0.0 < float(np.abs(exact).max()) < (1e-3 if "float16" in (self.dtype, dtype) else 1e-10)
        ):  # whose squares leave the dtype's range
            return False
        spread = max(float(np.abs(r - exact).max()) for r in runs[1:])
        return MARGIN * spread <= (0.5 if self.dtype in HALVES or dtype in HALVES else 0.05) * max(
            1.0, float(np.abs(exact).max())
        )

    # steps

    def aligned(self, value: int, shape: Shape) -> int | None:
        """A value brought by a random way to a shape that broadcasts with another."""
        d, own = self.d, self.shapes[value]
        ways: list[tuple[str, dict[str, Any]]] = [("", {})] * 2
        if len(own) < 4:
            ways += [("index", {"index": "None"}), ("index", {"index": "..., None"})]
            ways += [("expand_dims", {"axis": d.randint(0, len(own))})]
            ones = list(own)
            for _ in range(d.randint(1, 2)):
                ones.insert(d.randint(0, len(ones)), 1)
            ways.append(("reshape", {"shape": tuple(ones)}))
        if own and len(own) < 4:
            ways += [("index", {"index": ":, None"})] * 2
        if len(own) == 2:
            ways.append(("transpose", {}))
        if len(own) > 1:
            axes = list(range(len(own)))
            d.shuffle(axes)
            ways.append(("permute", {"axes": tuple(axes)}))
        d.shuffle(ways)
        for name, params in ways:
            # the result's shape by a view that holds no memory
            text = RULES[name].np.format("v", **params) if name else "v"
            got = eval(text, {"np": np, "v": np.broadcast_to(np.float32(0), own)}).shape
            try:
                both = np.broadcast_shapes(got, shape)
            except ValueError:
                continue
            if math.prod(both) <= self.largest and len(both) <= 4:
                return self.emit(name, value, **params) if name else value
        return None

    def apply(self, rule: Rule) -> int | None:
        """A step of a rule on some of the values."""
        d = self.d
        first = self.pick(rule.kinds[0], rule.ranks)
        if first is None:
            first = self._made(rule.kinds[0], rule.ranks)
        if first is None:
            return None
        chosen = [first]
        for kind in rule.kinds[1:]:
            if rule.joined == "equal" and kind == "f":
                fits = [v for v in self.of_kind(kind) if self.shapes[v] == self.shapes[first]]
                value = d.choice(fits) if d.random() < 0.5 else self.input(self.shapes[first], dtype=self.dtypes[first])
            else:
                value = self.pick(kind)
            if value is None:
                value = self._made(kind)
            if value is None:
                return None
            chosen.append(value)
        if rule.joined == "broadcast":
            shape = self.shapes[chosen[0]]
            for k in range(1, len(chosen)):
                value = self.aligned(chosen[k], shape)
                if value is None and self.kind(chosen[k]) == "f":
                    value = self.input(shape)
                if value is None:
                    return None
                chosen[k] = value
                shape = np.broadcast_shapes(shape, self.shapes[value])
        params = rule.draw(d, [self.shapes[v] for v in chosen])
        if params is None and rule.others is not None:
            shapes = rule.others(d, self.shapes[first], self.sizes)
            if max(map(math.prod, shapes)) > self.largest:
                return None
            for k, (kind, shape) in enumerate(zip(rule.kinds[1:], shapes, strict=True), 1):
                chosen[k] = self.input(shape, "whole", "int64") if kind == "i" else self.input(shape, dtype=self.dtypes[first])
            params = rule.draw(d, [self.shapes[v] for v in chosen])
        return None if params is None else self.emit(rule.name, *chosen, **params)

    def _made(self, kind: str, ranks: tuple[int, ...] = ()) -> int | None:
        """A value of a kind where there is none yet."""
        if kind == "b":
            return self.apply(RULES["greater_number"])
        low, high = (min(ranks), max(ranks)) if ranks else (1, 2)
        shape = self.shape(low, high)
        if len(shape) < low:
            return None
        return self.input(shape, "whole", "int64") if kind == "i" else self.input(shape)

    def step(self) -> None:
        """One more rule, drawn by family; another one where none of its operands or parameters fit."""
        for _ in range(3):
            family = self.d.choices(list(FAMILY_WEIGHTS), list(FAMILY_WEIGHTS.values()))[0]
            rules = FAMILIES[family]
            if self.apply(self.d.choices(rules, [r.weight for r in rules])[0]) is not None:
                return

    def reduce_and_return(self) -> None:
        """A reduction, aligned by chance with what it came from, or with something else, and used with it."""
        d = self.d
        x = self.pick("f")
        if x is None or not self.shapes[x]:
            return
        rules = [*FAMILIES["reduction"], RULES["any_greater"]]
        rule = d.choices(rules, [r.weight for r in rules])[0]
        params = rule.draw(d, [self.shapes[x]])
        if params is not None and d.random() < 0.6:  # along one axis that is not kept: what another axis is mistaken for
            n = len(self.shapes[x])
            params |= reduction(n, d.randrange(-n, n)) | ({"correction": 0} if "correction" in params else {})
        reduced = self.emit(rule.name, x, **params) if params is not None else None
        if reduced is None:
            return
        if d.random() < 0.3 and self.kind(reduced) == "f":
            unary = d.choice(FAMILIES["unary"])
            used = unary.draw(d, [self.shapes[reduced]])
            made = self.emit(unary.name, reduced, **(used or {}))
            reduced = reduced if made is None else made
        other = x if d.random() < 0.6 else self.pick("f")
        assert other is not None
        back = self.aligned(reduced, self.shapes[other])
        if back is None:
            return
        if self.kind(back) == "b":
            self.emit("where", back, other, self.emit("negative", other))
            return
        operands = [other, back] if d.random() < 0.7 else [back, other]
        self.emit(
            d.choice(["add", "subtract", "multiply", "divide", "divide_safely", "maximum", "squared_difference"]), *operands
        )

    def finish(self, gradients: bool) -> Program | None:
        """The program; with ``gradients`` it ends in a loss of all that it returns."""
        d = self.d
        made = [v for v, k in enumerate(self.order) if k < 0]
        if not made:
            return None
        used = {v for s in self.steps for v in s.operands}
        ends = [v for v in made if v not in used]
        d.shuffle(ends)
        outputs = ends[: d.choice([1, 2, 3, 4])]
        if d.random() < 0.4:
            outputs.append(d.choice(made))
        outputs = list(dict.fromkeys(outputs))
        loss = None
        if gradients:
            for v in [v for v in (*outputs, *made[::-1]) if self.kind(v) == "f"][: max(1, len(outputs))]:
                term = self._term(v)
                if term is not None:
                    both = term if loss is None else self.emit("add", loss, term)
                    loss = loss if both is None else both
            if loss is None or not self._depends(loss):
                return None
        return self._numbered(outputs, loss).pruned()

    def _term(self, value: int) -> int | None:
        """A scalar of a value."""
        d = self.d
        axis = {"axis": None, "dim": tuple(range(len(self.shapes[value]))), "keepdims": False}
        way = d.randrange(6)
        if way == 0:
            return self.emit("sum", value, **axis) or self.emit("mean", value, **axis)
        if way == 1:
            return self.emit("mean", self.emit("square", value), **axis)
        if way == 2:
            return self.emit("logsumexp", value, **axis)
        if way == 3:
            return self.emit("mean", self.emit("tanh", value), **axis)
        weight = self.input(self.shapes[value], "normal", self.dtypes[value], view=False)
        weighted = self.emit("multiply", value, weight)
        return self.emit("sum" if way == 4 else "mean", weighted, **axis) or self.emit("mean", weighted, **axis)

    def _depends(self, value: int) -> bool:
        """Whether a value depends on a float input through steps on floats."""
        if self.order[value] >= 0:
            return self.kind(value) == "f"
        step = self.steps[-1 - self.order[value]]
        if step.rule in FLAT:
            return False
        operands = step.operands[:1] if step.rule == "take_along_axis" else step.operands
        return any(self.kind(v) == "f" and self._depends(v) for v in operands)

    def _numbered(self, outputs: Sequence[int], loss: int | None) -> Program:
        """With inputs numbered first."""
        n = len(self.inputs)
        place = [k if k >= 0 else n - 1 - k for k in self.order]
        steps = [Step(s.rule, tuple(place[v] for v in s.operands), s.params, s.dtype, s.shape) for s in self.steps]
        return Program(
            self.seed, tuple(self.inputs), tuple(steps), tuple(place[v] for v in outputs), None if loss is None else place[loss]
        )


def draw(seed: int, gradients: bool = False) -> Program:
    """The program of a seed."""
    attempt = 0
    while True:
        found = _attempt(seed * 64 + attempt, gradients)
        if found is not None:
            return found
        attempt += 1


def _attempt(seed: int, gradients: bool) -> Program | None:
    drawing = Drawing(seed)
    d = drawing.d
    with np.errstate(all="ignore"):
        for _ in range(d.choice([1, 2, 2, 3])):
            drawing.input(drawing.shape(1 if not drawing.shapes else 0))
        if d.random() < 0.25:  # the same tensor twice, or its storage through another view
            drawing.again()
        for _ in range(d.choice([2, 3, 4, 6, 8, 11])):
            way = d.random()
            if way < 0.4:
                drawing.reduce_and_return()
            elif way < 0.47:
                d.choice(idioms.ALL)(drawing)
            else:
                drawing.step()
        return drawing.finish(gradients)
