"""How values become bytes: tensors as safetensors, all else as JSON in which trees keep their tuples and arrays.

In the JSON, ``{"$tensor": key}`` stands for a tensor of a tensor file, ``{"$array": …}`` for a small array in place and
``{"$tuple": […]}`` for a tuple.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from firebrick.core import dtypes
from firebrick.core.tensor import Tensor
from firebrick.train.errors import CheckpointError

Array = np.ndarray[Any, Any]
_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
    "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": dtypes.bfloat16.np, "F32": np.float32, "F64": np.float64,
    "C64": np.complex64, "F8_E4M3": dtypes.float8_e4m3fn.np, "F8_E5M2": dtypes.float8_e5m2.np,
}  # fmt: skip


# What reading a tree raises that was not written by ``packed`` and ``inlined``.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


# tensors


def check_storable(arrays: Mapping[str, Array]) -> None:
    """Refuse what a tensor file has no dtype for."""
    for name, a in arrays.items():
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


def packed(tree: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """A tree with marks in place of its tensors, which go into ``tensors``."""
    if isinstance(tree, Tensor):
        tensors[where or "value"] = tree
        return {"$tensor": where or "value"}
    if isinstance(tree, Mapping):
        return {str(k): packed(v, f"{where}/{k}" if where else str(k), tensors) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        rows = [packed(v, f"{where}/{i}" if where else str(i), tensors) for i, v in enumerate(tree)]
        return {"$tuple": rows} if isinstance(tree, tuple) else rows
    return tree


def inlined(tree: Any) -> Any:
    """A tree with its tensors, small ones, written out in place."""
    if isinstance(tree, (Tensor, np.ndarray)):
        host = np.asarray(tree)
        return {"$array": {"dtype": host.dtype.name, "shape": list(host.shape), "values": host.reshape(-1).tolist()}}
    if isinstance(tree, Mapping):
        return {str(k): inlined(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        rows = [inlined(v) for v in tree]
        return {"$tuple": rows} if isinstance(tree, tuple) else rows
    return tree


def unpacked(tree: Any, tensors: Mapping[str, Array]) -> Any:
    """The tree that was packed or inlined, with NumPy arrays for tensors; ``MALFORMED`` is raised if it is none."""
    if isinstance(tree, list):
        return [unpacked(v, tensors) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"$tensor"}:
        return tensors[tree["$tensor"]]
    if tree.keys() == {"$tuple"}:
        return tuple(unpacked(v, tensors) for v in tree["$tuple"])
    if tree.keys() == {"$array"}:
        a = tree["$array"]
        found: Array = np.array(a["values"], dtype=dtypes.dtype(a["dtype"]).np).reshape(a["shape"])
        if found.dtype.kind in "biu" and found.reshape(-1).tolist() != a["values"]:
            raise ValueError(f"an array of {found.dtype} of other values")  # which NumPy would have rounded to whole numbers
        return found
    return {k: unpacked(v, tensors) for k, v in tree.items()}


def text_of(tree: Any) -> bytes:
    """A tree of plain values as JSON.

    Raises:
        CheckpointError: Something in it is no plain value.
    """
    try:
        return json.dumps(tree, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise CheckpointError("a checkpoint holds tensors and plain values", str(e), "turn it into numbers or text") from None
