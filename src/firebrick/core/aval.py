"""An abstract value: what is known of a tensor without its data."""

from __future__ import annotations

from typing import NamedTuple

from firebrick.core.dtypes import DType

Shape = tuple[int, ...]


class Aval(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize
