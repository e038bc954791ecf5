"""Loads and stores of the lanes of a vector at indices in their ``LaneForm``: one element, consecutive ones, or any."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from firebrick.compiler.targets.llvm.emit import scalar_type, splat
from firebrick.compiler.targets.llvm.memory import Strip, read, read_at, store_bytes, stored_type, write, write_at
from firebrick.scalar.storage import computed

if TYPE_CHECKING:
    from firebrick.compiler.targets.llvm.lane_forms import LaneForm, Lanes


def read_lanes(lanes: Lanes, strip: Strip, at: LaneForm, mask: str) -> str:
    """The elements at an index, a vector in the dtype they are computed in; 0 or that of another lane where the mask is false.

    Args:
        lanes: Of the vector.
        strip: The array.
        at: Index.
        mask: Active lanes, at least one; empty for all.
    """
    code, count = lanes.code, lanes.lanes
    if at.uniform or count == 1:
        one = read_at(code, strip, at.base or at.vector, 1)
        return splat(code, scalar_type(computed(strip.dtype)), one, count)
    if at.step == 1 and not at.vector:
        return read(code, strip, at.base, count, mask)
    if at.step == -1 and not at.vector:
        first = code.put(f"sub i64 {at.base}, {count - 1}")
        found = read(code, strip, first, count, _turned(lanes, mask, "bool"))
        return _turned(lanes, found, computed(strip.dtype))
    near, offsets = _offsets(lanes, strip, at)
    return read_at(code, near, offsets, count, mask)


def write_lanes(lanes: Lanes, strip: Strip, at: LaneForm, value: str, mask: str, stream: bool = False) -> None:
    """Store a vector where the mask is true; past the caches if ``stream``. Other arguments as of ``read_lanes``."""
    code, count = lanes.code, lanes.lanes
    if count == 1:
        write(code, strip, at.base or at.vector, value, 1)
    elif at.step == 1 and not at.vector:
        write(code, strip, at.base, value, count, mask, store_bytes(strip.dtype, count) if stream and not mask else 0)
    elif at.step == -1 and not at.vector:
        first = code.put(f"sub i64 {at.base}, {count - 1}")
        write(code, strip, first, _turned(lanes, value, computed(strip.dtype)), count, _turned(lanes, mask, "bool"))
    else:
        near, offsets = _offsets(lanes, strip, at)
        write_at(code, near, offsets, value, count, mask)


def _turned(lanes: Lanes, vector: str, dtype: str) -> str:
    """A vector, or the mask of all lanes, with its lanes in reverse order."""
    if not vector:
        return ""
    kind, count = lanes.type(dtype), lanes.lanes
    order = ", ".join(f"i32 {i}" for i in range(count - 1, -1, -1))
    return lanes.code.put(f"shufflevector {kind} {vector}, {kind} poison, <{count} x i32> <{order}>")


def _offsets(lanes: Lanes, strip: Strip, at: LaneForm) -> tuple[Strip, str]:
    """The uniform part of an index added to the pointer, and the rest as a vector: loops often change the former alone."""
    code = lanes.code
    pointer = strip.pointer
    if at.base not in ("", "0"):
        pointer = code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {pointer}, i64 {at.base}")
    rest = replace(at, base="")
    offsets = lanes.vector(rest, "int64") if not rest.uniform else "zeroinitializer"
    return Strip(strip.dtype, pointer, 1), offsets
