"""``RULES``: the ops that have kernels of their own, each alone in its group; all others are scalar expressions or products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firebrick.compiler.llvm import convolutions
from firebrick.compiler.llvm.lowered import Lowered
from firebrick.compiler.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Node

Operands = tuple[Aval, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """How an op becomes kernels.

    Attributes:
        refused: Why a node has none; empty if it has. Called with the node and its operands.
        lower: Its kernels, which know the node's operands, one by one, as inputs 0, 1, …, and read and write them row by row.
    """

    refused: Callable[[Node, Operands], str]
    lower: Callable[[Node, Operands, Target], Lowered]


RULES: dict[str, Rule] = dict.fromkeys(convolutions.OPS, Rule(convolutions.refused, convolutions.lowered))
