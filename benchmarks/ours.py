"""Firebrick's side of each piece of work: ``jit`` on the ``cpu`` device, as the documents write it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import firebrick as fb
from benchmarks.models import NETWORKS
from benchmarks.work import CONVOLUTIONS, Ready, Variants, Work
from firebrick.ir import Graph
from firebrick.ir.nested import graphs_in


def _built(work: Work) -> tuple[Any, fb.Tensor, fb.Tensor]:
    """The network with the work's parameters, its inputs and targets."""
    model = NETWORKS[work.model].build(work.dropout)
    model.load_state_dict({k: fb.asarray(v) for k, v in work.arrays.items()}, strict=False)
    x, y = (fb.asarray(a) for a in NETWORKS[work.model].data(work.batch))
    return model, x, y


def training(work: Work) -> tuple[Any, fb.Tensor, fb.Tensor]:
    """A training step, under ``jit`` unless the work is eager, and what it is called with."""
    net = NETWORKS[work.model]
    model, x, y = _built(work)
    error = fb.mse_loss if net.target else fb.cross_entropy
    if net.momentum is None:
        opt: Any = fb.optim.Adam(model, lr=net.lr)
    else:
        opt = fb.optim.SGD(model, lr=net.lr, momentum=net.momentum)
    gradient = fb.value_and_grad(lambda m, x, y: error(m(x), y))

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        loss, grads = gradient(model, x, y)
        opt.update(model, grads)
        return loss

    return step if work.eager else fb.jit(step), x, y


def inference(work: Work) -> tuple[Any, fb.Tensor]:
    """A network's outputs under ``jit``, and what it is called with."""
    model, x, _ = _built(work)
    model.eval()

    @fb.jit
    def predict(x: fb.Tensor) -> fb.Tensor:
        with fb.no_grad():
            out: fb.Tensor = model(x)
        return out

    return predict, x


def _convolved(x: fb.Tensor, w: fb.Tensor, stride: int) -> fb.Tensor:
    return fb.conv2d(x, w, stride=stride, padding=1, groups=x.shape[1] // w.shape[1])


ROWS: dict[str, Callable[..., fb.Tensor]] = {
    "softmax": lambda x: fb.softmax(x),
    "layer_norm": lambda x, w, b: fb.layer_norm(x, weight=w, bias=b),
    "gelu": lambda x: fb.gelu(x),
    "cross_entropy": lambda x, y: fb.cross_entropy(x, y),
    "chain": lambda x: fb.relu(2 * x + 1) * fb.sigmoid(x),
    **{f"cumulative sum along {a}": partial(fb.cumulative_sum, axis=a) for a in (0, 1)},
    **{f"cumulative product along {a}": partial(fb.cumulative_prod, axis=a) for a in (0, 1)},
    **{f"cumulative logsumexp along {a}": partial(fb.cumulative_logsumexp, axis=a) for a in (0, 1)},
    **{f"cumulative max along {a}": lambda x, a=a: fb.cummax(x, axis=a)[0] for a in (0, 1)},
    "sort": fb.sort, "argsort": fb.argsort, "sort of 2 M": fb.sort, "argsort of 2 M": fb.argsort,
    "32 largest": lambda x: fb.top_k(x, 32).values, "median": lambda x: fb.median(x, axis=1),
    **{name: partial(_convolved, stride=stride) for name, stride in CONVOLUTIONS.items()},
    "bilinear": lambda x: fb.interpolate(x, scale_factor=2, mode="bilinear"),
    **{f"causal attention {n}": partial(fb.scaled_dot_product_attention, causal=True) for n in (128, 512, 2048)},
}  # fmt: skip


def rows(work: Work) -> tuple[Any, list[fb.Tensor]]:
    """A function of rows, with its gradient if asked for, under ``jit``."""
    fn, operands = ROWS[work.model], [fb.asarray(a) for a in work.operands()]
    if not work.gradient:
        return fb.jit(lambda *xs: (fn(*xs),)), operands
    wanted = [i for i, a in enumerate(operands[:-1]) if a.dtype == fb.float32]

    @fb.jit
    def both(*xs: fb.Tensor) -> tuple[fb.Tensor, ...]:
        *given, cotangent = xs
        y, pull = fb.vjp(lambda *part: fn(*[part[wanted.index(i)] if i in wanted else g for i, g in enumerate(given)]),
                         *[given[i] for i in wanted])  # fmt: skip
        return (y, *pull(cotangent))

    return both, operands


def products(work: Work) -> tuple[Any, list[list[fb.Tensor]]]:
    """All products in one plan."""
    factors = [[fb.asarray(a) for a in part] for part in work.factors()]
    return fb.jit(lambda left, right: [a @ b for a in left for b in right]), factors


def _facts(run: Any, args: Any, parts: float = 0.0) -> dict[str, float]:
    """Bytes of a program's inputs and outputs, which it must move at least, and the operations of its products."""
    graph = run.graph(*args)
    values = {*range(len(graph.inputs)), *graph.outputs}
    flops = parts or product_flops(graph, [False] * len(graph.inputs))
    return {"flops": flops, "bytes": float(sum(graph.avals[v].nbytes for v in values))}


def product_flops(graph: Graph, wanted: list[bool]) -> float:
    """Operations of a graph's products and convolutions, and of their gradients.

    Each costs as much again for every operand that depends on one of the graph's inputs that are ``wanted``.
    """
    depends = {v for v, w in enumerate(wanted) if w}
    total = 0.0
    for n in graph.nodes:
        of = [v in depends for v in n.inputs]
        if any(of):
            depends.update(n.results)
        if n.op.fusion == "contract":
            cost = n.op.cost([graph.avals[v] for v in n.inputs], n.avals, n.params)
            total += cost.flops * (1 + sum(of))
        for inner in graphs_in(n.params):
            states = n.params.get("carries", 0)
            first = n.params.get("consts", 0)
            inside = [w or (any(of) and first <= i < first + states) for i, w in enumerate(of)]
            total += n.params.get("length", 1) * product_flops(inner, inside)
    return total


def forward_flops(work: Work) -> float:
    """Operations of the products of a training step: a network's own, and those of the gradients that it needs."""
    model, x, _ = _built(work)
    forward = fb.jit(lambda x: model(x))
    graph = forward.graph(x)
    return product_flops(graph, [v > 0 for v in range(len(graph.inputs))])


def _ready(run: Any, args: Any, read: Callable[[Any], Any], facts: Callable[[], dict[str, float]]) -> Ready:
    return Ready(lambda: run(*args), read, facts=facts)


def _arrays(out: Any) -> list[np.ndarray[Any, Any]]:
    return [t.numpy().copy() for t in out]


def _one(out: Any) -> list[np.ndarray[Any, Any]]:
    return [out.numpy().copy()]


def _make(work: Work) -> Ready:
    if work.kind == "training":
        step, x, y = training(work)
        return _ready(step, (x, y), _one, lambda: _facts(fb.jit(step) if work.eager else step, (x, y), forward_flops(work)))
    if work.kind == "inference":
        predict, image = inference(work)
        return _ready(predict, (image,), _one, lambda: _facts(predict, (image,)))
    if work.kind == "copy":
        negative, x = fb.jit(lambda x: -x), fb.asarray(work.operands()[0])
        return Ready(lambda: negative(x), lambda out: [])
    run, args = (rows if work.kind == "rows" else products)(work)
    return _ready(run, args, _arrays, lambda: _facts(run, args))


def variants(work: Work) -> Variants:
    """The one form there is."""
    fb.config.num_threads = work.threads
    fb.random.seed(0)
    return {"": partial(_make, work)}
