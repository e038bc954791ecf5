"""``KINDS``: the kinds of kernels, a row each. ``spec_of`` gives the specification of a group of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.compiler.spec.attention import Attention, attention
from firebrick.compiler.spec.contract import Contract, contract
from firebrick.compiler.spec.copy import Copy, copy
from firebrick.compiler.spec.elements import rule_of
from firebrick.compiler.spec.nest import Nest, nest
from firebrick.compiler.spec.prefix import Prefix, prefix
from firebrick.compiler.spec.scatter import Scatter, scatter
from firebrick.compiler.spec.search import Search, search
from firebrick.compiler.spec.sort import Sort, sort
from firebrick.compiler.spec.window import Window, window
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node

KernelSpec = Nest | Contract | Attention | Window | Scatter | Copy | Prefix | Sort | Search


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of kernel.

    Attributes:
        build: The specification of a group of nodes of this kind.
        grouped: Whether groups may have several nodes; else a group has one node, and constants that it reads.
    """

    build: Callable[[Graph], KernelSpec]
    grouped: bool = False


KINDS: dict[str, Kind] = {
    "map": Kind(nest, grouped=True),
    "row": Kind(nest, grouped=True),
    "contract": Kind(contract, grouped=True),
    "attention": Kind(attention),
    "window": Kind(window),
    "scatter": Kind(scatter),
    "copy": Kind(copy),
    "prefix": Kind(prefix),
    "sort": Kind(sort),
    "search": Kind(search),
}
"""Kinds by name, the ``kind`` of an entry of the op table."""


def kind_of(n: Node, operands: Sequence[Aval]) -> str:
    """The kind of kernel that computes a node, one of ``KINDS``; empty if there is none."""
    if n.op.access is not None:
        refused = n.op.access.refused([a.shape for a in operands], **n.params)
        if refused is not None:
            return "" if refused else "map"
    if n.op.view is not None or n.op.control is not None or n.op.kind not in KINDS:
        return ""
    needs = rule_of(n, operands) if n.op.kind in ("map", "row") else n.op.facts
    return n.op.kind if needs is not None or n.op.kind == "contract" else ""


def spec_of(body: Graph) -> KernelSpec:
    """The specification of a group of nodes.

    Raises:
        TypeError: The group has none.
    """
    avals = body.avals
    nodes = [n for n in body.nodes if n.op is not CONSTANT and n.op.view is None]
    kinds = {kind_of(n, [avals[v] for v in n.inputs]) for n in nodes}
    special = [k for k in kinds if k not in ("map", "row")]
    return KINDS[special[0] if special else "map"].build(body)
