"""Expressions that are built from the fields of their nodes, or from other expressions by replacing some nodes.

Every node is created by its function in ``expr``, which checks the operands and simplifies. So fields that are read from a file
cannot give an expression that those functions would reject, and expressions are simplified again after a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firebrick.scalar.expr import (
    CANCELS,
    IN_RANGE,
    VAST,
    Expr,
    binary,
    bitcast,
    bounded,
    cast,
    const,
    element,
    fma,
    gather,
    index,
    kept,
    load,
    local,
    muladd,
    nearest,
    nearest_bits,
    node,
    philox,
    rarely,
    reduce,
    select,
    unary,
    where_flushed,
)


def _index(value: Any) -> Expr:
    if isinstance(value, str):
        return node("index", "int64", (), ",".join(str(int(s)) for s in value.split(",") if s))
    return index(int(value))


def _bounded(at: Expr, value: Any) -> Expr:
    size, status = str(value).split(":")
    return bounded(at, int(size), int(status))


def _fma(args: Sequence[Expr], value: Any) -> Expr:
    found = fma(args[0], args[1], args[2])
    return node("fma", found.dtype, found.args, value) if value in (CANCELS, VAST) and found.op == "fma" else found


# op → function of dtype, operands and value; other ops take one or two operands only
_MAKE: dict[str, Callable[[str, Sequence[Expr], Any], Expr]] = {
    "const": lambda dtype, args, value: const(value, dtype),
    "load": lambda dtype, args, value: load(int(value), dtype),
    "index": lambda dtype, args, value: _index(value),
    "local": lambda dtype, args, value: local(str(value), dtype),
    "element": lambda dtype, args, value: element(str(value), dtype, args[0]),
    "gather": lambda dtype, args, value: gather(int(value), dtype, args[0]),
    "bounded": lambda dtype, args, value: _bounded(args[0], value),
    "philox": lambda dtype, args, value: philox(args[:4], args[4]),
    "reduce": lambda dtype, args, value: reduce(str(value), args[0]),
    "select": lambda dtype, args, value: select(args[0], args[1], args[2]),
    "rarely": lambda dtype, args, value: rarely(args[0], args[1], args[2]),
    "where_flushed": lambda dtype, args, value: where_flushed(args[0], args[1], args[2]),
    "cast": lambda dtype, args, value: node("cast", dtype, tuple(args), value) if value == IN_RANGE else cast(args[0], dtype),
    "bitcast": lambda dtype, args, value: bitcast(args[0], dtype),
    "muladd": lambda dtype, args, value: muladd(args[0], args[1], args[2]),
    "nearest": lambda dtype, args, value: nearest(args[0], args[1]),
    "nearest_bits": lambda dtype, args, value: nearest_bits(args[0], args[1]),
    "kept": lambda dtype, args, value: kept(args[0]),
    "low_word": lambda dtype, args, value: node("low_word", "uint32", tuple(args)),
    "high_word": lambda dtype, args, value: node("high_word", "uint32", tuple(args)),
    "from_words": lambda dtype, args, value: node("from_words", "float64", tuple(args)),
    "fma": lambda dtype, args, value: _fma(args, value),
}


def made(op: str, dtype: str, args: Sequence[Expr] = (), value: Any = None) -> Expr:
    """The expression of an op, checked and simplified.

    Args:
        op: Name of the op.
        dtype: Dtype of the value. If the operands determine it, both must be equal.
        args: Operands.
        value: Attribute of the op, as in ``Expr``.

    Raises:
        TypeError: There is no such op, or it does not accept these operands.

    Example:
        >>> from firebrick.scalar.rewrite import made
        >>> made("add", "int32", [made("load", "int32", value=0), made("const", "int32", value=1)])
        add(load[0]():int32, 1:int32)
    """
    try:
        if op in _MAKE:
            out = _MAKE[op](dtype, args, value)
        elif len(args) == 1:
            out = unary(op, args[0])
        else:
            out = binary(op, args[0], args[1])
    except (LookupError, ValueError) as e:
        raise TypeError(f"no expression is made of {op!r}[{value!r}] and {len(args)} operands") from e
    if out.dtype != dtype:
        raise TypeError(f"{op} of these operands has dtype {out.dtype}. Received: {dtype}")
    return out


def replaced(
    roots: Sequence[Expr], replace: Callable[[Expr], Expr | None], known: Mapping[Expr, Expr] | None = None
) -> list[Expr]:
    """Expressions with some nodes replaced.

    Args:
        roots: Expressions.
        replace: Returns the replacement of a node whose operands are already replaced, or None to keep it. It is called once
            for each node, operands first.
        known: Node → its replacement; operands of these nodes are not visited.
    """
    done: dict[Expr, Expr] = dict(known or {})
    stack = list(reversed(roots))
    while stack:
        e = stack[-1]
        todo = [] if e in done else [a for a in e.args if a not in done]
        if todo:
            stack.extend(reversed(todo))
            continue
        stack.pop()
        if e not in done:
            args = tuple(done[a] for a in e.args)
            new = e if args == e.args else made(e.op, e.dtype, args, e.value)
            other = replace(new)
            done[e] = new if other is None else other
    return [done[r] for r in roots]
