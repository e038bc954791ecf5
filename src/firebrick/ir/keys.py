"""``key_of``: the value by which parameters and whole graphs are hashed and compared."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.ir.graph import Graph

_HASHED = 256  # bytes of an array above which its key is a digest


def key_of(value: Any) -> Any:
    """The value by which a parameter is hashed and compared: its type and bits. 0.0 is not -0.0, 1 is not True, NaNs are equal
    by payload.

    Values of types that no graph can hold are equal only to themselves.
    """
    kind = type(value)
    if kind is int or kind is bool or kind is str or value is None:
        return (kind, value)
    if kind is tuple or kind is list:
        return (kind, *[key_of(v) for v in value])
    if kind is float:
        return (kind, struct.pack("d", value))
    if kind is dict:
        return (kind, *[(k, key_of(v)) for k, v in value.items()])
    if kind is np.ndarray:
        data = value.tobytes()
        return (kind, value.dtype.name, value.shape, data if len(data) <= _HASHED else blake2b(data).digest())
    if kind is complex:
        return (kind, struct.pack("dd", value.real, value.imag))
    if kind is slice:
        return (kind, key_of(value.start), key_of(value.stop), key_of(value.step))
    if kind is Aval:
        return (kind, value)
    if kind is DType or kind is Device:
        return (kind, value.name)
    if kind is Graph:
        nodes = [(n.op, n.inputs, n.region, key_of(n.params)) for n in value.nodes]
        return (kind, *value.inputs, *nodes, value.outputs)
    return (kind, id(value))


def alike(a: Any, b: Any, assumed: set[tuple[int, int]] | None = None) -> bool:
    """Whether two parameters are the same, or graphs that compute the same way.

    Rules of the user's own are made anew by each call: they are alike if their graphs are. A graph may hold the rule that it is
    a part of, which is assumed to be alike.
    """
    if key_of(a) == key_of(b):
        return True
    kind, assumed = type(a), set() if assumed is None else assumed
    if kind is not type(b):
        return False
    if (id(a), id(b)) in assumed:
        return True
    assumed.add((id(a), id(b)))
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(alike(x, y, assumed) for x, y in zip(a, b, strict=True))
    if kind is dict:
        return a.keys() == b.keys() and all(alike(v, b[k], assumed) for k, v in a.items())
    if kind is Graph:
        whole = (list(a.inputs), a.outputs, len(a.nodes)) == (list(b.inputs), b.outputs, len(b.nodes))
        return whole and all(
            m.op is n.op and m.inputs == n.inputs and alike(m.params, n.params, assumed)
            for m, n in zip(a.nodes, b.nodes, strict=True)
        )
    parts = getattr(kind, "parts", None)
    return parts is not None and alike(parts(a), parts(b), assumed)
