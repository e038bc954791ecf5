"""Values that modules and classes are defined with: constants, tables, settings of declarations, defaults of functions.

Most of them decide no single result: a threshold, a coefficient behind the last bit of most values, a name in a table of
remedies, an estimate of costs. So ``constants.txt`` has a line for each; a long value is cut and has a digest of the whole.
``PYTHONPATH=src:tests/shared python tests/core/test_constants.py`` writes them down anew, where a change is meant.
"""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import importlib
import inspect
import re
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import firebrick
from firebrick.core.dtypes import DType
from firebrick.core.op import Op
from firebrick.functions.kernels import Kernel
from firebrick.ops import OPS
from firebrick.scalar.expr import Expr

PACKAGE = Path(firebrick.__file__ or "").parent
FILE = Path(__file__).parent / "constants.txt"
_WITHOUT = ("compiler", "__main__.py", "backends/torch/inductor.py")  # pinned elsewhere, runs, takes long to import
_OF_THE_MACHINE = {"os", "sys", "time", "threading", "platform", "get_ident", "main_thread", "id", "Path", "shutil", "psutil"}
_UNSHOWN = (types.GenericAlias, types.UnionType, TypeVar)
_LONGEST = 240  # characters of a value


def shown(value: Any, depth: int = 4) -> str:
    """A value as text; of what is neither data nor a function, its type alone."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return repr(value) if type(value).__module__ == "builtins" else f"{type(value).__name__}({value!r})"
        case enum.Enum():
            return f"{value}={value.value!r}"
        case DType() | Op():
            return value.name
        case Expr():
            return str(value)
        case Kernel():
            return f"{value!r} of {value._watched[2:]} {value.signature}"
        case type() | types.BuiltinFunctionType() | np.ufunc():
            return str(getattr(value, "__qualname__", value.__name__))
        case types.FunctionType():
            return function(value, depth)
        case functools.partial():
            given = [shown(value.func, depth), *(shown(a, depth) for a in value.args), *named(value.keywords, depth)]
            return f"partial({', '.join(given)})"
        case re.Pattern():
            return f"re({value.pattern!r}, {int(value.flags)})"
        case np.ndarray() | np.generic():
            return f"{value.dtype}{value.shape} {digest(value.tobytes())}"
        case deque():
            return f"deque of at most {value.maxlen}"
    if depth == 0:
        return type(value).__name__
    match value:
        case Mapping():
            return "{" + ", ".join(f"{shown(k, depth - 1)}: {shown(v, depth - 1)}" for k, v in value.items()) + "}"
        case Set():
            return "{" + ", ".join(sorted(shown(v, depth - 1) for v in value)) + "}"
        case Sequence():
            return "(" + ", ".join(shown(v, depth - 1) for v in value) + ")"
    if is_dataclass(value):
        held = {f.name: getattr(value, f.name, None) for f in fields(value)}
        return f"{type(value).__name__}({', '.join(named(held, depth - 1))})"
    return type(value).__name__


def function(value: types.FunctionType, depth: int) -> str:
    """A function by its name, with plain values that it was made with."""
    held = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    found = {
        name: c.cell_contents for name, c in held if not _empty(c) and name != "__class__" and not hasattr(value, "__wrapped__")
    }
    settings = named({k: v for k, v in found.items() if depth > 2 and not isinstance(v, types.FunctionType)}, depth - 2)
    return value.__qualname__ + (f"[{', '.join(settings)}]" if settings else "")


def _empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def named(values: Mapping[str, Any], depth: int) -> list[str]:
    return [f"{k}={shown(v, depth)}" for k, v in values.items()]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… {len(text)} characters, {digest(text.encode())}"


def modules() -> Iterator[tuple[str, Path]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE)
        if not str(path).startswith(_WITHOUT):
            yield ".".join(("firebrick", *path.with_suffix("").parts)).removesuffix(".__init__"), file


def bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that statements of a module or class give a value, with the value; None for definitions."""
    for statement in body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names = [name]
            case ast.FunctionDef() | ast.ClassDef():
                yield statement.name, None
                continue
            case _:
                continue
        if _writes(value) and not any(isinstance(n, ast.Name) and n.id in _OF_THE_MACHINE for n in ast.walk(value)):
            yield from ((name, value) for name in names)


def _writes(value: ast.expr) -> bool:
    """Whether an expression has something in it that could be written otherwise; an empty table is filled later."""
    return any(
        isinstance(n, ast.Constant | ast.Tuple) or (isinstance(n, ast.Call) and n.args) or (isinstance(n, ast.Dict) and n.keys)
        for n in ast.walk(value)
    )


def lines() -> Iterator[str]:
    for name, file in modules():
        source = file.read_text(encoding="utf-8")
        module = importlib.import_module(name)
        tree = ast.parse(source)
        changed = {n for s in ast.walk(tree) if isinstance(s, ast.Global) for n in s.names}
        values = {k: v for k, v in vars(module).items() if k not in changed}
        yield from of(name.removeprefix("firebrick."), values, tree.body, name)
    yield from operations()


def of(name: str, values: Mapping[str, Any], body: Sequence[ast.stmt], module: str) -> Iterator[str]:
    """The lines of a module or class."""
    for own, expression in bound(body):
        if own not in values:
            continue
        value, defined = values[own], expression is None
        if isinstance(value, types.MemberDescriptorType) and own in values.get("__dataclass_fields__", {}):
            value = values["__dataclass_fields__"][own].default  # which a class with slots does not hold itself
        if isinstance(expression, ast.Dict) and None not in expression.keys and isinstance(value, dict):
            value = dict(islice(value.items(), len(expression.keys)))  # without what was registered later
        if isinstance(value, type) and value.__module__ == module and defined:
            inner = next(s for s in reversed(body) if isinstance(s, ast.ClassDef) and s.name == own)
            yield from of(f"{name}.{own}", vars(value), inner.body, module)
        elif isinstance(value, _UNSHOWN):
            continue
        elif not defined:
            yield f"{name}.{own} = {cut(shown(value))}"
        elif isinstance(value, types.FunctionType):
            given = named(defaults(value), 2)
            made = function(value, 4)
            if given or "[" in made:
                yield f"{name}.{own}({cut(', '.join(given))}) {cut(made) if '[' in made else ''}".rstrip()
        elif isinstance(value, Kernel):
            yield f"{name}.{own} is {cut(shown(value))}"


def defaults(value: types.FunctionType) -> dict[str, Any]:
    """Defaults other than None; of a function that is wrapped, its own."""
    value = inspect.unwrap(value)
    names = value.__code__.co_varnames[: value.__code__.co_argcount]
    found = dict(zip(reversed(names), reversed(value.__defaults__ or ()), strict=False))
    return {k: v for k, v in (*reversed(found.items()), *(value.__kwdefaults__ or {}).items()) if v is not None}


def operations() -> Iterator[str]:
    """A line for each operation that firebrick registers, with its fields."""
    for op in OPS.values():
        if op.reference.__module__.startswith("firebrick."):
            held = {f.name: getattr(op, f.name) for f in fields(op) if f.name not in ("doc", "name", "fast", "plans")}
            given = [f"{k}={cut(shown(v))}" for k, v in held.items() if v not in (None, (), False, "")]
            yield f"ops: {op.name}: {', '.join(given)}"


def test_constants_are_those_that_are_written_down() -> None:
    pytest.importorskip("torch", reason="torch, whose engine has constants as well")
    found, known = list(lines()), FILE.read_text(encoding="utf-8").splitlines()
    assert sorted(set(found) - set(known)) == sorted(set(known) - set(found)) == [], f"if this is meant: {__doc__}"


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
