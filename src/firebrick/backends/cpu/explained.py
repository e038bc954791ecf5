"""The text of ``explain`` for a program's native part: its segments and their kernels, and other operations with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from firebrick.backends.cpu.native import lowered_of
from firebrick.compiler import Kernel
from firebrick.compiler.program.plan import size_text
from firebrick.compiler.program.segments import HOST, Kinds, NodeSegment, SegmentPlan
from firebrick.ir import Node
from firebrick.ir.nested import nodes_in

SHOWN = 12
"""Maximum number of listed reasons, and of listed kernels of a segment."""


def explained(
    kinds: Kinds, kernels: Sequence[Kernel | None], segment_plan: SegmentPlan, reasons: Sequence[str], refused: Sequence[str]
) -> list[str]:  # fmt: skip
    """Lines about a program.

    Args:
        kinds: Of its nodes.
        kernels: Of its nodes.
        segment_plan: Its segments.
        reasons: Reasons why operations were not compiled.
        refused: Groups that were not fused, since their kernels are not proved to compute their nodes.
    """
    graph = kinds.graph
    native = [(graph.nodes[k], found) for k, kernel in enumerate(kernels) if (found := lowered_of(kernel)) is not None]
    different = len({part.kernel.name for _, found in native for part in found.parts})
    inside = sum(_computes(n) for n in nodes_in(n for n, _ in native) if n.op.name != "fused")
    lines = [f"compiled kernels: {different} for {inside} operations"]
    outside = Counter(graph.nodes[k].op.name for k, kind in enumerate(kinds.of) if kind == HOST)
    arena = size_text(segment_plan.arena)
    count = len(segment_plan.segments)
    lines.append(f"native segments: {count}, with an arena of {arena}; outside of them: {_counted(outside)}")
    for number, segment in enumerate(segment_plan.segments):
        lines += _segment_lines(number, segment, kinds, kernels)
    if refused:
        lines.append(f"groups not fused, without a proof: {len(refused)}")
        lines += [f"  {line}" for line in refused]
    left = Counter(reasons)
    if left:
        lines.append(f"operations without a kernel: {sum(left.values())}")
        lines += [f"  {reason}" + (f" × {n}" if n > 1 else "") for reason, n in left.most_common(SHOWN)]
        if len(left) > SHOWN:
            lines.append(f"  and {sum(n for _, n in left.most_common()[SHOWN:])} more")
    return lines


def _computes(n: Node) -> bool:
    return n.op.program is not None or n.op.fusion in (
        "map", "row", "contract", "scatter", "window", "prefix", "sort", "search",
    )  # fmt: skip


def _segment_lines(number: int, segment: NodeSegment, kinds: Kinds, kernels: Sequence[Kernel | None]) -> list[str]:
    copies = [c for c in segment.calls if c.view is not None]
    moved = sum(c.view[1].nbytes for c in copies if c.view is not None)
    text = f"segment {number}: {len(segment.nodes)} nodes, {len(segment.arrays)} arrays in, {len(segment.results)} out"
    lines = [text + (f", {len(copies)} copies of views ({size_text(moved)})" if copies else "")]
    for k in segment.nodes[:SHOWN]:
        n, found = kinds.graph.nodes[k], lowered_of(kernels[k])
        assert found is not None
        cost = n.op.cost(tuple(kinds.avals[v] for v in n.inputs), n.avals, n.params)
        figures = f"{_flops(cost.flops)}, {size_text(cost.bytes)}, about {found.cost_us:.1f} µs on one thread"
        lines.append(f"  {_described(n)}: {figures}")
    if len(segment.nodes) > SHOWN:
        lines.append(f"  and {len(segment.nodes) - SHOWN} more")
    return lines


def _described(n: Node) -> str:
    """The operations and results of a fused node, or of one that runs graphs, as text."""
    inside = (m for m in nodes_in([n]) if m is not n and m.op.name not in ("constant", "fused"))
    kind = f"{n.op.name} of " if n.op.name != "fused" else ""
    return f"{', '.join(map(str, n.avals))} = {kind}{_counted(Counter(m.op.name for m in inside))}"


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} × {count}" if count > 1 else name for name, count in names.items()) or "nothing"


def _flops(n: float) -> str:
    for unit in ("FLOP", "kFLOP", "MFLOP"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "FLOP" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.2f} GFLOP"
