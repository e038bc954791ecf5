"""Graphs as pinned programs: samples of the op table, drawn graphs, kernels of the kernel language, training, loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from custom_groups import picked_group, program_group
from kernel_programs import PROGRAMS
from naive_forms import WITH_KERNELS, Group, groups

import firebrick as fb
from firebrick import nn, optim
from firebrick.ir import Graph
from pinned.drawn import KINDS, Drawn, drawn

Array = np.ndarray[Any, Any]


@cache
def _samples(op: str) -> tuple[Group, ...]:
    return tuple(groups(op))


def _of_op(name: str) -> Drawn:
    op, _, number = name.partition(" ")
    found = _samples(op)[int(number)]
    return Drawn(found.body, {}, (), list(found.arrays))


def _of_kernel(name: str) -> Drawn:
    """A call of a kernel of the kernel language."""
    kernel, _, size = name.rpartition(" ")
    found = picked_group(int(size) + 1) if kernel == "picked" else program_group(kernel, int(size))
    assert found is not None
    return Drawn(found.body, {}, (), list(found.arrays))


def _adam(model: nn.Module) -> Any:
    return optim.AdamW(model, lr=1e-3)


def _sgd(model: nn.Module) -> Any:
    return optim.SGD(model, lr=0.1, momentum=0.9)


def _digits() -> tuple[nn.Module, Any, tuple[fb.Tensor, ...]]:
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 4 * 4, 10)
    )
    return model, _sgd, (fb.ones((5, 1, 8, 8)), fb.zeros(5, dtype=fb.int64))


def _perceptron() -> tuple[nn.Module, Any, tuple[fb.Tensor, ...]]:
    model = nn.Sequential(nn.Linear(7, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 1))
    return model, _adam, (fb.ones((17, 7)), fb.zeros((17, 1)))


class _Language(nn.Module):
    """An embedding, attention and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.attention = nn.MultiheadAttention(16, 2)
        self.recurrent = nn.LSTM(16, 8)
        self.out = nn.Linear(8, 11)

    def forward(self, at: fb.Tensor) -> fb.Tensor:
        x = self.table(at)
        x = x + self.attention(x)
        found = self.recurrent(x)
        x = found[0] if isinstance(found, tuple) else found
        return self.out(x)[:, -1]


def _language() -> tuple[nn.Module, Any, tuple[fb.Tensor, ...]]:
    return _Language(), _adam, (fb.zeros((3, 5), dtype=fb.int64), fb.zeros(3, dtype=fb.int64))


MODELS: dict[str, Callable[[], tuple[nn.Module, Any, tuple[fb.Tensor, ...]]]] = {
    "digits": _digits, "perceptron": _perceptron, "language": _language,
}  # fmt: skip


def _of_step(name: str) -> Drawn:
    """A step of training of a small model."""
    with fb.use_device("cpu"):
        fb.random.seed(0)
        model, optimizer_of, (x, y) = MODELS[name]()
        optimizer = optimizer_of(model)

        @fb.jit
        def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
            def loss(model: Any) -> Any:
                found = model(x)
                return fb.cross_entropy(found, y) if y.dtype is fb.int64 else fb.mean((found - y) ** 2)

            value, grads = fb.value_and_grad(loss)(model)
            optimizer.update(model, grads)
            return value

        graph: Graph = step.graph(model, optimizer, x, y)
    bounds = {k: 10 for k, a in enumerate(graph.inputs) if a.dtype.kind == "int" and a.ndim}
    donate = tuple(k for k, a in enumerate(graph.inputs) if a.size > 20 and a.dtype.kind == "float")
    return Drawn(graph, bounds, donate)


