"""Drawn graphs: operations of one class at awkward layouts, with elementwise work around them, by a seed.

Operands are inputs, or views of inputs: permuted, strided, flipped, broadcast, from a place inside of a larger array. Axes have
size 1 often, sizes coincide often, and some lie on both sides of a vector, a block or a threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import FirebrickError
from firebrick.ir import CONSTANT, Graph
from firebrick.ops import OPS

FLOATS = ("float32",) * 6 + ("float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "uint32", "int8", "uint8", "int16", "uint64", "uint16")
UNSIGNED = ("uint16", "uint32", "uint64")
SMALL = (1, 1, 1, 2, 2, 3, 4, 5, 7, 8)
MIDDLE = (9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65)
LONG = (100, 127, 128, 129, 200, 256, 257, 300, 511, 512, 513, 1000, 1023, 1024, 1025, 2048, 4097)
UNARY = (
    "negative", "abs", "sign", "exp", "log1p", "sqrt", "sigmoid", "erf", "relu", "floor", "ceil", "trunc", "round", "gelu",
    "sin", "cos", "tanh", "expm1", "log", "asinh", "atan", "tan", "acosh", "lgamma", "digamma", "erfinv", "i0", "i1",
    "asin", "acos", "sinh", "cosh", "atanh", "log2", "log10",
)  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "pow", "floor_divide", "remainder", "atan2", "hypot",
          "copysign", "logaddexp",)  # fmt: skip
ON_INTEGERS = ("add", "subtract", "multiply", "maximum", "minimum", "floor_divide", "remainder", "bitwise_and", "bitwise_or",
               "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "pow")  # fmt: skip
COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LARGEST = 1 << 21
"""Elements of an array, at most."""


class Impossible(Exception):
    """What was drawn is no program."""


@dataclass(frozen=True, eq=False)
class Value:
    """An input or a result."""

    aval: Aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> str:
        return self.aval.dtype.name


class Drawing:
    """A graph that is being drawn.

    Args:
        kind: Of the operations; a key of ``KINDS``.
        seed: Of the randomness.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.rng = Random(f"{kind} {seed}")
        self.inputs: list[Value] = []
        self.nodes: list[tuple[Any, tuple[Value, ...], dict[str, Any], tuple[Value, ...]]] = []
        self.bounds: dict[int, int] = {}  # of inputs that are indices: by number, one more than the largest
        self.sizes: list[int] = []
        self.float = self.rng.choice(FLOATS)

    # sizes

    def size(self, *classes: Sequence[int]) -> int:
        """A size; one in four is one that was drawn before."""
        if self.sizes and self.rng.random() < 0.25:
            return self.rng.choice(self.sizes)
        n = self.rng.choice(self.rng.choice(classes or (SMALL, SMALL, MIDDLE)))
        self.sizes.append(n)
        return n

    def shape(self, low: int = 1, high: int = 4, *classes: Sequence[int], most: int = 1 << 16) -> tuple[int, ...]:
        """A shape with a rank from ``low`` to ``high``."""
        found: list[int] = []
        for _ in range(self.rng.randint(low, high)):
            n = self.size(*classes)
            found.append(n if prod(found) * n <= most else self.rng.choice((1, 2)))
        if self.rng.random() < 0.03 and found:
            found[self.rng.randrange(len(found))] = 0
        return tuple(found)

    def axis(self, rank: int) -> int:
        return self.rng.randrange(rank)

    # values

    def input(self, shape: Sequence[int], of: str, below: int = 0) -> Value:
        if prod(shape) > LARGEST:
            raise Impossible
        made = Value(Aval(tuple(shape), dtype(of)))
        if below:
            self.bounds[len(self.inputs)] = below
        self.inputs.append(made)
        return made

    def op(self, name: str, *operands: Value, **params: Any) -> Any:
        """The result of an operation, or a tuple of several."""
        op = CONSTANT if name == "constant" else OPS[name]
        if operands and op.dtypes and operands[0].dtype not in (*op.dtypes, *(UNSIGNED if "uint8" in op.dtypes else ())):
            raise Impossible
        try:
            found = op.infer(*(v.aval for v in operands), **params)
        except FirebrickError as e:
            raise Impossible from e
        avals = (found,) if type(found) is Aval else tuple(found)
        if any(a.size > LARGEST for a in avals):
            raise Impossible
        made = tuple(Value(a) for a in avals)
        self.nodes.append((op, operands, params, made))
        return made[0] if type(found) is Aval else made

    def constant(self, value: Any, of: str) -> Value:
        found: Value = self.op("constant", value=np.asarray(value, dtype(of).np))
        return found

    def seen(self, shape: Sequence[int], of: str, below: int = 0) -> Value:
        """An operand of a shape: an input, or a view of one."""
        rng, shape, rank = self.rng, tuple(shape), len(shape)
        way = rng.random()
        if rank and way < 0.22:
            order = rng.sample(range(rank), rank)
            base = [0] * rank
            for k, a in enumerate(order):
                base[a] = shape[k]
            return self.op("permute", self.input(base, of, below), axes=tuple(order))  # type: ignore[no-any-return]
        if rank and way < 0.38:
            starts, stops, steps, base = [], [], [], []
            for n in shape:
                step, start, rest = rng.choice((1, 1, 1, 2, 3)), rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 1))
                stop = start + (n - 1) * step + 1 if n else start
                starts.append(start), stops.append(stop), steps.append(step), base.append(stop + rest)  # type: ignore[func-returns-value]
            made = self.input(base, of, below)
            return self.op("slice", made, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))  # type: ignore[no-any-return]
        if rank and way < 0.5:
            narrow = [1 if rng.random() < 0.5 else n for n in shape]
            first = rng.randrange(rank) if rng.random() < 0.4 and 1 in narrow[:1] else 0
            return self.op("broadcast_to", self.input(narrow[first:], of, below), shape=shape)  # type: ignore[no-any-return]
        if rank and way < 0.58:
            axes = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
            return self.op("flip", self.input(shape, of, below), axes=axes)  # type: ignore[no-any-return]
        if rank > 1 and way < 0.66:
            return self.op("reshape", self.input((prod(shape),), of, below), shape=shape)  # type: ignore[no-any-return]
        if way < 0.69 and below == 0:
            return self.constant(rng.choice((0, 1, 2)), of) if not rank else self.input(shape, of)
        return self.input(shape, of, below)

    def worked(self, shape: Sequence[int], of: str) -> Value:
        """An operand of a shape that is computed of others, or just seen."""
        way, x = self.rng.random(), self.seen(shape, of)
        if way < 0.55:
            return x
        return self.mapped(x)

    def mapped(self, x: Value) -> Value:
        """An elementwise function of a value, with the same shape and dtype."""
        rng, of = self.rng, x.dtype
        floating = dtype(of).kind == "float"
        way = rng.random()
        if of == "bool":
            return self.op(rng.choice(("logical_and", "logical_or", "logical_xor")), x, self.seen(x.shape, of))  # type: ignore[no-any-return]
        if dtype(of).kind == "complex":
            return self.op(rng.choice(("add", "multiply", "subtract", "divide")), x, self.seen(x.shape, of))  # type: ignore[no-any-return]
        if way < 0.35 and floating:
            return self.op(rng.choice(UNARY), x)  # type: ignore[no-any-return]
        if way < 0.75:
            other = self.seen(x.shape, of) if rng.random() < 0.6 else self.constant(rng.choice((1, 2, 3)), of)
            name = rng.choice(BINARY if floating else ON_INTEGERS)
            return self.op(name, *((x, other) if rng.random() < 0.7 else (other, x)))  # type: ignore[no-any-return]
        if way < 0.85:
            test = self.op(rng.choice(COMPARED), x, self.seen(x.shape, of))
            return self.op("where", test, x, self.seen(x.shape, of))  # type: ignore[no-any-return]
        if way < 0.93:
            back = rng.choice(FLOATS if rng.random() < 0.6 else INTEGERS)
            return self.op("cast", self.op("cast", x, dtype=dtype(back)), dtype=dtype(of))  # type: ignore[no-any-return]
        return self.op("clip", x, self.constant(0, of), self.constant(2, of))  # type: ignore[no-any-return]

    def after(self, x: Value) -> Value:
        """What follows a result: nothing, elementwise work with operands that broadcast, a view, a cast."""
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            way = rng.random()
            if way < 0.25 and x.shape and dtype(x.dtype).kind in ("float", "int", "uint"):
                bias = [1 if rng.random() < 0.5 else n for n in x.shape]
                first = rng.randrange(len(bias)) if rng.random() < 0.5 else 0
                x = self.op(rng.choice(("add", "multiply", "maximum")), x, self.seen(bias[first:], x.dtype))
            elif way < 0.65:
                x = self.mapped(x)
            elif way < 0.75 and len(x.shape) > 1:
                x = self.op("permute", x, axes=tuple(rng.sample(range(len(x.shape)), len(x.shape))))
            elif way < 0.85 and dtype(x.dtype).kind == "float":
                x = self.op("cast", x, dtype=dtype(rng.choice(FLOATS)))
            elif way < 0.9 and len(x.shape) > 1:
                x = self.op("reshape", x, shape=(prod(x.shape),))
        return x

    # the graph

    def finish(self, *results: Value) -> Graph:
        """The graph with some results; one value is sometimes a result twice, or an inner one a result too."""
        rng, outputs = self.rng, list(results)
        made = [v for _, _, _, found in self.nodes for v in found]
        if rng.random() < 0.15 and made:
            outputs.append(rng.choice(made))
        wanted = {id(v) for v in outputs}
        used = []  # passes leave no node whose results nothing reads
        for node in reversed(self.nodes):
            if wanted.intersection(id(v) for v in node[3]):
                used.append(node)
                wanted.update(id(v) for v in node[1])
        graph = Graph([v.aval for v in self.inputs])
        numbers = {id(v): k for k, v in enumerate(self.inputs)}
        for op, operands, params, found in reversed(used):
            for v, k in zip(found, graph.add(op, *(numbers[id(v)] for v in operands), **params), strict=True):
                numbers[id(v)] = k
        graph.outputs = tuple(numbers[id(v)] for v in outputs)
        return graph


