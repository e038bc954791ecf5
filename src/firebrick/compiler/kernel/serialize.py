"""A kernel as JSON text and back, exactly.

All expressions of a kernel are one list of nodes, operands first, so that what is shared is written once. Reading makes each
node by its own function again, which checks it, and then verifies the kernel: damaged text is an error, never another kernel.
"""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from typing import Any

from firebrick.compiler.kernel.ir import (
    BLOCKS,
    VALUES,
    ArrayParameter,
    Function,
    ScalarParameter,
    SharedArray,
    Statement,
    expressions,
    statements,
)
from firebrick.compiler.kernel.verify import verify
from firebrick.core.errors import KernelCompileError
from firebrick.core.untrusted import json_of
from firebrick.scalar.expr import FLOATS, Expr, node, walk
from firebrick.scalar.rewrite import made

FORMAT, VERSION = "firebrick kernel", 3
"""Version 1 had one axis and no groups, and statements had no lines. Version 2 had no kernels that are legalized."""
_KINDS: dict[str, type] = {kind.__name__: kind for kind in VALUES}


def to_json(function: Function) -> str:
    """A kernel as JSON text.

    Args:
        function: Kernel to write.

    Returns:
        Text that ``from_json`` reads back to an equal kernel, with the same lines.

    Example:
        >>> from firebrick.compiler.kernel import ArrayParameter, Function, Store, from_json, to_json
        >>> from firebrick.scalar.expr import const, local
        >>> zero = Store("y", local("i", "int64"), const(0.0, "float32"))
        >>> clear = Function("clear", (ArrayParameter("y", "float32", "write"),), (), "i", (zero,))
        >>> from_json(to_json(clear)) == clear
        True
    """
    order = walk(e for s in statements(function.body) for e in expressions(s))
    numbers = {e: i for i, e in enumerate(order)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "name": function.name,
        "arrays": [[a.name, a.dtype, a.access, a.extent] for a in function.arrays],
        "scalars": [[s.name, s.dtype] for s in function.scalars],
        "outer": list(function.outer),
        "item": function.item,
        "group": function.group,
        "index": function.index,
        "widened": function.widened,
        "shared": [[a.name, a.dtype, a.extent] for a in function.shared],
        "nodes": [[e.op, e.dtype, [numbers[a] for a in e.args], _value(e)] for e in order],
        "body": [_statement(s, numbers) for s in function.body],
    }
    return json.dumps(document, allow_nan=False)


def _value(e: Expr) -> Any:
    """A node's value; a floating-point number as its 64 bits in hexadecimal, since JSON has neither infinity nor NaN."""
    return struct.pack(">d", e.value).hex() if isinstance(e.value, float) else e.value


def _statement(s: Statement, numbers: dict[Expr, int]) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": type(s).__name__}
    for field in fields(s):
        value = getattr(s, field.name)
        if field.name in VALUES[type(s)]:
            value = numbers[value]
        elif field.name in BLOCKS.get(type(s), ()):
            value = [_statement(inner, numbers) for inner in value]
        out[field.name] = value
    return out


def from_json(text: str) -> Function:
    """The kernel that ``to_json`` wrote.

    Args:
        text: JSON text of this version of Firebrick or an earlier one.

    Raises:
        KernelCompileError: The text is damaged, of a later version, or of a kernel that ``verify`` refuses.
    """
    again = "write the text again with to_json"
    try:
        document = json_of(text, finite=True)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f'no "format": "{FORMAT}"')
        version = document["version"]
        if type(version) is not int or not 1 <= version <= VERSION:
            raise ValueError(f"version {version!r}, where this Firebrick reads version {VERSION} and those before")
        if version == 1:
            document |= {"outer": [], "group": 0, "shared": []}
        if version < 3:
            document |= {"index": "int64", "widened": False}
        nodes: list[Expr] = []
        for op, dtype, args, value in document["nodes"]:
            nodes.append(_node(op, dtype, tuple(nodes[_number(a, len(nodes))] for a in args), _read_value(op, dtype, value)))
        function = Function(
            _text(document["name"]),
            tuple(ArrayParameter(_text(name), *rest) for name, *rest in document["arrays"]),
            tuple(ScalarParameter(_text(name), dtype) for name, dtype in document["scalars"]),
            _text(document["item"]),
            tuple(_read_statement(s, nodes, version) for s in document["body"]),
            tuple(_text(name) for name in document["outer"]),
            document["group"],
            tuple(SharedArray(_text(name), _text(dtype), extent) for name, dtype, extent in document["shared"]),
            document["index"],
            document["widened"],
        )
        verify(function)
    except KernelCompileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error) as e:
        raise KernelCompileError(
            "a kernel is read from the text that to_json writes", ascii(f"{type(e).__name__}: {e}")[:500], again
        ) from None
    return function


def _text(v: Any) -> str:
    if not isinstance(v, str):
        raise TypeError(f"{v!r} instead of a name")
    return v


def _number(at: Any, count: int) -> int:
    if type(at) is not int or not 0 <= at < count:
        raise ValueError(f"node {at!r} of {count}")
    return at


def _node(op: str, dtype: str, args: tuple[Expr, ...], value: Any) -> Expr:
    out = made(op, dtype, args, value)
    if out is not node(op, dtype, args, value):  # fields that its function does not take, or that it would have simplified
        raise ValueError(f"{op} of {dtype} with {len(args)} operands and {value!r}")
    return out


def _read_value(op: str, dtype: str, value: Any) -> Any:
    if op == "const" and dtype in FLOATS:
        return struct.unpack(">d", bytes.fromhex(value))[0]
    return value


def _read_statement(d: dict[str, Any], nodes: list[Expr], version: int) -> Statement:
    kind = _KINDS[d["kind"]]
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name == "line" and version == 1:
            continue
        value = d[field.name]
        if field.name in VALUES[kind]:
            value = nodes[_number(value, len(nodes))]
        elif field.name in BLOCKS.get(kind, ()):
            value = tuple(_read_statement(inner, nodes, version) for inner in value)
        elif field.name in ("name", "array", "op", "line"):
            value = _text(value)
        values[field.name] = value
    statement: Statement = kind(**values)
    return statement
