"""How values become bytes: tensors as safetensors, all else as JSON in which trees keep their tuples and arrays.

In the JSON, ``{"$tensor": key}`` stands for a tensor of a tensor file, ``{"$array": …}`` for a small array in place and
``{"$tuple": […]}`` for a tuple.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from firebrick.core import dtypes
from firebrick.core.dtypes import python_scalar
from firebrick.core.tensor import Tensor
from firebrick.train.errors import CheckpointError

Array = np.ndarray[Any, Any]
Path = tuple[str | int, ...]  # of keys and positions
_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
    "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": dtypes.bfloat16.np, "F32": np.float32, "F64": np.float64,
    "C64": np.complex64, "F8_E4M3": dtypes.float8_e4m3fn.np, "F8_E5M2": dtypes.float8_e5m2.np,
}  # fmt: skip
_INLINE = {np.dtype(d).name for d in _DTYPES.values()} - {"complex64"}  # JSON has no complex numbers
_DEEPEST = 100  # levels of a tree, which every Python's stack has room to read again


# What reading a tree raises that was not written by ``packed`` and ``inlined``.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


# tensors


def check_storable(arrays: Mapping[str, Array]) -> None:
    """Refuse what a tensor file has no dtype for, and names that it cannot hold."""
    for name, a in arrays.items():
        if name == "__metadata__" or name != name.encode(errors="replace").decode():
            expected = "a checkpoint stores tensors under names in UTF-8 other than '__metadata__'"
            raise CheckpointError(expected, ascii(name)[:80], "rename the tensor")
        if a.dtype not in _DTYPES.values():
            raise CheckpointError(
                "a checkpoint stores the dtypes of safetensors",
                f"{name}: {a.dtype}",
                "keep it as another dtype, or as two parts",
            )


def tensor_file(arrays: Mapping[str, Array]) -> bytes:
    """Arrays as the content of a safetensors file."""
    return safetensors.numpy.save({n: np.ascontiguousarray(a).reshape(a.shape) for n, a in arrays.items()})


def tensors_of(content: bytes) -> dict[str, Array]:
    """The arrays of a safetensors file, read-only.

    Raises:
        ValueError: It is none, or has a dtype or shape that arrays have not.
    """
    arrays: dict[str, Array] = {}
    try:
        for name, view in safetensors.deserialize(content):  # type: ignore[no-untyped-call]
            arrays[name] = np.frombuffer(view["data"], _DTYPES[view["dtype"]]).reshape(view["shape"])
            arrays[name].flags.writeable = False
    except (safetensors.SafetensorError, KeyError, ValueError, OverflowError) as e:
        raise ValueError(f"{type(e).__name__}: {e}") from e
    return arrays


def facts_of(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """dtype and shape by name, as a manifest lists them."""
    return {n: {"dtype": a.dtype.name, "shape": list(a.shape)} for n, a in arrays.items()}


# trees


def packed(tree: Any, root: str, tensors: dict[str, Tensor]) -> Any:
    """A tree of plain values, with a mark in place of each tensor, which goes into ``tensors``.

    Args:
        tree: Dicts with texts as keys, lists, tuples, numbers, texts, arrays and tensors; NumPy scalars count as numbers.
        root: What messages call it.
        tensors: Where tensors go, by their path: keys and positions with ``/`` between, in which ``~1`` is a ``/`` of a key and
            ``~0`` a ``~``.

    Raises:
        CheckpointError: Something in it would not come back as it is; the message names it by its key.
    """

    def keep(value: Any, path: Path) -> Any:
        if not isinstance(value, Tensor):
            return _inline(value, _place(root, path))
        name = "/".join(str(k).replace("~", "~0").replace("/", "~1") for k in path) if path else "value"
        tensors[name] = value
        return {"$tensor": name}

    return _encoded(tree, (), root, keep)


def inlined(tree: Any, root: str) -> Any:
    """A tree of plain values as ``packed`` makes it, with its tensors, small ones, written out in place."""
    return _encoded(tree, (), root, lambda value, path: _inline(value, _place(root, path)))


def plain(tree: Any, root: str) -> Any:
    """A tree of plain values without arrays and tensors, whose tuples become lists as in any JSON; raises as ``packed``."""

    def refuse(value: Any, path: Path) -> Any:
        raise _refusal(_place(root, path), _kind(value), "pass it as state, or as numbers: .item() or .tolist()")

    return _encoded(tree, (), root, refuse, marks=False)


def _encoded(tree: Any, path: Path, root: str, keep: Callable[[Any, Path], Any], marks: bool = True) -> Any:
    """What JSON has for a tree; ``keep`` makes it of tensors and arrays, and ``marks`` tells tuples from lists."""
    value = python_scalar(tree)
    if value is None or isinstance(value, (bool, int, float, str)):
        if value == tree or value != value:
            return value
        raise _refusal(_place(root, path), f"the {_kind(tree)} {tree!s:.40}, which is no float", "round it: float(…)")
    if isinstance(value, (Tensor, np.ndarray)):
        return keep(value, path)
    if len(path) >= _DEEPEST:
        what = f"more than {_DEEPEST} levels of dicts and lists"
        raise _refusal(_place(root, path), what, "pass a tree that is less deep, and does not hold itself")
    if isinstance(value, Mapping):
        if wrong := [k for k in value if not isinstance(k, str)]:
            what = f"the key {wrong[0]!r:.80}, which is no text"
            raise _refusal(_place(root, path), what, "use texts as keys, or a list of pairs")
        if marks and len(value) == 1 and (key := next(iter(value))).startswith("$"):
            what = f"the key {key!r:.80}, alone as in a mark of the format"
            raise _refusal(_place(root, path), what, "begin the key with another character")
        return {str.__str__(k): _encoded(v, (*path, k), root, keep, marks) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        rows = [_encoded(v, (*path, i), root, keep, marks) for i, v in enumerate(value)]
        return {"$tuple": rows} if marks and isinstance(value, tuple) else rows
    remedy = "turn it into numbers, text or tensors; of an object that has a state, pass its state_dict()"
    raise _refusal(_place(root, path), _kind(value), remedy)


def _inline(value: Any, place: str) -> dict[str, Any]:
    """A tensor or an array written out."""
    remedy = "keep it as a list, or as an array of another dtype"
    if isinstance(value, np.ma.MaskedArray):
        raise _refusal(place, "a masked array", "pass its data and its mask: .data and .mask")
    host = np.asarray(value)
    if host.dtype.name not in _INLINE:
        raise _refusal(place, _kind(value), remedy)
    return {"$array": {"dtype": host.dtype.name, "shape": list(host.shape), "values": host.reshape(-1).tolist()}}


def _place(root: str, path: Path) -> str:
    """Where something lies, as ``state.groups[0].lr``; the first and the last keys of a long path."""
    parts = [f"[{k}]" if isinstance(k, int) else f".{k:.40}" if k.isidentifier() else f"[{k!r:.40}]" for k in path]
    return root + "".join(parts if len(parts) < 9 else [*parts[:4], "…", *parts[-3:]])


def _kind(value: Any) -> str:
    """What something is that cannot be kept."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{value.dtype} {'tensor' if isinstance(value, Tensor) else 'array'} {list(value.shape)}"
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _refusal(place: str, received: str, remedy: str) -> CheckpointError:
    expected = (
        "a checkpoint holds tensors and plain values, in dicts with texts as keys, and gives all of them back as they were"
    )
    return CheckpointError(expected, f"{place}: {received}", remedy)


