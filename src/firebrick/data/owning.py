"""Values that nobody else changes: a data set, a transform or a stream may fill one buffer again and again, and what a batch
holds is what the buffer held when it was read."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from sys import getrefcount
from typing import Any

import numpy as np

from firebrick.core.tensor import Tensor
from firebrick.data.structure import structure_of


def owned(sample: Any) -> Any:
    """A sample with copies of its arrays; tensors in handles of their own."""
    if isinstance(sample, np.ndarray):
        return sample.copy() if type(sample) is np.ndarray else deepcopy(sample)
    if isinstance(sample, Tensor):
        return sample.detach()
    if isinstance(sample, (tuple, list)):
        parts = [owned(v) for v in sample]
        return type(sample)(*parts) if hasattr(sample, "_fields") else type(sample)(parts)
    if type(sample) is dict:
        return {k: owned(v) for k, v in sample.items()}
    if isinstance(sample, Mapping) or hasattr(type(sample), "__dataclass_fields__"):
        structure = structure_of(sample)
        return structure.build(iter([owned(v) for v in structure.leaves(sample)]))
    return deepcopy(sample) if hasattr(sample, "__array__") and not isinstance(sample, np.generic) else sample


def unshared(sample: Any) -> Any:
    """A sample as it is, but with copies of the arrays in it, also of those of PyTorch: a function that writes into what it is
    given leaves the data set as it was."""
    if isinstance(sample, np.ndarray):
        return sample.copy() if type(sample) is np.ndarray else deepcopy(sample)
    if isinstance(sample, Tensor):
        return sample.detach()
    if type(sample) in (tuple, list) or hasattr(sample, "_fields"):
        parts = [unshared(v) for v in sample]
        return type(sample)(*parts) if hasattr(sample, "_fields") else type(sample)(parts)
    if type(sample) is dict:
        return {k: unshared(v) for k, v in sample.items()}
    if hasattr(type(sample), "__dataclass_fields__"):
        other = copy(sample)
        for name in type(sample).__dataclass_fields__:
            if hasattr(sample, name):
                object.__setattr__(other, name, unshared(getattr(sample, name)))
        return other
    return sample.clone() if hasattr(sample, "clone") and hasattr(sample, "__dlpack__") else sample


def owned_arrays(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The arrays of a list that is their only holder, with copies of those that somebody else holds too."""
    for i in range(len(arrays)):
        if arrays[i].base is not None or getrefcount(arrays[i]) > _ALONE:
            arrays[i] = arrays[i].copy()
    return arrays


_held = [np.empty(0)]
_ALONE = getrefcount(_held[0])  # how many references this interpreter counts when one list holds an array
