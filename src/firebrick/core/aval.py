"""An abstract value: what is known of a tensor without its data."""

from __future__ import annotations

from math import prod
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
        return int(prod(self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize
