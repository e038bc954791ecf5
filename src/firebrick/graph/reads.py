"""The names in a function's code, and so the globals, attributes and modules that the function may read."""

from __future__ import annotations

import builtins
import dis
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from firebrick.graph.outside import NAMES

BY_VALUE = frozenset({
    "getattr", "hasattr", "setattr", "vars", "dir", "eval", "exec", "__dict__", "__getattribute__", "attrgetter",
    "methodcaller", "copy", "deepcopy", "getattr_static", "getmembers", "getmembers_static", "dumps",
    "__reduce__", "__reduce_ex__", "__getstate__",
})  # fmt: skip  # code that names one of these may read attributes of any name
_ALL_GLOBALS = frozenset({"globals", "eval", "exec", "__globals__", "f_globals"})
_MODULES_BY_NAME = frozenset({"import_module", "__import__", "modules"})
_IDENTITY = frozenset({"id", "is_", "is_not"})
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "expandvars", "expanduser", "get_exec_path"})
BUILTINS = frozenset(vars(builtins))  # Python's own, without names that a program adds


@dataclass(frozen=True)
class Reads:
    """The names in code.

    Attributes:
        globals: Global names.
        attributes: Names of attributes.
        imports: Python modules that it imports, or may import, as it runs.
        any_global: Whether it may read globals of any name.
        any_module: Whether it may read Python modules of any name.
        strings: Texts in it, which may be names.
        outside: Whether it may read clocks, entropy or files.
        identity: Whether it may ask which of two objects is which, other than ``x is None``.
    """

    globals: tuple[str, ...]
    attributes: frozenset[str]
    imports: tuple[str, ...]
    any_global: bool
    any_module: bool
    strings: frozenset[str]
    outside: bool
    identity: bool


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """The names in the code of a function, without those of the functions inside it."""
    names: dict[str, None] = {}
    attributes, imports = set(), []
    identity, constant = False, False
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
            names[i.argval] = None
        elif i.opname == "IMPORT_NAME":
            imports.append(i.argval)
        elif i.opname == "MATCH_CLASS":
            attributes.add("__dict__")  # it reads those that the pattern or the class names
        elif isinstance(i.argval, str) and ("ATTR" in i.opname or i.opname in ("LOAD_METHOD", "IMPORT_FROM")):
            attributes.add(i.argval)
        identity = identity or (i.opname == "IS_OP" and not constant)
        constant = i.opname == "LOAD_CONST"
    named = attributes | names.keys()
    if named & _MODULES_BY_NAME:
        imports += [c for c in code.co_consts if isinstance(c, str)]
    strings = frozenset(_strings(code.co_consts))
    may_name = named if named.isdisjoint(BY_VALUE) else named | strings
    return Reads(
        tuple(names), frozenset(attributes), tuple(imports), not named.isdisjoint(_ALL_GLOBALS),
        not named.isdisjoint(_MODULES_BY_NAME), strings, not may_name.isdisjoint(NAMES),
        identity or not named.isdisjoint(_IDENTITY),
    )  # fmt: skip


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for c in constants:
        if isinstance(c, str):
            yield c
        elif isinstance(c, (tuple, frozenset)):
            yield from _strings(c)


def named_in(space: dict[str, Any], reads: Reads) -> Iterator[str]:
    """The globals that code may read which reads globals of any name; of iterators only those that the code names."""
    for name, held in list(space.items()):
        named = name in reads.globals or not isinstance(held, Iterator)
        if not name.startswith("__") and (named or any(re.search(rf"\b{re.escape(name)}\b", s) for s in reads.strings)):
            yield name
