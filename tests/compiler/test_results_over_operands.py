"""Results that lie over operands: where a group's kernels allow it, they give the bits that they give in new memory.

Random groups of elementwise nodes, reductions and products, with axes of equal sizes and of size 1.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size
from lowered_bodies import Body

import firebrick as fb
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.row import RowGenerator
from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

Array = np.ndarray[Any, Any]


def random_graph(seed: int) -> Graph:
    """Some 14 nodes over operands of one shape, of its rows and of its columns, with several results."""
    rng = np.random.default_rng(seed)
    n, rank = int(rng.choice([1, 2, 7, 33])), int(rng.integers(1, 4))
    shape = tuple(int(rng.choice([1, n])) for _ in range(rank))
    dtype = fb.float32 if rng.random() < 0.7 else fb.float64
    g = Graph([Aval(shape, dtype)] * 3)

    def put(name: str, *inputs: int, **params: Any) -> int:
        return g.add(OPS[name], *inputs, **params)[0]

    for _ in range(14):
        alike = [v for v, a in enumerate(g.avals) if a.shape == shape]
        i, j = (int(v) for v in rng.choice(alike, 2))
        how = rng.random()
        if how < 0.6:
            put(str(rng.choice(["add", "multiply", "subtract", "maximum"])), i, j)
        elif how < 0.7:
            put(str(rng.choice(["relu", "negative", "sigmoid", "exp"])), i)
        elif how < 0.8 and rank == 2 and shape[0] == shape[1]:
            put("matmul", i, j)
        else:
            axes = tuple(sorted(int(a) for a in rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False)))
            total = put(str(rng.choice(["sum", "max", "mean"])), i, axes=axes, keepdims=bool(rng.random() < 0.7))
            if g.avals[total].ndim == rank:
                put("subtract", i, total)
    count = g.size - 3
    g.outputs = tuple(int(v) + 3 for v in rng.choice(count, min(4, count), replace=False))
    return g


def bodies(g: Graph) -> list[Graph]:
    with kernels_of_any_size():
        nodes: list[Node] = [n for n in fuse(g, kind_of, POLICY).nodes if n.op is FUSED]
    return [n.params["body"] for n in nodes]


def differing(body: Graph) -> str:
    """Where results over operands differ from results in new memory; empty if nowhere."""
    run = Body(body)
    over = run.lowered.over
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, a.shape).astype(a.dtype.np) for a in body.inputs]
    wanted = [a.copy() for a in run(*(a.copy() for a in arrays))]
    free = sorted({i for some in over for i in some})
    for order in list(permutations(range(len(over))))[:6]:
        operands, outs, left = [a.copy() for a in arrays], [np.full_like(w, 77) for w in wanted], list(free)
        taken = []
        for slot in order:
            i = next((i for i in left if i in over[slot]), None)
            if i is not None:
                left.remove(i)
                outs[slot] = operands[i]
                taken.append((slot, i))
        run(*operands, out=outs)
        for slot, (got, want) in enumerate(zip(outs, wanted, strict=True)):
            if not np.array_equal(got, want, equal_nan=True):
                return f"result {slot} with results over operands {taken}: got {got}, want {want} in\n{body}"
    return ""


@pytest.mark.parametrize("part", range(6))
def test_results_over_operands_have_the_bits_of_results_in_new_memory(part: int) -> None:
    found = tried = 0
    for seed in range(part * 25, part * 25 + 25):
        for body in bodies(random_graph(seed)):
            assert differing(body) == "", f"seed {seed}"
            found += any(Body(body).lowered.over)
            tried += 1
    assert found >= tried // 4  # most groups have a result that may lie over an operand


def test_results_of_short_rows_that_are_written_one_by_one_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.compiler.targets.llvm import row as module

    right = RowGenerator.row

    def one_by_one(self: RowGenerator, row: str) -> None:  # as kernels of rows of one element once were
        once, self.per_row = self.per_row, []
        right(self, row)
        for e, i in once:
            module.write(self.code, self.strips[len(self.operands) + i], "0", self._scalar().value(e), 1)

    monkeypatch.setattr(RowGenerator, "row", one_by_one)
    assert any(differing(body) for seed in range(60) for body in bodies(random_graph(seed)))