Results = Sequence[Value]


def _map(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, d.float, rng.choice(INTEGERS), "bool", "complex64", "complex128"))
    classes = rng.choice(((SMALL, MIDDLE), (SMALL,), (SMALL, LONG)))
    x = d.seen(d.shape(0, 5, *classes), of)
    for _ in range(rng.randint(1, 4)):
        x = d.mapped(x)
    if rng.random() < 0.3:
        return x, d.mapped(x)
    return (x,)


def _views(d: Drawing) -> Results:
    rng, of = d.rng, d.rng.choice((*FLOATS, *INTEGERS, "bool", "complex64", "complex128"))
    shape = d.shape(1, 4)
    axis, rank = d.axis(len(shape)), len(shape)
    x = d.worked(shape, of)
    match rng.choice(("concat", "pad", "split", "slice", "update", "permute", "flip", "concat")):
        case "concat":
            parts = [x]
            for _ in range(rng.randint(1, 3)):
                other = list(shape)
                other[axis] = rng.choice((other[axis], 1, 2, 0, 5))
                parts.append(d.worked(other, of))
            y = d.op("concat", *rng.sample(parts, len(parts)), axis=axis)
        case "pad":
            widths = tuple(rng.choice(((0, 0), (1, 0), (0, 2), (3, 1), (0, 0))) for _ in shape)
            y = d.op("pad", x, widths=widths, value=rng.choice((0, 1)))
        case "split":
            first = rng.randint(0, shape[axis])
            a, b = d.op("split", x, sizes=(first, shape[axis] - first), axis=axis)
            return d.mapped(a), b
        case "slice":
            steps = tuple(rng.choice((1, 1, 2, -1, -2)) for _ in shape)
            starts = tuple(0 if s > 0 else n - 1 for n, s in zip(shape, steps, strict=True))
            stops = tuple(n if s > 0 else -1 for n, s in zip(shape, steps, strict=True))
            y = d.op("slice", d.mapped(x), starts=starts, stops=stops, steps=steps)
        case "update":
            starts = tuple(rng.randrange(max(1, n)) for n in shape)
            stops = tuple(rng.randint(s, n) for s, n in zip(starts, shape, strict=True))
            step = tuple(rng.choice((1, 1, 2)) for _ in shape)
            inner = [len(range(a, b, s)) for a, b, s in zip(starts, stops, step, strict=True)]
            y = d.op("slice_update", x, d.worked(inner, of), starts=starts, stops=stops, steps=step)
        case "permute":
            y = d.mapped(d.op("permute", x, axes=tuple(rng.sample(range(rank), rank))))
        case _:
            y = d.op("flip", d.mapped(x), axes=(axis,))
    return (d.after(y),)


