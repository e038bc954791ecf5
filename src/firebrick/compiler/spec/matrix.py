"""``Cholesky`` and ``TriangularSolve``: stacks of matrices, each of which is computed alone.

A matrix without an answer is a fault. The error names the first such matrix and counts them, so each check is two sites: the
payload of the first one is the number of a matrix in its stack, and the payload of the second is minus their count. What the
kernels write for such a matrix has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec.base import Cost, Size, Sizes
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.core.errors import LinAlgError
from firebrick.core.views import View, row_major
from firebrick.ir import Graph
from firebrick.ops.linalg import FINITE, INVERTIBLE, POSITIVE_DEFINITE, no_such_matrix

Array = np.ndarray[Any, Any]
BLOCK = 4
"""Maximum number of rows and columns of the blocks of matrices that a kernel has in registers."""
COLUMNS = 4
"""Maximum number of columns of a right side that an item computes."""


@dataclass(frozen=True, slots=True)
class MatrixSite:
    """A check of the matrices of a stack.

    Attributes:
        op: The operation's name.
        want: What every matrix must be, one of ``ops.linalg.REMEDIES``.
        stack: Shape of the stack.
    """

    op: str
    want: str
    stack: Sizes

    def error(self, first: int, count: int = -1) -> LinAlgError:
        """The error of a fault here.

        Args:
            first: Number of the first matrix that is not what it must be.
            count: Minus how many matrices are not.

        Example:
            >>> from firebrick.compiler.spec.matrix import MatrixSite
            >>> print(MatrixSite("cholesky", "positive definite", (2, 3)).error(4, -2))
            cholesky: every matrix must be positive definite
            Received: matrix (1, 1) of a stack of shape (2, 3) is not (2 in all).
            Remedy: add a small multiple of the identity, or use eigh.
        """
        return no_such_matrix(self.op, self.want, self.stack, first, -count)


@dataclass(frozen=True, slots=True)
class Cholesky:
    """Arrays are row-major [*stack, n, n].

    Attributes:
        stack: Shape of the stack.
        n: Rows and columns of a matrix.
        block: Rows and columns of the blocks that matrices are factored by.
        dtype: Of the matrices and factors in memory.
        sources: The input that the matrices are.
    """

    stack: Sizes
    n: Size
    block: int
    dtype: str
    sources: tuple[int, ...]

    @property
    def sites(self) -> tuple[MatrixSite, ...]:
        """Its checks, each as two sites."""
        return tuple(MatrixSite("cholesky", want, self.stack) for want in (FINITE, POSITIVE_DEFINITE) for _ in range(2))

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        elements = prod(self.stack) * self.n**2
        return Cost(elements * self.n / 3, 2.0 * elements * itemsize(self.dtype))

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Fault | None:
        """Write the factors, by NumPy; arrays are flat."""
        x = inputs[self.sources[0]].reshape(-1, self.n, self.n)
        half = x.dtype.type(0.5)
        a = x * half + np.swapaxes(x, -1, -2) * half
        finite, positive = np.asarray(np.isfinite(x).all((-2, -1))), np.ones(len(x), np.bool_)
        found = np.full(a.shape, np.nan)
        for k in np.flatnonzero(finite):
            try:
                found[k] = np.linalg.cholesky(a[k].astype(np.float64))
            except np.linalg.LinAlgError:
                positive[k] = False
        outs[0][:] = found.reshape(-1)
        return _first(0, ~finite) or _first(2, ~positive)


def _first(site: int, bad: Array) -> Fault | None:
    """The fault of the matrices that are marked."""
    return Fault(site, int(np.argmax(bad))) if bad.any() else None


def cholesky(body: Graph) -> Cholesky:
    """The specification of a group of one Cholesky decomposition."""
    s = single(body)
    (x,) = s.operands
    n = x.shape[-1]
    return Cholesky(x.shape[:-2], n, min(n, BLOCK), x.dtype.name, s.inputs)


@dataclass(frozen=True, slots=True)
class TriangularSolve:
    """Arrays are row-major, and seen in the order of elimination: of an upper triangle both axes of the matrix, and the rows of
    the right side and of the result, are reversed, so that the triangle is always the lower one.

    Attributes:
        stack: Shape of the stack of triangles.
        triangle: View over [*batch, n, n]; what is above the diagonal is not read.
        right: View over [*batch, n, columns].
        result: View over [*batch, n, columns].
        block: Rows of the blocks that are solved for at once.
        columns: Columns of an item.
        dtype: Of all arrays in memory.
        sources: The inputs that the triangles and the right sides are.
    """

    stack: Sizes
    triangle: View
    right: View
    result: View
    block: int
    columns: int
    dtype: str
    sources: tuple[int, ...]

    @property
    def sites(self) -> tuple[MatrixSite, ...]:
        """Its check, as two sites."""
        return (MatrixSite("solve_triangular", INVERTIBLE, self.stack),) * 2

    @property
    def n(self) -> int:
        """Rows and columns of a triangle."""
        return self.triangle.shape[-1]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        elements = prod(self.result.shape)
        return Cost(float(elements * self.n), float((prod(self.stack) * self.n**2 + 2 * elements) * itemsize(self.dtype)))

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Fault | None:
        """Write the solutions, by NumPy; arrays are flat."""
        t, x = (inputs[s].astype(np.float64) for s in self.sources)
        lower, right = _elements(t, self.triangle), _elements(x, self.right)
        found = np.empty(right.shape)
        for i in range(self.n):
            rest = right[..., i, :] - np.einsum("...k,...kc->...c", lower[..., i, :i], found[..., :i, :])
            found[..., i, :] = rest / lower[..., i, i, None]
        _elements(outs[0], self.result)[...] = found
        diagonal = np.diagonal(t.reshape(-1, self.n, self.n), axis1=-2, axis2=-1)
        return _first(0, (diagonal == 0).any(-1))


def _elements(flat: Array, view: View) -> Array:
    """The elements of a view of one digit an axis, in the same memory."""
    assert view.strides is not None
    strides = [s * flat.itemsize for s in view.strides]
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, strides)


def _repeated(shape: tuple[int, ...], batch: tuple[int, ...]) -> View:
    """A row-major stack of matrices, repeated along axes of a batch."""
    *lead, rows, columns = row_major(shape).axes
    return View((*View(tuple(lead)).broadcast_to(batch).axes, rows, columns))


def triangular_solve(body: Graph) -> TriangularSolve:
    """The specification of a group of one triangular solve."""
    s = single(body)
    t, x = s.operands
    (result,) = s.node.avals
    batch, (n, columns) = result.shape[:-2], x.shape[-2:]
    triangle, right, found = _repeated(t.shape, batch), _repeated(x.shape, batch), row_major(result.shape)
    if s.node.params["upper"]:
        rows = len(batch)
        triangle, right, found = triangle.flipped((rows, rows + 1)), right.flipped((rows,)), found.flipped((rows,))
    return TriangularSolve(
        t.shape[:-2], triangle, right, found, min(n, BLOCK), min(columns, COLUMNS), x.dtype.name, s.inputs
    )  # fmt: skip
