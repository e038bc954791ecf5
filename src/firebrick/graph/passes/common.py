"""Common subexpressions: equal ops of equal operands and parameters, in one region, are computed once."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any

import numpy as np

from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph

_HASHED = 256  # bytes of an array above which its key is a digest


def merge_common_subexpressions(graph: Graph) -> Graph:
    """The graph with each computation once. Every op of the table is a function of its operands, random ones of their key."""
    r = Rewriter(graph)
    seen: dict[Any, range] = {}
    for node in graph.nodes:
        inputs = tuple([r.new[i] for i in node.inputs])
        key = (node.op, node.region, inputs, key_of(node.params) if node.params else None)
        found = seen.get(key)
        if found is None:
            seen[key] = range(len(r.avals), len(r.avals) + len(node.avals))
            r.keep(node, inputs)
        else:
            r.replace(node, *found)
    return r.finish()


def key_of(value: Any) -> Any:
    """What a parameter hashes and compares by: type and bits. 0.0 is not -0.0, 1 is not True, NaNs are equal by payload.

    Values of unknown types are equal only to themselves.
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
    if kind is Graph:
        nodes = [(n.op, n.inputs, n.region, key_of(n.params)) for n in value.nodes]
        return (kind, *value.inputs, *nodes, value.outputs)
    return (kind, id(value))
