"""Kernels whose types are given beside the function, so that its parameters have types of Python to type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.compiler.kernel.language.annotations import ArrayType, sizes_of
from firebrick.core.dtypes import DType
from firebrick.functions.kernels import Kernel, kernel


def reads(dtype: DType, sizes: str) -> ArrayType:
    """``fb.kernel.In[dtype, sizes]``."""
    return ArrayType("In", dtype, sizes_of(sizes))


def results(dtype: DType, sizes: str, unread: bool = False) -> ArrayType:
    """``fb.kernel.Out[dtype, sizes]``; ``unread`` if nothing reads the elements that the kernel does not store."""
    return ArrayType("Out", dtype, sizes_of(sizes), unread=unread)


def typed_kernel(
    grid: str | None = None, *, group: int = 0, unchecked: bool = False, **types: Any
) -> Callable[[Callable[..., None]], Kernel]:
    """A decorator that makes a kernel of a function.

    Args:
        grid: As of ``fb.kernel``.
        group: Likewise.
        unchecked: Likewise.
        **types: Of the parameters, by name.
    """

    def make(function: Callable[..., None]) -> Kernel:
        function.__annotations__ = types
        return kernel(grid=grid, group=group, unchecked=unchecked)(function)

    return make