def _reduce(d: Drawing) -> Results:
    rng = d.rng
    classes = rng.choice(((SMALL, MIDDLE), (SMALL,), (SMALL, LONG), (MIDDLE, LONG)))
    shape = d.shape(1, 4, *classes)
    name = rng.choice(("sum", "sum", "mean", "prod", "max", "min", "argmax", "argmin", "any", "softmax", "log_softmax"))
    of = "bool" if name == "any" else rng.choice((d.float, d.float, d.float, rng.choice(INTEGERS), "complex64"))
    x = d.worked(shape, of)
    if rng.random() < 0.2 and len(shape) > 1:
        x = d.op("permute", x, axes=tuple(rng.sample(range(len(shape)), len(shape))))
    if name in ("argmax", "argmin"):
        y = d.op(name, x, axis=d.axis(len(shape)), keepdims=rng.random() < 0.5)
    elif "softmax" in name:
        y = d.op(name, x, axis=d.axis(len(shape)))
    else:
        axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
        y = d.op(name, x, axes=axes, keepdims=rng.random() < 0.5)
    if rng.random() < 0.3 and len(y.shape) == len(x.shape) and y.dtype == x.dtype:
        y = d.op(rng.choice(("subtract", "multiply", "add")), x, y)
        if rng.random() < 0.5 and dtype(y.dtype).kind == "float":
            return d.after(y), d.op("sum", d.mapped(y), axes=(d.axis(len(y.shape)),), keepdims=False)
    return (d.after(y),)


