"""Memory plans of random graphs: each is followed node by node, with a label for each value in place of its elements."""

from __future__ import annotations

from random import Random

import numpy as np
from drawn_plans import DrawnPlan

import firebrick as fb
from firebrick.compiler.program.expression import ANY, ROWS, Kernel
from firebrick.compiler.program.plan import Plan, _Values
from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node
from firebrick.ops import OPS


class Followed:
    """A plan, followed: which memory each value is in, and which values are lost since it was written over."""

    def __init__(self, drawn: DrawnPlan, plan: Plan) -> None:
        self.drawn, self.plan, self.graph = drawn, plan, drawn.graph
        self.memory = {i: i for i in range(len(self.graph.inputs))}
        self.lost: set[int] = set()
        self.overwritten: set[int] = set()
        self.reused = self.donated = 0
        assert sorted(plan.order) == list(range(len(self.graph.nodes)))
        for p, k in enumerate(plan.order):
            self.node(p, k, self.graph.nodes[k], drawn.kernels[k])
            if p < plan.begin:
                assert not self.overwritten
            if p == plan.begin - 1:
                self.begun = {*self.memory} - self.lost

    def node(self, p: int, k: int, n: Node, kernel: Kernel | None) -> None:
        assert not self.lost.intersection(n.inputs), "an operand is overwritten"
        assert self.memory.keys() >= set(n.inputs), "an operand is not computed yet"
        if kernel is not None and kernel.faults:
            assert p < self.plan.begin or not self.plan.writes
        for slot, v in enumerate(n.results):
            over = self.plan.outs.get(v) if kernel is not None and kernel.outs is not None else self.plan.into.get(k)
            self.memory[v] = self.memory[n.inputs[0]] if n.op.view is not None else v if over is None else self.memory[over]
            if over is None:
                continue
            assert kernel is not None
            assert n.op.view is None
            assert self.graph.avals[over] == self.graph.avals[v]
            self.overwrite(n, v, over, kernel, slot)

    def overwrite(self, n: Node, v: int, over: int, kernel: Kernel, slot: int) -> None:
        memory = self.memory[v]
        if over in n.inputs:
            places = {j for j, i in enumerate(n.inputs) if i == over}
            if kernel.outs is not None:
                assert places <= kernel.over[slot]
            else:
                assert kernel.elementwise
                assert kernel.into is not None or n.inputs[0] == over
        else:
            assert kernel.into is not None or kernel.outs is not None
        assert all(i == over for i in n.inputs if self.memory[i] == memory), "another operand is in this memory"
        assert all(u == v or self.memory.get(u) != memory for u in n.results), "another result is in this memory"
        self.lost |= {u for u, m in self.memory.items() if m == memory and u != v}
        self.reused += self.graph.avals[v].nbytes
        if memory < len(self.graph.inputs):
            assert memory in self.drawn.donate
            self.overwritten.add(memory)
            self.donated += self.graph.avals[v].nbytes


def made_by(graph: Graph) -> dict[int, int]:
    return {v: k for k, n in enumerate(graph.nodes) for v in n.results}


def last_use(drawn: DrawnPlan, plan: Plan, v: int, over: bool = True) -> int:
    """The position of the last node that reads a value or (``over``) writes over it."""
    position, node_of = {k: p for p, k in enumerate(plan.order)}, made_by(drawn.graph)
    uses = [k for k, n in enumerate(drawn.graph.nodes) if v in n.inputs]
    if over:
        uses += [k for k, u in plan.into.items() if u == v] + [node_of[w] for w, u in plan.outs.items() if u == v]
    return max(position[k] for k in (*uses, node_of[v]))


def peak(drawn: DrawnPlan, plan: Plan, memory: dict[int, int]) -> int:
    """The most bytes at once of arrays that nodes compute, if no reshape copies."""
    graph, ends, begins = drawn.graph, {}, {}
    for p, k in enumerate(plan.order):
        for v in graph.nodes[k].results:
            m = memory[v]
            if m >= len(graph.inputs) and drawn.kernels[made_by(graph)[m]] is not None:
                begins.setdefault(m, p)
                end = len(plan.order) if v in graph.outputs else last_use(drawn, plan, v, over=False)
                ends[m] = max(ends.get(m, 0), end)
    found = []
    for p, k in enumerate(plan.order):
        kernel = drawn.kernels[k]
        live = sum(graph.avals[m].nbytes for m in begins if begins[m] <= p <= ends[m])
        found.append(live + (0 if kernel is None else kernel.scratch))
    copies = sum(graph.avals[graph.outputs[p]].nbytes for p in plan.copied)
    return max([*found, sum(graph.avals[m].nbytes for m in ends if ends[m] == len(plan.order)) + copies])


