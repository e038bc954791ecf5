"""Expressions as text for readers: infix operators, calls, ``x[i]``; subexpressions that are used several times have names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import isfinite

from firebrick.scalar.expr import Expr, walk

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "~"}
_LEAF: dict[str, Callable[[Expr], str]] = {
    "const": lambda e: _number(e.value),
    "local": lambda e: str(e.value),
    "load": lambda e: f"operand{e.value}",
    "index": lambda e: f"index({e.value})",
}


def _number(value: object) -> str:
    return f"{value!r}" if not isinstance(value, float) or isfinite(value) else f"float({str(value)!r})"


def shown(roots: Sequence[Expr]) -> tuple[list[str], list[str]]:
    """Expressions as text.

    Args:
        roots: Expressions.

    Returns:
        Lines ``%1 = …`` of the subexpressions that are used more than once, in order, and the text of each root.

    Example:
        >>> from firebrick.scalar.expr import local
        >>> from firebrick.scalar.text import shown
        >>> x = local("x", "float32")
        >>> shown([(x + 1.0) * (x + 1.0)])
        (['%1 = x + 1.0'], ['%1 * %1'])
    """
    order = walk(roots)
    uses = Counter([*(a for e in order for a in e.args), *roots])
    lines: list[str] = []
    texts: dict[Expr, str] = {}
    for e in order:
        text = _text(e, [texts[a] for a in e.args])
        if e.args and uses[e] > 1:
            lines.append(f"%{len(lines) + 1} = {_without_parentheses(text)}")
            text = f"%{len(lines)}"
        texts[e] = text
    return lines, [_without_parentheses(texts[r]) for r in roots]


def _text(e: Expr, args: list[str]) -> str:
    """A node's text; infix operators are in parentheses."""
    if e.op in _LEAF:
        return _LEAF[e.op](e)
    if e.op in _INFIX:
        return f"({args[0]} {_INFIX[e.op]} {args[1]})"
    if e.op in _PREFIX:
        return f"{_PREFIX[e.op]}{args[0]}"
    inner = ", ".join(map(_without_parentheses, args))
    if e.op == "element":
        return f"{e.value}[{inner}]"
    if e.op in ("cast", "bitcast"):
        return f"{e.op}({inner}, {e.dtype})"
    name = e.op if e.value is None else f"{e.op}[{e.value}]"
    return f"{name}({inner})"


def _without_parentheses(text: str) -> str:
    """A text without enclosing parentheses."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