def _norm(d: Drawing) -> Results:
    rng, of = d.rng, d.float
    shape = d.shape(1, 4, SMALL, MIDDLE, rng.choice((SMALL, LONG)))
    x = d.worked(shape, of)
    name = rng.choice(("layer_norm", "rms_norm", "standardize", "standardize_gradient"))
    if name == "layer_norm":
        y = d.op(name, x, d.seen(shape[-1:], of), d.seen(shape[-1:], of), eps=1e-5)
    elif name == "rms_norm":
        y = d.op(name, x, d.seen(shape[-1:], of) if rng.random() < 0.8 else d.constant(1, of), eps=1e-5)
    else:
        axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
        one = [1 if a in axes else n for a, n in enumerate(shape)]
        more = [d.seen(one, of) for _ in range(2 + (name == "standardize_gradient"))]
        first = [d.worked(shape, of)] if name == "standardize_gradient" else []
        y = d.op(name, x, *first, *more, axes=axes, eps=1e-5)
    if type(y) is tuple:
        return y
    return (d.after(y),)


def _product(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, d.float, "int64", "int32", "int8", "uint8"))
    classes = rng.choice(((SMALL, MIDDLE), (SMALL,), (SMALL, LONG), (MIDDLE,), (MIDDLE, LONG)))
    m, n, k = (d.size(*classes) for _ in range(3))
    if m * n * k > 1 << 25:
        raise Impossible
    batch = [d.size(SMALL) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]
    left = [1 if rng.random() < 0.2 else b for b in batch]
    right = [1 if rng.random() < 0.2 else b for b in batch][rng.choice((0, 0, len(batch))) :]
    a, b = [*left, m, k], [*right, k, n]

    def side(shape: list[int]) -> Value:
        if rng.random() < 0.4:  # stored transposed
            x = d.input([*shape[:-2], shape[-1], shape[-2]], of)
            rank = len(shape)
            return d.op("permute", x, axes=(*range(rank - 2), rank - 1, rank - 2))  # type: ignore[no-any-return]
        return d.seen(shape, of)

    if rng.random() < 0.08:
        a = a[-1:]
    elif rng.random() < 0.08:
        b = b[-2:-1]
    x = side(a) if len(a) > 1 else d.seen(a, of)
    y = side(b) if len(b) > 1 else d.seen(b, of)
    if rng.random() < 0.15:
        x = d.mapped(x)
    z = d.op("matmul", x, y)
    if rng.random() < 0.15 and len(z.shape) > 1:
        z = d.op("reshape", z, shape=(prod(z.shape[:-1]), z.shape[-1]))
    return (d.after(z),)


def _geometry(d: Drawing, rank: int, images: int) -> tuple[dict[str, Any], list[int], list[int]]:
    """Parameters of a window, sizes of the image, and of the positions."""
    rng = d.rng
    kernel = tuple(rng.choice((1, 1, 2, 3, 3, 3, 4, 5)) for _ in range(rank))
    stride = tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(rank))
    dilation = tuple(rng.choice((1, 1, 1, 2)) for _ in range(rank))
    padding = tuple(rng.choice(((0, 0), (1, 1), (0, 0), (k // 2, k // 2), (1, 0), (0, 2))) for k in kernel)
    size = [rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 17, 28, 32, 33)[:images]) for _ in range(rank)]
    places = [
        (n + sum(p) - (k - 1) * e - 1) // s + 1 for n, k, s, e, p in zip(size, kernel, stride, dilation, padding, strict=True)
    ]
    if min(places, default=1) < 1:
        raise Impossible
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}, size, places


def _convolution(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, d.float, "int32", "int64"))
    rank = rng.choice((1, 2, 2, 2, 2, 3))
    g, size, places = _geometry(d, rank, 16 if rank < 3 else 8)
    kernel = g.pop("kernel")
    if rng.random() < 0.3:  # the shape that other algorithms take
        kernel, g["stride"], g["dilation"] = (3,) * rank, (1,) * rank, (1,) * rank
        g["padding"] = ((1, 1),) * rank
        places = size
    groups = rng.choice((1, 1, 1, 1, 2, 3, 4, 8))
    inside = rng.choice((1, 1, 2, 3, 4, 8, 16, 17))
    outside = rng.choice((1, 2, 3, 4, 8, 16, 17, 32))
    batch, channels, out = rng.choice((1, 1, 2, 3, 5)), groups * inside, groups * outside
    if batch * out * inside * prod(kernel) * prod(places) > 1 << 25:
        raise Impossible
    g["groups"] = groups
    image, weight, result = [batch, channels, *size], [out, inside, *kernel], [batch, out, *places]
    match rng.choice(("conv", "conv", "conv_input", "conv_weight")):
        case "conv":
            y = d.op("conv", d.seen(image, of), d.seen(weight, of), **g)
            if rng.random() < 0.5:
                y = d.op("add", y, d.seen((out, *(1,) * rank), of))
                if of in FLOATS:
                    y = d.op(rng.choice(("relu", "sigmoid", "gelu")), y)
        case "conv_input":
            y = d.op("conv_input", d.seen(result, of), d.seen(weight, of), size=tuple(size), **g)
        case _:
            y = d.op("conv_weight", d.seen(image, of), d.seen(result, of), kernel=kernel, **g)
    return (d.after(y),)