def test_plans_of_random_graphs_overwrite_nothing_that_is_read_later() -> None:
    over = donated = several = copied = exact = 0
    for seed in range(400):
        drawn = DrawnPlan(Random(seed))
        plan = drawn.plan()
        done = Followed(drawn, plan)
        outputs, count = drawn.graph.outputs, len(drawn.graph.inputs)
        constants = {v for n, kernel in zip(drawn.graph.nodes, drawn.kernels, strict=True) if kernel is None for v in n.results}
        assert not done.lost.intersection(outputs), seed
        assert plan.writes == done.overwritten, seed
        assert (plan.reused, plan.donated) == (done.reused, done.donated), seed
        assert plan.constants == sum(drawn.graph.avals[v].nbytes for v in constants), seed
        assert plan.begin == len(plan.order) or plan.writes, seed
        if plan.writes:
            assert all(outputs[p] in done.begun for p in plan.ready), seed
        kept = [v for p, v in enumerate(outputs) if p not in plan.copied]
        assert len({done.memory[v] for v in kept}) == len(kept), seed
        assert not any(done.memory[v] in constants for v in kept), seed
        assert all(done.memory[v] >= count or done.memory[v] in plan.writes for v in kept), seed
        dead = {v: p for p, found in plan.dies.items() for v in found}
        made = {v for n in drawn.graph.nodes for v in n.results} - constants - set(outputs)
        assert dead == {v: last_use(drawn, plan, v) for v in made}, seed
        least = peak(drawn, plan, done.memory)
        assert plan.peak >= least if any(n.op.name == "reshape" for n in drawn.graph.nodes) else plan.peak == least, seed
        exact += plan.peak == least
        over, donated = over + len(plan.into), donated + len(plan.writes)
        several, copied = several + len(plan.outs), copied + len(plan.copied)
    assert min(over, donated, several, copied, exact) > 30, "the graphs have all of it"


VIEWS = ("reshape", "permute", "slice", "split", "flip", "broadcast_to")


def of_views(rng: Random) -> tuple[Graph, list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]]]:
    """A graph of views and copies of views, and NumPy's arrays of its values, each over the memory of its own copy."""
    shape = tuple(rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 3)))
    g = Graph([Aval(shape, fb.int32)])
    arrays = [np.zeros(shape, np.int32)]
    for _ in range(rng.randint(2, 9)):
        v = rng.randrange(rng.random() < 0.9 and g.size > 1, g.size)
        x, rank = arrays[v], arrays[v].ndim
        match "negative" if g.size == 1 else rng.choice(("negative", "reshape", "reshape", *VIEWS)):
            case "negative":
                g.add(OPS["negative"], v)
                arrays.append(np.zeros(x.shape, np.int32))
            case "reshape":
                left = [d for d in range(1, x.size + 1) if x.size % d == 0]
                goal = rng.choice([(x.size,), *((d, x.size // d) for d in left), (1, *x.shape), (*x.shape, 1)])
                g.add(OPS["reshape"], v, shape=goal)
                arrays.append(x.reshape(goal))
            case "permute":
                axes = tuple(rng.sample(range(rank), rank))
                g.add(OPS["permute"], v, axes=axes)
                arrays.append(x.transpose(axes))
            case "slice":
                starts = tuple(rng.randrange(d) for d in x.shape)
                steps = tuple(rng.choice((1, 1, 2)) for _ in x.shape)
                g.add(OPS["slice"], v, starts=starts, stops=x.shape, steps=steps)
                arrays.append(x[tuple(map(slice, starts, x.shape, steps))])
            case "split":
                first = rng.randint(1, x.shape[0])
                sizes = (first,) if first == x.shape[0] else (first, x.shape[0] - first)
                g.add(OPS["split"], v, axis=0, sizes=sizes)
                arrays += np.split(x, [first]) if len(sizes) > 1 else [x[:]]
            case "flip":
                g.add(OPS["flip"], v, axes=(0,))
                arrays.append(x[::-1])
            case "broadcast_to":
                g.add(OPS["broadcast_to"], v, shape=(2, *x.shape))
                arrays.append(np.broadcast_to(x, (2, *x.shape)))
    return g, arrays


def memory_of(x: np.ndarray[tuple[int, ...], np.dtype[np.int32]]) -> int:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return id(x)


def test_where_views_lie_is_known_as_numpy_finds_it() -> None:
    seen = copies = 0
    for seed in range(250):
        g, arrays = of_views(Random(seed))
        kernels = [Kernel("f({0})", layout=ROWS if n.op.view is None else ANY, into="f({0}, {out})") for n in g.nodes]
        values = _Values(g, kernels, frozenset({0}))
        maker = {v: n for n in g.nodes for v in n.results}
        for v in range(len(g.inputs), g.size):
            x, source = arrays[v], maker[v].inputs[0]
            shares = memory_of(x) == memory_of(arrays[source])
            known = v in values.strides
            if known:
                wanted = [s // 4 for s, n in zip(x.strides, x.shape, strict=True) if n > 1]
                assert [s for s, n in zip(values.strides[v], x.shape, strict=True) if n > 1] == wanted, (seed, v)
            assert not values.rows[v] or x.flags.c_contiguous, (seed, v)
            if values.whole[v]:
                base = x if x.base is None else x.base
                assert x.flags.c_contiguous, (seed, v)
                assert x.size == base.size, (seed, v)
            if maker[v].op.view is None:
                assert values.rows[v], (seed, v)
                assert values.whole[v], (seed, v)
            if source in values.strides:  # all of it is known then
                assert (values.buffer[v] != v) == shares, (seed, v)
                assert known == (shares or maker[v].op.view is None), (seed, v)
                if maker[v].op is OPS["reshape"]:
                    assert values.whole[v] == (values.whole[source] or not shares), (seed, v)
                seen, copies = seen + known, copies + (not shares)
            assert values.buffer[v] == v or values.buffer[v] == values.buffer[source], (seed, v)
    assert min(seen, copies) > 100
