"""``RULES``: the ops that have kernels of their own, each alone in its group; all others are scalar expressions or products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from firebrick.compiler.targets.llvm import attention, convolutions, movement, pooling, scatters
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Node

Operands = tuple[Aval, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """How an op becomes kernels.

    Attributes:
        refused: Why a node has none; empty if it has. Called with the node and its operands.
        lower: Its kernels, which know the node's operands, one by one, as inputs 0, 1, …, and read and write them row by row.
        numbered: The same where some operands, by position, are numbers of the program; the others are the inputs. Only for
            ``fuse``'s ``NUMBERED``.
    """

    refused: Callable[[Node, Operands], str]
    lower: Callable[[Node, Operands, Target], Lowered]
    numbered: Callable[[Node, Operands, Target, Mapping[int, Any]], Lowered] | None = None


RULES: dict[str, Rule] = {
    **dict.fromkeys(convolutions.OPS, Rule(convolutions.refused, convolutions.lowered)),
    **dict.fromkeys(attention.OPS, Rule(attention.refused, attention.lowered)),
    **dict.fromkeys(pooling.OPS, Rule(pooling.refused, pooling.lowered)),
    **dict.fromkeys(movement.OPS, Rule(movement.refused, lambda n, xs, to: movement.lowered(n, xs, to, {}), movement.lowered)),
    **dict.fromkeys(scatters.OPS, Rule(scatters.refused, lambda n, xs, to: scatters.lowered(n, xs, to, {}), scatters.lowered)),
}
