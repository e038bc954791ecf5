"""Random graphs with random kernels, for memory plans: what may be overwritten, by what, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np

import firebrick as fb
from firebrick.compiler.program.expression import ANY, KEPT, ROWS, Kernel
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops import OPS

SHAPES = ((4, 6), (6, 4), (24,))
FORMS: tuple[dict[str, object], ...] = (
    {}, {"into": "f({0}, out={out})"}, {"first": "{0}.f_()"}, {"into": "f({0}, out={out})", "first": "{0}.f_()"},
    {"into": "f({0}, out={out})", "elementwise": False},
)  # fmt: skip


@dataclass
class DrawnPlan:
    """A graph, its kernels, and what may be overwritten and when."""

    rng: Random
    graph: Graph = field(init=False)
    kernels: list[Kernel | None] = field(default_factory=list)
    donate: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rng = self.rng
        self.graph = Graph([Aval(rng.choice(SHAPES), rng.choice((fb.float32, fb.int64))) for _ in range(rng.randint(1, 3))])
        for _ in range(rng.randint(2, 12)):
            self.node()
        made = [v for n in self.graph.nodes for v in n.results]
        self.graph.outputs = tuple(rng.choice([*made, *made, *range(len(self.graph.inputs))]) for _ in range(rng.randint(1, 4)))
        self.donate = tuple(i for i in range(len(self.graph.inputs)) if rng.random() < 0.6)
        self.ready = tuple(p for p in range(len(self.graph.outputs)) if rng.random() < 0.15)

    def add(self, name: str, *operands: int, **params: object) -> None:
        self.graph.add(OPS[name], *operands, **params)

    def node(self) -> None:
        rng, g = self.rng, self.graph
        v = rng.randrange(g.size)
        shape = g.avals[v].shape
        draw = rng.random()
        if draw < 0.05:
            g.add(CONSTANT, value=np.zeros(rng.choice(SHAPES), np.float32))
            self.kernels.append(None)
            return
        if draw < 0.14:
            self.add("permute", v, axes=tuple(rng.sample(range(len(shape)), len(shape))))
        elif draw < 0.24:
            self.add(
                "reshape",
                v,
                shape=rng.choice([s for s in (*SHAPES, (2, 3, 4), (int(np.prod(shape)),)) if np.prod(s) == np.prod(shape)]),
            )
        elif draw < 0.29 and shape[0] % 2 == 0:
            self.add("slice", v, starts=(0,) * len(shape), stops=(shape[0] // 2, *shape[1:]), steps=(1,) * len(shape))
        elif draw < 0.34:
            self.add("split", v, axis=0, sizes=(shape[0] // 2, shape[0] - shape[0] // 2))
        elif draw < 0.52:
            self.add("sort", v, axis=len(shape) - 1, descending=False)
        elif draw < 0.76:
            self.add("add", v, rng.choice([u for u in range(g.size) if g.avals[u] == g.avals[v]]))
        else:
            self.add("exp" if g.avals[v].dtype is fb.float32 else "negative", v)
        self.kernels.append(self.kernel(g.nodes[-1]))

    def kernel(self, n: Node) -> Kernel:
        rng = self.rng
        layout = rng.choice((ROWS, KEPT, ANY))
        if n.op.view is not None:
            return Kernel("f({0})", layout=ANY if n.op.name != "reshape" else layout)
        if len(n.avals) > 1:
            over = tuple(frozenset({0} if rng.random() < 0.7 else ()) for _ in n.avals)
            return Kernel("f({0})", layout=layout, outs="f({0}, {out0}, {out1})" if rng.random() < 0.7 else None, over=over)
        scratch, faults = rng.choice((0, 0, 32)), rng.random() < 0.1
        return Kernel("f({0})", layout=layout, scratch=scratch, faults=faults, **rng.choice(FORMS))  # type: ignore[arg-type]

    def plan(self) -> Plan:
        return plan_memory(self.graph, self.kernels, self.donate, self.ready)
