"""Loop nests: axes of size 1 are dropped, the others merged where every view allows it; and offsets of rows in each view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.targets.llvm.emit import Code


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A loop nest after merging: ``shape``, and for each view its strides (the innermost last)."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def merge(shape: Sequence[int], strides: Sequence[Sequence[int]], order: Sequence[int]) -> LoopNest:
    """Drop axes of size 1, put the rest into ``order``, and merge neighbours where every view allows it."""
    axes = [a for a in order if shape[a] != 1] or [order[-1]] if order else []
    sizes: list[int] = []
    steps: list[list[int]] = []
    for a in axes:
        step = [s[a] for s in strides]
        if sizes and all(old == new * shape[a] for old, new in zip(steps[-1], step, strict=True)):
            sizes[-1] *= shape[a]
            steps[-1] = step
        else:
            sizes.append(shape[a])
            steps.append(step)
    if not sizes or sizes == [1]:
        sizes, steps = [1], [[0] * len(strides)]
    return LoopNest(tuple(sizes), tuple(tuple(step[i] for step in steps) for i in range(len(strides))))


def row_offsets(code: Code, nest: LoopNest, row: str) -> list[str]:
    """For each view, the offset in elements of the first element of row ``row`` (i64). Rows are numbered over all axes but the
    innermost."""
    outer = nest.shape[:-1]
    indices: list[str] = []  # of the outer axes
    rest = row
    for size in reversed(outer[1:]):
        indices.insert(0, code.put(f"urem i64 {rest}, {size}"))
        rest = code.put(f"udiv i64 {rest}, {size}")
    indices = [rest, *indices] if outer else []
    known: dict[tuple[int, ...], str] = {}  # views of equal strides share the arithmetic
    out = []
    for strides in nest.strides:
        key = strides[:-1]
        if key not in known:
            total = "0"
            for index, stride in zip(indices, key, strict=True):
                if stride:
                    term = index if stride == 1 else code.put(f"mul i64 {index}, {stride}")
                    total = term if total == "0" else code.put(f"add i64 {total}, {term}")
            known[key] = total
        out.append(known[key])
    return out