def _window(d: Drawing) -> Results:
    rng, of, rank = d.rng, d.float, d.rng.choice((1, 2, 2, 2, 3))
    g, size, places = _geometry(d, rank, 16)
    dilation = g.pop("dilation")
    batch, channels = rng.choice((1, 2, 3)), d.size(SMALL, SMALL, MIDDLE)
    image, result = [batch, channels, *size], [batch, channels, *places]
    match rng.choice(("max_pool", "max_pool", "avg_pool", "avg_pool_input", "max_pool_gradient")):
        case "max_pool":
            y, at = d.op("max_pool", d.worked(image, of), dilation=dilation, **g)
            return (d.after(y), at) if rng.random() < 0.5 else (y,)
        case "avg_pool":
            y = d.op("avg_pool", d.worked(image, of), **g)
        case "avg_pool_input":
            y = d.op("avg_pool_input", d.worked(result, of), size=tuple(size), **g)
        case _:
            at = d.input(result, "int64", prod(size))
            y = d.op("max_pool_gradient", d.worked(result, of), at, size=tuple(size), dilation=dilation, **g)
    return (d.after(y),)


def _indices(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, rng.choice(INTEGERS), "bool", "complex64"))
    shape = d.shape(1, 3, SMALL, SMALL, MIDDLE)
    axis = d.axis(len(shape))
    n, number = max(1, shape[axis]), rng.choice(("int64", "int32", "int64", "uint8"))
    name = rng.choice(("take", "take", "gather", "index_add", "scatter_add", "scatter", "scatter_reduce", "ravel_index"))
    x = d.worked(shape, of)
    if name == "take":
        y = d.op("take", x, d.seen(d.shape(0, 2, SMALL), number, n), axis=axis)
    elif name == "ravel_index":
        at = d.shape(1, 2, SMALL)
        inside = [d.seen(at, "int64", k) for k in (5, 3)]
        y = d.op("ravel_index", *inside, sizes=(5, 3), strides=(rng.choice((1, 3)), 1), offset=rng.choice((0, 2)))
    elif name == "index_add":
        count = d.size(SMALL, MIDDLE)
        more = [*shape[:axis], count, *shape[axis + 1 :]]
        y = d.op(name, x, d.seen((count,), number, n), d.worked(more, of), axis=axis)
    else:
        at = [rng.randint(0, s) if rng.random() < 0.3 else s for s in shape]
        at[axis] = d.size(SMALL)
        index = d.seen(at, number, n)
        more = () if name == "gather" else (d.worked(at, of),)
        params = {"mode": rng.choice(("mul", "max", "min"))} if name == "scatter_reduce" else {}
        y = d.op(name, x, index, *more, axis=axis, **params)
    if rng.random() < 0.3 and y.shape and dtype(y.dtype).kind == "float":
        y = d.op("sum", y, axes=(d.axis(len(y.shape)),), keepdims=False)
    return (d.after(y),)


def _prefix(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, rng.choice(INTEGERS)))
    shape = d.shape(1, 3, SMALL, MIDDLE, rng.choice((SMALL, LONG)))
    axis, reverse = d.axis(len(shape)), rng.random() < 0.4
    kind = rng.choice(("sum", "sum", "prod", "max", "min", "logsumexp", "recurrence"))
    x = d.worked(shape, d.float if kind in ("logsumexp", "recurrence") else of)
    if kind == "recurrence":
        y = d.op("linear_recurrence", x, d.seen(shape, x.dtype), axis=axis, reverse=reverse, shifted=rng.random() < 0.4)
    else:
        y = d.op(f"cumulative_{kind}", x, axis=axis, reverse=reverse)
    if type(y) is tuple:
        return y if rng.random() < 0.5 else y[:1]
    return (d.after(y),)


def _sort(d: Drawing) -> Results:
    rng = d.rng
    of = rng.choice((d.float, d.float, rng.choice(INTEGERS), "float64", "int64"))
    shape = d.shape(1, 3, SMALL, MIDDLE, rng.choice((SMALL, LONG)))
    axis = d.axis(len(shape))
    x = d.worked(shape, of)
    match rng.choice(("sort", "sort_values", "top_k", "searchsorted")):
        case "searchsorted":
            among = d.op("sort_values", d.seen((d.size(SMALL, MIDDLE),), of), axis=0, descending=False)
            y = d.op("searchsorted", among, x, right=rng.random() < 0.5)
            return (d.after(y),)
        case "top_k":
            k = rng.randint(0, min(shape[axis], 20))
            return d.op("top_k", x, k=k, axis=axis, largest=rng.random() < 0.5)  # type: ignore[no-any-return]
        case "sort":
            return d.op("sort", x, axis=axis, descending=rng.random() < 0.5)  # type: ignore[no-any-return]
        case _:
            return (d.after(d.op("sort_values", x, axis=axis, descending=rng.random() < 0.5)),)


