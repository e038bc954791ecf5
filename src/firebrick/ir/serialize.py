"""A graph as JSON text and back, exactly: parameters, constants, labels, lines, regions, names and the graphs inside.

Values that JSON lacks are objects with one key that names their type: ``{"tuple": […]}``, ``{"dtype": "float32"}``,
``{"array": {…}}`` with the bytes of a C-ordered, little-endian array in base64, ``{"float": "…"}`` with the 64 bits of an
infinity or a NaN in hexadecimal.
"""

from __future__ import annotations

import json
import struct
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import GraphError
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.untrusted import json_of
from firebrick.ir.graph import INTERNAL, Graph, Node
from firebrick.ir.verifier import verify_graph
from firebrick.ops import OPS

FORMAT, VERSION = "firebrick graph", 1
_LONGEST = 4000  # characters of each part of an error


def to_json(graph: Graph) -> str:
    """A graph as JSON text.

    Args:
        graph: Program to write; constants are written with all their bytes.

    Returns:
        Text that ``from_json`` reads back to an equal graph.

    Raises:
        GraphError: A parameter has a type that no op takes.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.aval import Aval
        >>> from firebrick.ir import Graph, from_json, to_json
        >>> g = Graph([Aval((2,), fb.float32)])
        >>> g.outputs = g.add(fb.ops.OPS["exp"], 0)
        >>> print(from_json(to_json(g)))
        %0: float32[2]
        %1: float32[2] = exp(%0)
        return %1
    """
    return json.dumps({"format": FORMAT, "version": VERSION, **_graph(graph)}, allow_nan=False)


def from_json(text: str) -> Graph:
    """The graph that ``to_json`` wrote, checked by ``verify_graph``.

    Args:
        text: JSON text of this version of Firebrick or an earlier one.

    Raises:
        GraphError: The text is damaged, of a later version, or names an op that does not exist.
    """
    try:
        document = json_of(text, finite=True)
    except (TypeError, ValueError) as e:
        raise GraphError("a graph is read from JSON text", f"{e}", "write the text again with to_json") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GraphError(f'the text of a graph has "format": "{FORMAT}"', _shown(text[:60]), "pass what to_json returned")
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise GraphError(f"this Firebrick reads graphs up to version {VERSION}", f"version {version}", "update Firebrick")
    try:
        graph = _read_graph(document)
        verify_graph(graph)
    except GraphError as e:
        raise GraphError(_shown(e.expected), _shown(e.received), e.remedy) from e
    except RecursionError:
        raise GraphError(
            "the text of a graph nests no deeper than Python's stack", "lists or graphs that nest too deeply", "write it again"
        ) from None
    return graph


def _shown(text: str) -> str:
    """Damaged text for an error: shortened, and without characters that cannot be printed."""
    printable = text.encode("utf-8", "backslashreplace").decode()
    return printable if len(printable) <= _LONGEST else printable[:_LONGEST] + " …"


def to_value(v: Any) -> Any:
    """A parameter of an op in terms of JSON.

    Raises:
        TypeError: No op takes parameters of its type.
    """
    return _write(v)


def from_value(v: Any) -> Any:
    """The parameter that ``to_value`` wrote."""
    return _read(v)


# writing


def _graph(graph: Graph) -> dict[str, Any]:
    return {
        "inputs": [_aval(a) for a in graph.inputs],
        "names": list(graph.names),
        "nodes": [_node(n) for n in graph.nodes],
        "outputs": list(graph.outputs),
    }


def _aval(a: Aval) -> list[Any]:
    return [a.dtype.name, list(a.shape)]


def _node(n: Node) -> dict[str, Any]:
    out: dict[str, Any] = {"op": n.op.name, "inputs": list(n.inputs), "results": [_aval(a) for a in n.avals]}
    try:
        out["params"] = {k: _write(v) for k, v in n.params.items()}
    except TypeError as e:
        taken = "None, bool, int, float, complex, str, tuple, list, dict, slice, dtype, aval, device, array or graph"
        raise GraphError(f"a parameter is {taken}", f"{e} of {n.op.name}", "pass the value as one of these") from None
    return out | {k: v for k, v in (("label", n.label), ("line", n.line), ("region", n.region)) if v}


