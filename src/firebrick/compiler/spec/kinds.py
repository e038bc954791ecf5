"""``KINDS``: the kinds of kernels, a row each. ``spec_of`` gives the specification of a group of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.compiler.spec.attention import Attention, attention
from firebrick.compiler.spec.contract import Contract, contract
from firebrick.compiler.spec.copy import Copy, copy
from firebrick.compiler.spec.custom import Custom, custom
from firebrick.compiler.spec.elements import is_complex, rule_of
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve, cholesky, triangular_solve
from firebrick.compiler.spec.nest import Nest, nest
from firebrick.compiler.spec.prefix import Prefix, prefix
from firebrick.compiler.spec.scatter import Scatter, scatter
from firebrick.compiler.spec.search import Search, search
from firebrick.compiler.spec.sort import Sort, sort
from firebrick.compiler.spec.window import Window, window
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node

KernelSpec = (
    Nest | Contract | Attention | Window | Scatter | Copy | Prefix | Sort | Search | Cholesky | TriangularSolve | Custom
)


def _never(n: Node, operands: Sequence[Aval]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of kernel.

    Attributes:
        build: The specification of a group of nodes of this kind.
        grouped: Whether groups may have several nodes; else a group has one node, and constants that it reads.
        complex: Whether a node of complex numbers, with these operands, has a specification of this kind.
    """

    build: Callable[[Graph], KernelSpec]
    grouped: bool = False
    complex: Callable[[Node, Sequence[Aval]], bool] = _never

    @property
    def takes_complex(self) -> bool:
        """Whether some nodes of complex numbers have a specification of this kind."""
        return self.complex is not _never


def _always(n: Node, operands: Sequence[Aval]) -> bool:
    return True


def _alike(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether the parts of complex numbers go through a fold as two more elements of a row would."""
    assert n.op.facts is not None
    facts = n.op.facts(operands, n.avals, **n.params)
    return facts["fold"] in ("set", "add", "sum") and bool(facts.get("slices", True))


KINDS: dict[str, Kind] = {
    "map": Kind(nest, grouped=True, complex=_always),
    "row": Kind(nest, grouped=True, complex=_always),
    "contract": Kind(contract, grouped=True),
    "attention": Kind(attention),
    "window": Kind(window),
    "scatter": Kind(scatter, complex=_alike),
    "copy": Kind(copy, complex=_always),
    "prefix": Kind(prefix, complex=_alike),
    "sort": Kind(sort),
    "search": Kind(search),
    "cholesky": Kind(cholesky),
    "triangular_solve": Kind(triangular_solve),
    "custom": Kind(custom),
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
    if (needs is None and n.op.kind != "contract") or (is_complex(n, operands) and not KINDS[n.op.kind].complex(n, operands)):
        return ""
    return n.op.kind


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
