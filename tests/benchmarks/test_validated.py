"""Every group of fused nodes of the benchmarks' training steps is proved to be what its nodes mean."""

from __future__ import annotations

import pytest
from benchmarks.models import NETWORKS
from benchmarks.ours import training
from benchmarks.work import Work

from firebrick.backends.cpu.native import Proofs
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.ir.nested import graphs_in

LARGE = [pytest.param(n, marks=pytest.mark.soak) for n in NETWORKS if n == "resnet18"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(n for n in NETWORKS if n != "resnet18"), *LARGE])
def test_no_group_of_a_training_step_lacks_a_proof(name: str) -> None:
    net = NETWORKS[name]
    step, *operands = training(Work(name, "training", name, 2, arrays=net.arrays(), dropout=net.dropout))
    graph = step.graph(*operands)
    proofs, groups = Proofs(), 0
    for g in (graph, *(inner for n in graph.nodes for inner in graphs_in(n.params))):
        groups += sum(n.op.name == "fused" for n in fuse(g, kind_of, POLICY, proved=proofs).nodes)
    assert groups > 10
    assert proofs.refused == []
