"""What code does with the objects that it loads: whether it only reads and sets their attributes and calls their methods.

``obj.model(x)`` can run what a class calls ``model``, and nothing else of it. Code that passes an object on, returns it, keeps
it, computes with it or takes items from it lets other code have it *whole*: a library may then call any of its methods by a
name that no code of the user's mentions. An instruction that is not known to read an attribute takes the object whole.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_VARARGS
from types import CodeType

_SILENT = frozenset({"CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME", "NOT_TAKEN"})  # they leave the stack as it is
_OF_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"})
_OF_NONE = ("POP_TOP", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NO", "POP_JUMP_BACKWARD_IF_NO")
_NO_VARIABLES = frozenset({
    "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_CONST", "LOAD_CLOSURE", "LOAD_COMMON_CONSTANT", "LOAD_SMALL_INT",
    "LOAD_SPECIAL",
})  # fmt: skip
_METHOD_BIT = sys.version_info >= (3, 12)  # LOAD_ATTR loads methods too, which its lowest bit says
REVEALING = frozenset({
    "__self__", "__closure__", "cell_contents", "__globals__", "__defaults__", "__kwdefaults__", "__mro__", "mro",
    "__bases__", "__base__", "__subclasses__", "globals", "locals", "eval", "exec", "f_locals", "f_globals", "f_back",
    "_getframe", "currentframe", "getclosurevars", "getcallargs", "get_objects", "get_referrers", "get_referents",
    "__str__", "__format__", "__ne__",  # those of ``object`` call other methods
})  # fmt: skip  # code that names one of these may have any object and any class whole


@dataclass(frozen=True)
class Uses:
    """The names under which code has objects whole.

    Attributes:
        variables: Arguments, variables of closures and globals, among them those that it calls.
        attributes: Attributes that it reads, and takes what it has read.
        called: Attributes that it calls at once: a class there makes objects.
        reveals: Whether it may have any object and any class whole.
    """

    variables: frozenset[str]
    attributes: frozenset[str]
    called: frozenset[str]
    reveals: bool


@lru_cache(maxsize=4096)
def uses_of(code: CodeType) -> Uses:
    """How the code of a function, and the code inside it, uses what it loads."""
    variables: set[str] = set()
    attributes: set[str] = set()
    called: set[str] = set()
    inner_reveals = False
    cells = {*code.co_cellvars, *code.co_freevars}
    steps = [i for i in dis.get_instructions(code) if i.opname not in _SILENT]
    for at, i in enumerate(steps):
        name = i.argval
        if i.opname == "IMPORT_FROM":
            attributes.add(name)
        elif i.opname == "LOAD_METHOD" or (_METHOD_BIT and i.opname == "LOAD_ATTR" and (i.arg or 0) & 1):
            called.add(name)
        elif i.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR"):
            if _whole(steps, at):
                attributes.add(name)
        elif not i.opname.startswith(("LOAD_", "STORE_FAST_LOAD_FAST")) or i.opname in _NO_VARIABLES:
            continue
        elif isinstance(name, tuple):  # two in one instruction, of which the first is not followed by its use
            variables.update(name[:-1])
            if _whole(steps, at):
                variables.add(name[-1])
        elif name == "super" and i.opname == "LOAD_GLOBAL":
            if not _of_base(steps, at):
                variables.update(code.co_varnames[:1])
        elif isinstance(name, str) and not _of_machine(steps, at, cells) and _whole(steps, at):
            variables.add(name)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = uses_of(inner)
            variables |= found.variables - {*inner.co_varnames, *inner.co_cellvars} | (found.variables & {*inner.co_names})
            attributes |= found.attributes
            called |= found.called
            inner_reveals = inner_reveals or found.reveals
    reveals = not REVEALING.isdisjoint(code.co_names) or "__class__" in attributes | called or inner_reveals
    return Uses(frozenset(variables), frozenset(attributes), frozenset(called), reveals)


def passes_first(code: CodeType) -> bool:
    """Whether a function has its first argument, which is the object of a method, whole."""
    if code.co_argcount == 0:
        return bool(code.co_flags & CO_VARARGS)
    return code.co_varnames[0] in uses_of(code).variables


def _whole(steps: list[dis.Instruction], at: int) -> bool:
    """Whether what is loaded here is used for more than an attribute of it or whether it is None."""
    if at + 1 == len(steps):
        return True
    then = steps[at + 1]
    if then.opname == "COPY" and then.arg == 1 and at + 2 < len(steps):  # ``obj.name += v`` reads and sets one attribute
        return steps[at + 2].opname != "LOAD_ATTR"
    if then.opname == "LOAD_CONST" and then.argval is None and at + 2 < len(steps) and steps[at + 2].opname == "IS_OP":
        return False
    return then.opname not in _OF_ATTRIBUTES and not then.opname.startswith(_OF_NONE)


def _of_machine(steps: list[dis.Instruction], at: int, cells: set[str]) -> bool:
    """Whether Python loads a variable for the closure of code inside, or for ``super()``."""
    if steps[at].argval == "__class__" and at + 2 < len(steps) and steps[at + 2].opname == "LOAD_SUPER_ATTR":
        return True
    return steps[at].opname.startswith("LOAD_FAST") and steps[at].argval in cells


def _of_base(steps: list[dis.Instruction], at: int) -> bool:
    """Whether ``super()``, which has the object of the method without loading it, is followed by an attribute."""
    names = [s.opname for s in steps[at + 1 : at + 4]]
    return (names[:1] == ["CALL"] and steps[at + 1].arg == 0 and names[1:2] in (["LOAD_METHOD"], ["LOAD_ATTR"])) or (
        names[2:3] == ["LOAD_SUPER_ATTR"]
    )