def _write(v: Any) -> Any:
    if v is None or type(v) in (bool, int, str):
        return v
    writer = _WRITERS.get(type(v))
    if writer is None:
        raise TypeError(f"a {type(v).__name__}")
    return writer(v)


def _write_float(v: float) -> Any:
    return v if isfinite(v) else {"float": struct.pack(">d", v).hex()}


def _array(v: np.ndarray[Any, Any]) -> dict[str, Any]:
    swapped = v.astype(v.dtype.newbyteorder("<")) if sys.byteorder == "big" else v
    return {"dtype": as_dtype(v.dtype).name, "shape": list(v.shape), "data": b64encode(swapped.tobytes()).decode()}


_WRITERS: dict[type, Callable[[Any], Any]] = {
    float: _write_float,
    complex: lambda v: {"complex": [_write_float(v.real), _write_float(v.imag)]},
    tuple: lambda v: {"tuple": [_write(x) for x in v]},
    list: lambda v: [_write(x) for x in v],
    dict: lambda v: {"dict": [[_write(k), _write(x)] for k, x in v.items()]},
    slice: lambda v: {"slice": [_write(v.start), _write(v.stop), _write(v.step)]},
    DType: lambda v: {"dtype": v.name},
    Aval: lambda v: {"aval": _aval(v)},
    Device: lambda v: {"device": v.name},
    Graph: lambda v: {"graph": _graph(v)},
    np.ndarray: lambda v: {"array": _array(v)},
}


# reading


def _op(name: Any) -> Op:
    op = INTERNAL.get(name, OPS.get(name)) if isinstance(name, str) else None
    if op is None:
        raise GraphError("a node's op is one of the op table", repr(name), "register the op, or update Firebrick")
    return op


def _read_graph(d: dict[str, Any]) -> Graph:
    where = "inputs"
    try:
        graph = Graph([_read_aval(a) for a in _rows(d["inputs"])], names=[_text(n) for n in _rows(d["names"])])
        first = len(graph.inputs)
        for k, n in enumerate(_rows(d["nodes"])):
            where = f"node {k}"
            avals = tuple(_read_aval(a) for a in _rows(n["results"]))
            params = {name: _read(v) for name, v in n["params"].items()}
            op, inputs = _op(n["op"]), tuple(_rows(n["inputs"]))
            graph.nodes.append(Node(op, inputs, params, first, avals, n.get("label"), n.get("line"), n.get("region", 0)))
            first += len(avals)
        where = "outputs"
        graph.outputs = tuple(_rows(d["outputs"]))
    except GraphError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, struct.error) as e:
        received = f"{where}: {type(e).__name__}: {e}"
        raise GraphError("the text of a graph is as to_json writes it", received, "write it again with to_json") from None
    return graph


def _rows(v: Any) -> list[Any]:
    if not isinstance(v, list):
        raise TypeError(f"{type(v).__name__} instead of a list")
    return v


def _text(v: Any) -> str:
    if not isinstance(v, str):
        raise TypeError(f"{type(v).__name__} instead of text")
    return v


def _read_aval(a: Any) -> Aval:
    name, shape = a
    return Aval(tuple(shape), as_dtype(name))


def _read(v: Any) -> Any:
    if isinstance(v, list):
        return [_read(x) for x in v]
    if isinstance(v, dict):
        ((kind, content),) = v.items()
        return _READERS[kind](content)
    return v


def _read_float(v: Any) -> float:
    if isinstance(v, dict):
        v = v["float"]
    return float(struct.unpack(">d", bytes.fromhex(v))[0]) if isinstance(v, str) else float(v)


def _read_array(d: Any) -> np.ndarray[Any, Any]:
    stored = as_dtype(d["dtype"]).np
    flat = np.frombuffer(b64decode(d["data"], validate=True), stored.newbyteorder("<") if sys.byteorder == "big" else stored)
    return flat.astype(stored).reshape(d["shape"])


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": _read_float,
    "complex": lambda v: complex(_read_float(v[0]), _read_float(v[1])),
    "tuple": lambda v: tuple(_read(x) for x in v),
    "dict": lambda v: {_read(k): _read(x) for k, x in v},
    "slice": lambda v: slice(*(_read(x) for x in v)),
    "dtype": as_dtype,
    "aval": _read_aval,
    "device": lambda name: hooks.find_device(name),
    "graph": _read_graph,
    "array": _read_array,
}