def _attention(d: Drawing) -> Results:
    rng, of = d.rng, d.rng.choice(("float32", "float32", "float64"))
    batch = [d.size(SMALL) for _ in range(rng.choice((0, 1, 1, 2)))]
    queries, keys = d.size(SMALL, MIDDLE, MIDDLE), d.size(SMALL, MIDDLE, MIDDLE)
    wide, own = rng.choice((1, 2, 4, 5, 8, 16, 17, 32, 64, 80)), rng.choice((1, 3, 4, 8, 16, 32, 64))
    if rng.random() < 0.5:
        own = wide
    causal = rng.random() < 0.4
    mask_shape = () if rng.random() < 0.4 else [1 if rng.random() < 0.4 else n for n in (*batch, queries, keys)]
    q, k, v = d.seen([*batch, queries, wide], of), d.seen([*batch, keys, wide], of), d.seen([*batch, keys, own], of)
    mask = d.constant(True, "bool") if not mask_shape else d.seen(mask_shape, "bool")
    if rng.random() < 0.6:
        return (d.after(d.op("attention", q, k, v, mask, scale=rng.choice((0.5, 1.0)), causal=causal)),)
    cotangent = d.seen([*batch, queries, own], of)
    found = d.op("attention_gradient", cotangent, q, k, v, mask, scale=0.5, causal=causal)
    return found  # type: ignore[no-any-return]


def _random(d: Drawing) -> Results:
    rng = d.rng
    key, shape = d.input((4,), "uint32"), d.shape(0, 3, SMALL, MIDDLE)
    offset = rng.choice((0, 1, 5))
    if rng.random() < 0.3:
        return (d.op("random_bits", key, shape=shape, offset=offset),)
    of = rng.choice(("float32", "float64", "float16"))
    return (d.after(d.op("random_uniform", key, shape=shape, offset=offset, dtype=dtype(of))),)


