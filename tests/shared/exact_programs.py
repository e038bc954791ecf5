"""Random programs of whole numbers that every dtype holds, so that any order of sums gives the same bits on every engine.

What other random programs leave out, since it has no scale of errors, is drawn here: integers that wrap, NaN and infinities,
ties, updates of parts and by index with duplicates, running extremes, scans. A program is text, drawn by running it on NumPy: a
step whose values are too large to be exact is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np

import firebrick as fb

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
LARGEST = {"float16": 2.0**9, "bfloat16": 2.0**6, "float32": 2.0**18, "float64": 2.0**40}
DTYPES = (*LARGEST, "float32", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")
MOST = 20_000  # elements of a value
FAMILIES = [
    "binary", "binary", "unary", "choice", "cast", "reduction", "movement", "movement", "part", "index", "update", "running",
    "product", "scan",
]  # fmt: skip
OF_NUMBERS = ["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "greater_equal"]
OF_INTEGERS = ["floor_divide", "remainder", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"]
OF_ONE = ["negative", "abs", "sign", "square", "relu", "bitwise_invert", "logical_not", "isnan", "floor"]


@dataclass
class Program:
    """A function of its inputs, as text. Its inputs are NumPy arrays; ``thresholds`` are those of fusion, ``lines`` the steps,
    each of which assigns the value of its number, and ``outputs`` the numbers of the values that it returns."""

    seed: int
    inputs: dict[int, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    thresholds: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"v{k}" for k in self.inputs)
        results = ", ".join(f"v{k}" for k in self.outputs)
        return "\n    ".join([f"def program({arguments}):", *self.lines, f"return [{results}]"])

    def arguments(self, device: str) -> list[fb.Tensor]:
        """Its inputs on a device."""
        return [fb.asarray(x, device=device) for x in self.inputs.values()]

    def defined(self) -> Any:
        """Its function."""
        space: dict[str, Any] = {"fb": fb, "np": np, "updated": updated}
        exec(str(self), space)
        return space["program"]


def updated(x: fb.Tensor, key: Any, value: Any) -> fb.Tensor:
    """A copy of a tensor, of which a part is assigned."""
    y = fb.where(fb.asarray(True, device=x.device), x, x)
    y[key] = value
    return y


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.d, self.rng = Random(seed), np.random.default_rng(seed)
        self.program = Program(seed)
        self.values: list[fb.Tensor] = []
        self.sizes = self.d.sample(SIZES, self.d.randint(1, 3))
        self.dtypes = self.d.sample(DTYPES, 2)
        joined = {"stretch": 1, "summed_rows": 1, "shared_bytes": 0}
        self.program.thresholds = {"one": 0, "two": 0, "more": 0, "reduced": 0} | self.d.choice([{}, joined, {"most_nodes": 3}])

    def input(self, shape: tuple[int, ...], dtype: str, low: int = -3, high: int = 4) -> int:
        """A new input."""
        if dtype in LARGEST:
            x = self.rng.integers(low, high, shape).astype(np.float64)
            if self.d.random() < 0.2:
                x = np.where(self.rng.random(shape) < 0.1, self.rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), x)
        elif dtype == "bool":
            x = self.rng.random(shape) < 0.5
        else:
            x = self.rng.integers(max(low, 0) if dtype[0] == "u" else low, high, shape)
            if low == -3 and self.d.random() < 0.3:
                x = self.rng.choice(np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 1], dtype), shape)
        value = fb.asarray(np.asarray(x), device="numpy").astype(getattr(fb, dtype))
        self.program.inputs[len(self.values)] = value.numpy()
        self.values.append(value)
        return len(self.values) - 1

    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.d.choice(self.sizes) for _ in range(self.d.choice([1, 2, 2, 2, 3])))
        return shape if prod(shape) <= MOST else shape[:2]

    def like(self, k: int, dtype: str = "", shape: tuple[int, ...] | None = None) -> int:
        """A value that broadcasts with another one, or has this shape."""
        x = self.values[k]
        dtype, own = dtype or x.dtype.name, x.shape if shape is None else shape
        shapes = (own, own[-1:]) if shape is None else (own,)
        fit = [i for i, v in enumerate(self.values) if v.dtype.name == dtype and v.shape in shapes]
        return self.d.choice(fit) if fit and self.d.random() < 0.7 else self.input(own, dtype)

    def part(self, shape: tuple[int, ...]) -> str:
        """The key of a part."""
        keys = []
        for n in shape[: self.d.randint(1, len(shape))]:
            a, b = sorted((self.d.randrange(n), self.d.randrange(n)))
            keys += self.d.sample(
                [":", "::-1", f"{a}:{b + 1}", f"{b}:{a - 1 if a else ''}:-2", f"{a}::3", str(a), str(-1 - a)], 1
            )
        return ",".join(keys)

    def step(self) -> None:
        """Try one more step; nothing is left of one that is refused or too large to be exact."""
        before = len(self.values)
        k = self.d.randrange(before) if self.d.random() < 0.5 else before - 1
        while not (text := self.text(k, self.values[k])):
            pass
        space: dict[str, Any] = {f"v{i}": v for i, v in enumerate(self.values)} | {"fb": fb, "np": np, "updated": updated}
        try:
            made = eval(text, space)
            host = np.asarray(made.numpy())
        except (fb.FirebrickError, IndexError):
            made = None
        if made is not None and made.dtype.name in LARGEST:
            finite = host[np.isfinite(host)].astype(np.float64)
            exact = np.all(finite == np.rint(finite)) and np.abs(finite).max(initial=0) <= LARGEST[made.dtype.name]
            made = made if exact else None
        if made is None or not 0 < made.size <= MOST:
            del self.values[before:]
            self.program.inputs = {i: x for i, x in self.program.inputs.items() if i < before}
            return
        self.program.lines.append(f"v{len(self.values)} = {text}")
        self.values.append(made)

    def text(self, k: int, x: fb.Tensor) -> str:
        """A step on a value, as text; some steps are refused or none for this value."""
        d, v, kind, rank = self.d, f"v{k}", x.dtype.name, x.ndim
        axis = d.randrange(rank) if rank else 0
        axes = tuple(sorted(d.sample(range(rank), d.randint(1, rank)))) if rank else None
        n, count, back = x.shape[axis] if rank else 1, d.choice(self.sizes), d.random() < 0.5
        match d.choice(FAMILIES):
            case "binary":
                names = OF_NUMBERS if kind in LARGEST else OF_NUMBERS + OF_INTEGERS
                return f"fb.{d.choice(names)}({', '.join(d.sample([v, f'v{self.like(k)}'], 2))})"
            case "unary":
                return f"fb.{d.choice(OF_ONE)}({v})"
            case "choice":
                return f"fb.where(v{self.like(k, 'bool')}, {v}, v{self.like(k)})"
            case "cast":
                return f"{v}.astype(fb.{d.choice(DTYPES)})"
            case "reduction":
                if back:
                    return f"fb.{d.choice(['argmax', 'argmin'])}({v}, axis={axis})"
                return f"fb.{d.choice(['sum', 'max', 'min', 'any', 'all'])}({v}, axis={axes}, keepdims={d.random() < 0.5})"
            case "movement":
                order = tuple(d.sample(range(rank), rank))
                return d.choice([
                    f"fb.permute_dims({v}, {order})", f"fb.flip({v}, axis={axes})", f"fb.roll({v}, {count}, axis={axis})",
                    f"fb.reshape({v}, ({n}, -1))", f"fb.reshape({v}, (-1,))", f"fb.concat([{v}, {v}], axis={axis})",
                    f"fb.broadcast_to({v}, ({count}, *{x.shape}))", f"fb.expand_dims({v}, {axis})",
                ])  # fmt: skip
            case "part" if rank:
                return f"{v}[{self.part(x.shape)}]"
            case "index" if rank:
                at = f"v{self.input((count,), d.choice(['int64', 'int32']), -n, n)}"
                return d.choice([f"fb.take({v}, {at}, axis={axis})", f"{v}[{':, ' * axis}{at}]"])
            case "update" if rank and back:
                key = self.part(x.shape)
                goal = d.choice(["1", f"v{self.like(k, shape=x.shape)}[{key}]"]) if kind != "bool" else "True"
                return f"updated({v}, np.s_[{key}], {goal})"
            case "update" if rank:
                shape = tuple(count if a == axis else m for a, m in enumerate(x.shape))
                at, new = self.input((count,), "int64", -n, n), self.like(k, shape=shape)
                return f"fb.{d.choice(['index_add', 'index_copy'])}({v}, v{at}, v{new}, axis={axis})"
            case "running" if rank:
                name, slot = d.choice([("cummax", "[0]"), ("cummin", "[1]"), ("cumulative_sum", "")])
                return f"fb.{name}({v}, axis={axis}, reverse={back}){slot}"
            case "product" if rank == 2:
                w = self.like(k, shape=(x.shape[1], count))
                return d.choice([f"{v} @ v{w}", f"{v} @ {v}.T", f"{v}.T @ {v}", f"fb.einsum('ij,jk->ki', {v}, v{w})"])
            case "scan" if rank > 1 and x.shape[0] <= 8:
                carry = d.choice(["(fb.maximum(c[1], x), c[0])", "(c[0] - x, c[0])", "(fb.flip(c[1]), x)"])
                return f"fb.scan(lambda c, x: ({carry}, c[0] + x), ({v}[0], {v}[-1]), {v}, reverse={back})[1]"
        return ""


def draw(seed: int) -> Program:
    """The program of a seed."""
    made = _Drawing(seed)
    for _ in range(made.d.randint(1, 2)):
        made.input(made.shape(), made.d.choice(made.dtypes))
    for _ in range(made.d.randint(4, 16)):
        made.step()
    first = len(made.program.inputs)
    steps = [k for k in range(len(made.values)) if k not in made.program.inputs]
    made.program.outputs = [k for k in steps if k == steps[-1] or made.d.random() < 0.3] or list(made.program.inputs)[:first]
    return made.program