def unpacked(tree: Any, tensors: Mapping[str, Array], level: int = 0) -> Any:
    """The tree that was packed or inlined, with NumPy arrays for tensors; ``MALFORMED`` is raised if it is none."""
    if level > 2 * _DEEPEST:  # a tuple has two
        raise ValueError(f"more than {_DEEPEST} levels of dicts and lists")
    level += 1
    if isinstance(tree, list):
        return [unpacked(v, tensors, level) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"$tensor"}:
        return tensors[tree["$tensor"]]
    if tree.keys() == {"$tuple"}:
        return tuple(unpacked(v, tensors, level) for v in tree["$tuple"])
    if tree.keys() == {"$array"}:
        a = tree["$array"]
        found: Array = np.array(a["values"], dtype=dtypes.dtype(a["dtype"]).np).reshape(a["shape"])
        if found.dtype.kind in "biu" and found.reshape(-1).tolist() != a["values"]:
            raise ValueError(f"an array of {found.dtype} of other values")  # which NumPy would have rounded to whole numbers
        return found
    return {k: unpacked(v, tensors, level) for k, v in tree.items()}


def text_of(tree: Any) -> bytes:
    """A tree of plain values as JSON.

    Raises:
        CheckpointError: Something in it is no plain value.
    """
    try:
        return json.dumps(tree, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise CheckpointError("a checkpoint holds tensors and plain values", str(e), "turn it into numbers or text") from None
