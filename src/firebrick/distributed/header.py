"""``Header``: what a rank is about to do, told to the others before any data, so that a disagreement is an error.

Without it, ranks that call other operations, or the same one with other shapes, would hang or read each other's bytes as
something else. A header is a text of ``BYTES`` bytes; ranks compare all of it but the operand's label, which is for messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

import numpy as np

from firebrick.core import dtypes
from firebrick.core.errors import CollectiveMismatchError, ShapeError
from firebrick.core.tensor import Tensor

BYTES = 320


@dataclass(frozen=True)
class Header:
    """One call of a collective operation.

    Attributes:
        op: Its name and what decides its meaning, such as ``all_reduce(sum)`` or ``broadcast(from rank 0)``.
        number: How many collective operations the rank called in this group before.
        dtype: Of its tensors; empty without any.
        shape: Of its tensor; the elements in all, for several.
        count: Number of tensors.
        digest: Of the shapes of several tensors.
        label: The (first) tensor's label.
    """

    op: str
    number: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    count: int = 0
    digest: int = 0
    label: str = ""

    @classmethod
    def of(cls, op: str, number: int, tensors: Sequence[Tensor] = ()) -> Header:
        """The header of a call with these tensors, all of one dtype."""
        if not tensors:
            return cls(op, number)
        first = tensors[0]
        if len(tensors) == 1:
            return cls(op, number, first.dtype.name, first.shape, 1, 0, (first.label or "")[:80])
        digest = crc32(repr([t.shape for t in tensors]).encode())
        return cls(
            op, number, first.dtype.name, (sum(t.size for t in tensors),), len(tensors), digest, (first.label or "")[:80]
        )

    def encode(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """The header as bytes.

        Raises:
            ShapeError: The tensor has more axes than fit.
        """
        text = json.dumps(asdict(self), ensure_ascii=True, separators=(",", ":")).encode()
        if len(text) > BYTES:
            text = json.dumps({**asdict(self), "label": ""}, separators=(",", ":")).encode()
        if len(text) > BYTES:
            raise ShapeError(f"{self.op}: a tensor of at most 12 axes", f"{len(self.shape)} axes", "reshape it to fewer")
        return np.frombuffer(text.ljust(BYTES), np.uint8).copy()

    @classmethod
    def decode(cls, data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Header:
        """The header that was sent."""
        found = json.loads(data.tobytes())
        return cls(**{**found, "shape": tuple(found["shape"])})

    @property
    def np_dtype(self) -> np.dtype[Any]:
        """The dtype it names, as NumPy's."""
        found: np.dtype[Any] = dtypes.dtype(self.dtype).np
        return found

    def agreed(self) -> tuple[object, ...]:
        """What must be the same on all ranks."""
        return self.op, self.number, self.dtype, self.shape, self.count, self.digest

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        operand = f" of {self.dtype}[{','.join(map(str, self.shape))}]{label}"
        if self.count > 1:
            operand = f" of {self.count} {self.dtype} tensors with {self.shape[0]} elements, first{label or ' unnamed'}"
        return f"{self.op}{operand if self.count else ''}, call {self.number}"


def check(headers: Sequence[Header], rank: int) -> None:
    """Check that all ranks call the same.

    Args:
        headers: By rank.
        rank: This one.

    Raises:
        CollectiveMismatchError: They do not; the message says what each calls.
    """
    mine = headers[rank]
    if all(h.agreed() == mine.agreed() for h in headers):
        return
    calls: dict[str, list[int]] = {}
    for r, h in enumerate(headers):
        calls.setdefault(str(h), []).append(r)
    shown = "; ".join(f"{'rank' if len(rs) == 1 else 'ranks'} {', '.join(map(str, rs))}: {call}" for call, rs in calls.items())
    if len({(h.op, h.number) for h in headers}) > 1:
        remedy = "let every rank call the same operations in the same order, outside of conditions that differ between ranks"
    else:
        remedy = "give every rank a tensor of the same dtype and shape; one that has nothing to add passes zeros"
    raise CollectiveMismatchError("a collective operation is one call on all ranks, with operands that match", shown, remedy)
