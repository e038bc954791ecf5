"""What a generator of kernels is given for a group of nodes: expressions, views of operands and results, axes.

A description is all that a generator knows of the group, so ``validate`` compares descriptions, not graphs, with the nodes that
they stand for.
"""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.scalar.expr import Expr

Axes = tuple[tuple[int, int], ...]
"""Sizes and strides of the parts of an index, the last fastest."""


@dataclass(frozen=True, slots=True)
class Read:
    """An operand as a loop nest reads it.

    Attributes:
        source: Number of the group's input.
        offset: Of the element at position 0 of every axis, in elements.
        dtype: In memory.
        strides: In elements, one for each axis of the nest.
    """

    source: int
    offset: int
    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """A result of a loop nest.

    Attributes:
        expression: Its element at a position of the nest, of the elements that ``load(k)`` reads of ``reads[k]``.
        dtype: In memory.
        strides: In elements, one for each axis; 0 along axes that are reduced. For ``summed``: of the last axis alone.
        summed: Whether the expression is added up along all axes but the last one.
    """

    expression: Expr
    dtype: str
    strides: tuple[int, ...]
    summed: bool = False


@dataclass(frozen=True, slots=True)
class LoopNest:
    """Elementwise work and reductions over the positions of one shape.

    Attributes:
        shape: Sizes of the axes.
        axes: Those along which ``reduce`` runs.
        reads: Operands.
        writes: The group's results, in order.
        faults: For each fault number, the size of the axis that is indexed and the line of the program.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    faults: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """A matrix for each position of a batch: an operand or result of a contraction, or of what follows it.

    Attributes:
        source: Number of the group's input; -1 for a result.
        dtype: In memory.
        rows: Parts of the row index.
        columns: Parts of the column index.
        batch: Stride of each axis of the batch.
        offset: Of the first element.
    """

    source: int
    dtype: str
    rows: Axes
    columns: Axes
    batch: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction [*batch, m, k] · [*batch, k, n] and what follows it.

    Attributes:
        batch: Sizes of the batch.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of each sum.
        left: The left operand, with rows m and columns k; None for a convolution, whose geometry its node states.
        right: The right operand, with rows n and columns k; None for a convolution.
        reads: What ``load(1)``, ``load(2)``, … read; ``load(0)`` is the contraction's element.
        writes: Expressions and places of the group's results, in order.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    left: Tile | None
    right: Tile | None
    reads: tuple[Tile, ...]
    writes: tuple[tuple[Expr, Tile], ...]


Description = LoopNest | Product