def _channels(d: Drawing) -> Results:
    """Convolutions of images with several channels, for which there are other algorithms."""
    rng = d.rng
    of = rng.choice(("float32", "float32", "float32", "float64"))
    size = (rng.choice((8, 12, 14, 16, 17, 28, 32, 33)), rng.choice((8, 13, 14, 16, 28, 32, 40)))
    k = rng.choice((1, 3, 3, 3, 5))
    kernel, batch = (k, rng.choice((k, k, 1))), rng.choice((1, 2, 3, 4, 8))
    stride, edge = rng.choice(((1, 1), (1, 1), (1, 1), (2, 2), (2, 1))), rng.choice((0, k // 2))
    groups = rng.choice((1, 1, 1, 2, 4, 16))
    inside, outside = (rng.choice((1, 3, 8, 16) if groups > 1 else (1, 3, 8, 16, 32, 64)) for _ in range(2))
    if groups == 16 and rng.random() < 0.7:
        inside, outside = 1, rng.choice((1, 1, 2))
    channels, out = groups * inside, groups * outside
    padding = ((edge, edge), (edge if kernel[1] > 1 else 0,) * 2)
    places = [(n + 2 * p[0] - f) // s + 1 for n, p, f, s in zip(size, padding, kernel, stride, strict=True)]
    if batch * out * inside * prod(kernel) * prod(places) > 1 << 27 or min(places) < 1:
        raise Impossible
    g: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": (1, 1), "groups": groups}
    image, weight, result = [batch, channels, *size], [out, inside, *kernel], [batch, out, *places]

    def given(shape: list[int]) -> Value:
        return d.input(shape, of) if rng.random() < 0.8 else d.seen(shape, of)

    match rng.choice(("conv", "conv_input", "conv_weight")):
        case "conv":
            y = d.op("conv", given(image), given(weight), **g)
            if rng.random() < 0.5:
                y = d.op("relu", d.op("add", y, d.input((out, 1, 1), of)))
        case "conv_input":
            y = d.op("conv_input", given(result), given(weight), size=size, **g)
        case _:
            y = d.op("conv_weight", given(image), given(result), kernel=kernel, **g)
    return (y,)


def _transforms(d: Drawing) -> Results:
    """Convolutions of 3 × 3 taps that products of transforms may compute."""
    rng = d.rng
    batch, inside, outside = rng.choice((1, 3, 5, 8)), rng.choice((33, 48, 64, 130)), rng.choice((40, 64, 150))
    size = (rng.choice((4, 8, 13, 16)), rng.choice((4, 8, 14, 17, 28)))
    edges = rng.choice((((1, 1), (1, 1)), ((0, 0), (0, 0)), ((1, 0), (0, 2)), ((2, 2), (1, 1))))
    places = [n + sum(p) - 2 for n, p in zip(size, edges, strict=True)]
    g: dict[str, Any] = {"stride": (1, 1), "padding": edges, "dilation": (1, 1), "groups": 1}
    weight = d.input([outside, inside, 3, 3], "float32")
    if rng.random() < 0.5:
        return (d.op("conv_input", d.input([batch, outside, *places], "float32"), weight, size=size, **g),)
    y = d.op("conv", d.input([batch, inside, *size], "float32"), weight, **g)
    return (d.op("relu", d.op("add", y, d.input((outside, 1, 1), "float32"))) if rng.random() < 0.5 else y,)


def _blocks(d: Drawing) -> Results:
    """Products of several blocks along each axis, or of one row or column, in parts of k or not."""
    rng, of = d.rng, d.rng.choice(("float32", "float32", "float32", "float64", "bfloat16", "float16"))
    sizes = (1, 2, 5, 33, 96, 129, 256, 300, 513, 700, 1024, 2050)
    m, n, k = (rng.choice(sizes) for _ in range(3))
    if rng.random() < 0.2:
        k = rng.choice((5000, 20_000))
    batch = [rng.choice((2, 3, 7))] if rng.random() < 0.3 else []
    if m * n * k * prod(batch) > 1 << 28:
        raise Impossible

    def side(rows: int, columns: int) -> Value:
        if rng.random() < 0.4:
            x = d.input((*batch, columns, rows), of)
            return d.op("permute", x, axes=(*range(len(batch)), len(batch) + 1, len(batch)))  # type: ignore[no-any-return]
        return d.input((*batch, rows, columns), of)

    y = d.op("matmul", side(m, k), side(k, n))
    if rng.random() < 0.3:
        y = d.op("relu", d.op("add", y, d.input((n,), of)))
    if rng.random() < 0.2:
        y = d.op("permute", y, axes=(*range(len(batch)), len(batch) + 1, len(batch)))
    return (y,)


def _long(d: Drawing) -> Results:
    """Few long lines, and results of many bytes."""
    rng, of = d.rng, d.rng.choice(("float32", "float32", "float64", "int32", "bfloat16", "int64"))
    n = rng.choice((20_000, 32_768, 40_001, 65_537, 150_000, 300_000))
    shape = rng.choice(((n,), (n,), (1, n), (2, n), (3, n), (n, 1), (n, 3)))
    axis = max(range(len(shape)), key=lambda a: shape[a])
    x = d.worked(shape, of) if rng.random() < 0.5 else d.input(shape, of)
    floating = dtype(of).kind == "float"
    match rng.choice(("sum", "sum", "softmax", "sort", "top_k", "prefix", "argmax", "map", "all", "variance")):
        case "softmax" if floating:
            y = d.op("softmax", x, axis=axis)
        case "sort":
            return d.op("sort", x, axis=axis, descending=rng.random() < 0.5)  # type: ignore[no-any-return]
        case "top_k":
            return d.op("top_k", x, k=rng.choice((1, 5, n // 3)), axis=axis, largest=True)  # type: ignore[no-any-return]
        case "prefix":
            y = d.op(rng.choice(("cumulative_sum", "cumulative_sum")), x, axis=axis, reverse=rng.random() < 0.5)
        case "argmax":
            y = d.op("argmax", x, axis=axis, keepdims=False)
        case "map":
            y = d.mapped(d.mapped(x))
        case "all":
            y = d.op("max", x, axes=tuple(range(len(shape))), keepdims=False)
        case "variance" if floating:
            centred = d.op("subtract", x, d.op("mean", x, axes=(axis,), keepdims=True))
            y = d.op("sum", d.op("multiply", centred, centred), axes=(axis,), keepdims=rng.random() < 0.5)
        case _:
            y = d.op(rng.choice(("sum", "mean", "min") if floating else ("sum", "max", "min")), x, axes=(axis,), keepdims=False)
    return (d.after(y),) if rng.random() < 0.5 else (y,)


def _table(d: Drawing) -> Results:
    """Updates of a large table by sums over few of its rows."""
    rng, of = d.rng, d.rng.choice(("float32", "float32", "float64", "bfloat16"))
    wide = rng.choice((1, 4, 8, 16, 33))
    rows, count = (1 << 16) // wide + rng.choice((1, 100)), rng.choice((1, 7, 64, 300))
    p, at, g = d.input((rows, wide), of), d.input((count,), "int64", rows), d.worked((count, wide), of)
    zeros = d.op("broadcast_to", d.constant(0, of), shape=(rows, wide))
    sums = d.op("index_add", zeros, at, g, axis=0)
    rate = d.constant(2, of) if rng.random() < 0.5 else d.input((), of)
    match rng.choice(("descent", "descent", "momentum", "both", "square")):
        case "descent":
            y = d.op("subtract", p, d.op("multiply", sums, rate) if rng.random() < 0.8 else sums)
        case "momentum":
            y = d.op("add", d.op("multiply", p, rate), sums)
        case "both":
            m = d.op("add", d.op("multiply", d.input((rows, wide), of), rate), sums)
            return d.op("subtract", p, d.op("multiply", m, rate)), m
        case _:
            y = d.op("add", p, d.op("multiply", sums, sums))
    return (y,)


MIXED = (
    "map", "map", "map", "sum", "matmul", "softmax", "permute", "reshape", "take", "concat", "norm", "sort", "cumulative",
    "pad", "split", "broadcast",
)  # fmt: skip


def _mixed(d: Drawing) -> Results:
    """Several operations after each other, and results that are read twice."""
    rng, of = d.rng, d.rng.choice(("float32", "float32", "float32", "float64", "bfloat16"))
    made = [d.worked(d.shape(2, 3, SMALL, MIDDLE, most=1 << 14), of)]
    for _ in range(rng.randint(3, 9)):
        x = rng.choice(made[-3:])
        rank = len(x.shape)
        match rng.choice(MIXED):
            case "map":
                y = d.mapped(x)
            case "sum" if rank:
                axes = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
                y = d.op(rng.choice(("sum", "mean", "max")), x, axes=axes, keepdims=rng.random() < 0.5)
            case "matmul" if rank > 1:
                y = d.op("matmul", x, d.seen((x.shape[-1], d.size(SMALL, MIDDLE)), of))
            case "softmax" if rank:
                y = d.op("softmax", x, axis=d.axis(rank))
            case "permute" if rank > 1:
                y = d.op("permute", x, axes=tuple(rng.sample(range(rank), rank)))
            case "reshape":
                y = d.op("reshape", x, shape=(prod(x.shape),) if rank != 1 else (1, *x.shape))
            case "take" if rank and min(x.shape) > 0:
                axis = d.axis(rank)
                y = d.op("take", x, d.input((d.size(SMALL),), "int64", x.shape[axis]), axis=axis)
            case "concat" if rank:
                y = d.op("concat", x, d.mapped(x), axis=d.axis(rank))
            case "norm" if rank:
                y = d.op("layer_norm", x, d.seen(x.shape[-1:], of), d.seen(x.shape[-1:], of), eps=1e-5)
            case "sort" if rank:
                y = d.op("sort_values", x, axis=d.axis(rank), descending=False)
            case "cumulative" if rank:
                y = d.op("cumulative_sum", x, axis=d.axis(rank), reverse=False)
            case "pad" if rank:
                y = d.op("pad", x, widths=((1, 0),) * rank, value=0)
            case "split" if rank and x.shape[-1] > 1:
                y, other = d.op("split", x, sizes=(1, x.shape[-1] - 1), axis=rank - 1)
                made.append(other)
            case "broadcast" if rank < 4:
                y = d.op("multiply", d.op("broadcast_to", x, shape=(2, *x.shape)), d.constant(2, of))
            case _:
                y = d.mapped(x)
        made.append(y)
    return tuple(made[-rng.choice((1, 1, 2, 3)) :])


KINDS: dict[str, Callable[[Drawing], Results]] = {
    "map": _map, "views": _views, "reduce": _reduce, "norm": _norm, "product": _product, "convolution": _convolution,
    "window": _window, "indices": _indices, "prefix": _prefix, "sort": _sort, "attention": _attention, "random": _random,
    "mixed": _mixed, "channels": _channels, "transforms": _transforms, "blocks": _blocks, "long": _long, "table": _table,
}  # fmt: skip
"""Classes of drawn graphs."""


@dataclass(frozen=True)
class Drawn:
    """A drawn graph.

    Attributes:
        graph: The graph.
        bounds: Of inputs that are indices: by number, one more than the largest.
        donate: Inputs that are donated.
        arrays: Values of the inputs, if they are given.
    """

    graph: Graph
    bounds: dict[int, int]
    donate: tuple[int, ...]
    arrays: list[np.ndarray[Any, Any]] | None = None

    @property
    def operands(self) -> list[np.ndarray[Any, Any]]:
        """Values for the inputs."""
        return operands(self.graph, self.bounds) if self.arrays is None else self.arrays


def drawn(kind: str, seed: int) -> Drawn:
    """The graph of a class and a seed: what is no program is drawn again."""
    for attempt in range(200):
        d = Drawing(kind, seed * 1000 + attempt)
        try:
            results = KINDS[kind](d)
        except Impossible:
            continue
        graph = d.finish(*results)
        donate = tuple(i for i in range(len(graph.inputs)) if d.rng.random() < 0.3)
        return Drawn(graph, d.bounds, donate)
    raise AssertionError(f"{kind} {seed} is no program")


def operands(graph: Graph, bounds: dict[int, int]) -> list[np.ndarray[Any, Any]]:
    """Values for the inputs of a graph: of ordinary size, positive, and indices within their axes."""
    rng = np.random.default_rng(0)
    found = []
    for k, a in enumerate(graph.inputs):
        kind = a.dtype.kind
        if kind == "bool":
            x = rng.random(a.shape) > 0.4
        elif k in bounds:
            x = rng.integers(0, bounds[k], a.shape)
        elif kind in ("int", "uint"):
            x = rng.integers(0, 5, a.shape)
        elif kind == "complex":
            x = rng.uniform(0.5, 1.5, a.shape) + 1j * rng.uniform(0.5, 1.5, a.shape)
        else:
            x = rng.uniform(0.5, 1.5, a.shape)
        found.append(np.asarray(x).astype(a.dtype.np))
    return found