def _loops() -> dict[str, Callable[..., Any]]:
    def scanned(x: Any, w: Any) -> Any:
        return fb.scan(lambda c, v: (fb.tanh(c @ w + v), fb.sum(c)), x[0], x)

    def counted(x: Any, w: Any) -> Any:
        return fb.while_loop(lambda c: fb.sum(c) < 100.0, lambda c: c * 2.0 + fb.max(w), fb.abs(x[0]) + 1.0)

    def chosen(x: Any, w: Any) -> Any:
        return fb.cond(fb.sum(x) > 0, lambda a: a @ w, lambda a: fb.softmax(a, axis=-1) * 2.0, x[0])

    def by_rows(x: Any, w: Any) -> Any:
        wide = fb.broadcast_to(x[:, :1], (5, 200, 9))
        return fb.scan(lambda c, v: (fb.tanh(c @ w + v) * 0.5, c), wide[0] * 2.0, wide, reverse=True)

    def summed(x: Any, w: Any) -> Any:
        return fb.grad(lambda w: fb.sum(fb.scan(lambda c, v: (fb.sin(c @ w) + v, c), x[0], x)[0]))(w)

    return {"scan": scanned, "while": counted, "cond": chosen, "rows": by_rows, "gradient": summed}


GRADIENTS = ("black_scholes", "jacobi", "heat", "wave")


def _of_gradient(name: str) -> Drawn:
    """The gradient of a kernel without loops, by operations on whole arrays."""
    kernel, arguments = PROGRAMS[name].kernel, PROGRAMS[name].inputs(np.random.default_rng(5), 5)
    places = [k for k, a in enumerate(arguments) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]

    def total(*given: Any) -> Any:
        merged = list(arguments)
        for k, x in zip(places, given, strict=True):
            merged[k] = x
        found = kernel(*merged)
        return sum(fb.sum(x * x) for x in (found if isinstance(found, tuple) else (found,)))

    with fb.use_device("cpu"):
        given = [fb.asarray(arguments[k]) for k in places]
        graph: Graph = fb.jit(fb.grad(total)).graph(*given)
    return Drawn(graph, {}, ())


def _of_loop(name: str) -> Drawn:
    with fb.use_device("cpu"):
        graph: Graph = fb.jit(_loops()[name]).graph(fb.ones((5, 3, 9)), fb.ones((9, 9)))
    return Drawn(graph, {}, ())


LIMITS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "rows past the caches": (lambda x: fb.softmax(x * 2.0, axis=-1), ((2100, 2051),)),
    "shifted rows past the caches": (lambda x: (x - fb.max(x, axis=-1, keepdims=True), x * 2.0), ((2100, 2048),)),
    "one long row": (lambda x: (fb.max(x), fb.mean(x * x)), ((70001,),)),
}  # fmt: skip
"""Programs whose sizes lie beyond a limit of a generator."""


def _of_limit(name: str) -> Drawn:
    function, shapes = LIMITS[name]
    with fb.use_device("cpu"):
        graph: Graph = fb.jit(function).graph(*[fb.ones(shape) for shape in shapes])
    return Drawn(graph, {}, ())


FAMILIES: dict[str, Callable[[str], Drawn]] = {
    "op": _of_op, "kernel": _of_kernel, "step": _of_step, "loop": _of_loop, "gradient": _of_gradient,
    "limit": _of_limit,
    **{kind: lambda seed, kind=kind: drawn(kind, int(seed)) for kind in KINDS},
}  # fmt: skip
"""Families of graphs: name within the family → graph."""


def candidates(seeds: int) -> Iterator[str]:
    """Names of graphs to choose from."""
    yield from (f"step:{n}" for n in MODELS)
    yield from (f"loop:{n}" for n in _loops())
    yield from (f"gradient:{n}" for n in GRADIENTS)
    yield from (f"limit:{n}" for n in LIMITS)
    for kind in KINDS:
        yield from (f"{kind}:{seed}" for seed in range(seeds))
    for name, p in PROGRAMS.items():
        for size in p.sizes:
            if program_group(name, size) is not None:
                yield f"kernel:{name} {size}"
    yield from (f"kernel:picked {n}" for n in (5, 40))
    for op in WITH_KERNELS:
        yield from (f"op:{op} {k}" for k in range(len(_samples(op))))
