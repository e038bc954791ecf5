"""The text of a kernel: a Python function as a syntax tree, with the objects that its free names stand for.

``structured`` removes what kernel IR does not have: statements that leave a block early. ``return``, ``break`` and ``continue``
become branches, and conditions of loops.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from types import CellType
from typing import Any, NoReturn

from firebrick.compiler.kernel.language.parsing import parsed
from firebrick.core.errors import KernelCompileError


class Source:
    """A Python function as it was written.

    Args:
        function: Defined in a file, or in a cell of a notebook: its text must be known.

    Attributes:
        name: Of the function.
        tree: Its definition.
        function: The function itself.

    Raises:
        KernelCompileError: The text is not known, or is no plain function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, getattr(function, "__name__", repr(function))
        if not inspect.isfunction(function):
            raise KernelCompileError("a kernel is a Python function", f"{function!r}", "decorate a function that `def` defines")
        try:
            lines, self._first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise KernelCompileError(
                f"kernel {self.name}: the text of the function is known", "a function without a file",
                "define it in a file or a notebook, not by exec or in an interactive prompt",
            ) from None  # fmt: skip
        self.file = function.__code__.co_filename
        try:
            found = parsed(textwrap.dedent("".join(lines))).body[0]
        except SyntaxError:
            found = ast.Pass()
        if not isinstance(found, ast.FunctionDef):
            raise KernelCompileError(
                f"kernel {self.name}: a kernel is a function that `def` defines",
                f"{self._kind(found)}, at {self.file}:{self._first}",
                "define it with `def`",
                kernel=self.name,
                line=f"{self.file}:{self._first}",
            )
        self.tree = found
        self._cells: dict[str, CellType] = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.bodies: dict[bool, Any] = {}  # what ``homes.body_of`` made of it

    def _kind(self, node: ast.AST) -> str:
        return (
            "an asynchronous function" if isinstance(node, ast.AsyncFunctionDef) else "a lambda expression, or part of a line"
        )

    def line(self, node: ast.AST) -> str:
        """Where a part of the function stands: ``file.py:12``."""
        return f"{self.file}:{self._first + getattr(node, 'lineno', 1) - 1}"

    def refuse(self, node: ast.AST, expected: str, received: str, remedy: str) -> NoReturn:
        """Raise a KernelCompileError that shows the line of a part of the function."""
        text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) and node is not self.tree else ""
        text = text.split("\n")[0]
        shown = f"`{text}`" if not received else f"{received}, in `{text}`" if text and text not in received else received
        raise KernelCompileError(
            f"kernel {self.name}: {expected}", f"{shown}, at {self.line(node)}", remedy, kernel=self.name, line=self.line(node)
        )

    def free(self, name: str) -> tuple[bool, Any]:
        """Whether a name that the function does not define stands for an object, and that object."""
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return True, cell.cell_contents
            except ValueError:  # assigned later, or deleted
                return False, None
        for names in (self.function.__globals__, _BUILTINS):
            if name in names:
                return True, names[name]
        return False, None

    def looks(self, name: str, held: Any) -> list[tuple[Callable[[], Any], Any]]:
        """Functions, and what each returns as long as a name stands for an object; they may raise where it does not."""
        cell, own = self._cells.get(name), self.function.__globals__
        if cell is not None:
            return [(partial(getattr, cell, "cell_contents"), held)]
        if name in own:
            return [(partial(own.__getitem__, name), held)]
        return [(partial(own.get, name, _ABSENT), _ABSENT), (partial(_BUILTINS.__getitem__, name), held)]


_BUILTINS = vars(builtins)
_ABSENT = object()
_JUMPS = (ast.Return, ast.Break, ast.Continue)


def structured(source: Source, body: Sequence[ast.stmt], result: bool) -> list[ast.stmt]:
    """The statements of a function without statements that leave a block early.

    Each loop gets an attribute ``stopped``: the names of bools, which begin with ``%``. ``break`` and ``return`` set them, and
    an iteration begins only if none of them is true.

    Args:
        source: Of the statements.
        body: Of the function.
        result: Whether it may return a value: the last statement is then the only ``return`` that is left, if any.
    """
    body = [copy.deepcopy(s) for s in body]
    if (
        body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]  # its docstring
    return _Structuring(source, result).function(body)


class _Structuring:
    def __init__(self, source: Source, result: bool) -> None:
        self.source, self.result = source, result
        self._count = 0

    def _flag(self, stem: str) -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        returns = [s for s in _within(body) if isinstance(s, ast.Return)]
        for s in returns:
            if s.value is not None and not self.result:
                self.source.refuse(
                    s, "a kernel returns nothing: its results are its Out arrays", "a value", "store it: out[i] = …"
                )
        if self.result and returns:
            nested = [s for s in returns if s is not body[-1]]
            if not nested:
                return self.block(body, None, None)
            return self._with_result(body, returns)
        if not returns:
            return self.block(body, None, None)
        returned = self._flag("returned")
        return [_set(returned, False, body[0]), *self.block(body, returned, None)]

    def _with_result(self, body: list[ast.stmt], returns: list[ast.Return]) -> list[ast.stmt]:
        """Returns in several places: each sets the result's variable."""
        if any(s.value is None for s in returns) or not _always(body):
            self.source.refuse(
                body[-1], "a function of kernels returns a value on all paths, or on none", "a path without one",
                "return a value at its end",
            )  # fmt: skip
        returned, result = self._flag("returned"), "%result"
        replaced = _Returns(result).visit(ast.Module(list(body), [])).body
        out = [_set(returned, False, body[0]), *self.block(replaced, returned, None)]
        return [*out, _placed(ast.Return(ast.Name(result, ast.Load())), returns[-1])]

    def block(self, body: Sequence[ast.stmt], returned: str | None, loop: _LoopFlags | None) -> list[ast.stmt]:
        """A block; after a statement that may leave it, the others are executed if it did not."""
        out: list[ast.stmt] = []
        for k, s in enumerate(body):
            rest = list(body[k + 1 :])
            if isinstance(s, _JUMPS):
                return [*out, *self._jump(s, returned, loop)]
            if isinstance(s, ast.If) and _may_leave(s):
                if _always(s.body):
                    then, other = s.body, [*s.orelse, *rest]
                elif s.orelse and _always(s.orelse):
                    then, other = [*s.body, *rest], s.orelse
                else:
                    return [*out, *self._partly(s, rest, returned, loop)]
                made = ast.If(s.test, self.block(then, returned, loop) or [ast.Pass()], self.block(other, returned, loop))
                return [*out, _placed(made, s)]
            if isinstance(s, ast.For | ast.While):
                made_loop, may_return = self._loop(s, returned)
                out += made_loop
                if may_return and rest:
                    assert returned is not None
                    return [*out, _unless(returned, self.block(rest, returned, loop), s)]
                continue
            if isinstance(s, ast.If):
                s = _placed(ast.If(s.test, self.block(s.body, returned, loop), self.block(s.orelse, returned, loop)), s)
            out.append(s)
        return out

    def _partly(self, s: ast.If, rest: list[ast.stmt], returned: str | None, loop: _LoopFlags | None) -> list[ast.stmt]:
        """A branch that leaves the block on some of its paths: a flag says whether it did."""
        if not rest:
            return [_placed(ast.If(s.test, self.block(s.body, returned, loop), self.block(s.orelse, returned, loop)), s)]
        left = self._flag("left")
        marked = _Marks(left).visit(_placed(ast.If(s.test, list(s.body), list(s.orelse)), s))
        first = _placed(ast.If(s.test, self.block(marked.body, returned, loop), self.block(marked.orelse, returned, loop)), s)
        return [_set(left, False, s), first, _unless(left, self.block(rest, returned, loop), s)]

    def _jump(self, s: ast.stmt, returned: str | None, loop: _LoopFlags | None) -> list[ast.stmt]:
        if isinstance(s, ast.Return):
            return [s] if returned is None else [_set(returned, True, s)]
        assert loop is not None  # or Python would not have compiled the function
        if isinstance(s, ast.Continue):
            return []  # what follows it in the body is in another branch already
        loop.breaks = True
        return [_set(loop.stopped, True, s)]

    def _loop(self, s: ast.For | ast.While, returned: str | None) -> tuple[list[ast.stmt], bool]:
        if s.orelse:
            self.source.refuse(s, "a loop has no else", "else", "set a variable in the loop, and test it after the loop")
        loop = _LoopFlags(self._flag("stopped"))
        inner = self.block(s.body, returned, loop) or [ast.Pass()]
        made: Any = ast.For(s.target, s.iter, inner, []) if isinstance(s, ast.For) else ast.While(s.test, inner, [])
        may_return = returned is not None and any(isinstance(x, ast.Return) for x in _within(s.body))
        made.stopped = (*((loop.stopped,) if loop.breaks else ()), *((returned,) if may_return else ()))
        first = [_set(loop.stopped, False, s)] if loop.breaks else []
        return [*first, _placed(made, s)], may_return


class _LoopFlags:
    """A loop being structured: the flag by which ``break`` ends it, and whether there is one."""

    def __init__(self, stopped: str) -> None:
        self.stopped, self.breaks = stopped, False


class _Marks(ast.NodeTransformer):
    """Sets a flag before each statement that leaves the block, but not in loops, whose own statements these are."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def _returns_only(self, node: Any) -> Any:
        return _ReturnMarks(self.flag).generic_visit(node)

    visit_For = visit_While = _returns_only

    def _marked(self, node: ast.stmt) -> list[ast.stmt]:
        return [_set(self.flag, True, node), node]

    visit_Return = visit_Break = visit_Continue = _marked


class _ReturnMarks(ast.NodeTransformer):
    """Sets a flag before each ``return``."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        return [_set(self.flag, True, node), node]


class _Returns(ast.NodeTransformer):
    """Assigns what is returned to a variable, and returns nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        assert node.value is not None
        kept = _placed(ast.Assign([ast.Name(self.name, ast.Store())], node.value), node)
        return [kept, _placed(ast.Return(None), node)]


def _placed(made: Any, like: ast.AST) -> Any:
    return ast.fix_missing_locations(ast.copy_location(made, like))


def _set(name: str, value: bool, like: ast.AST) -> ast.stmt:
    made: ast.stmt = _placed(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value)), like)
    return made


def _unless(flag: str, body: list[ast.stmt], like: ast.AST) -> ast.stmt:
    test = ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load()))
    made: ast.stmt = _placed(ast.If(test, body or [ast.Pass()], []), like)
    return made


def _within(body: Sequence[ast.stmt]) -> list[ast.AST]:
    """The nodes of statements, without those of functions and classes in them."""
    out: list[ast.AST] = []
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        out.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))
    return out


def _may_leave(s: ast.stmt) -> bool:
    """Whether a statement may leave the block that it is in."""
    if isinstance(s, _JUMPS):
        return True
    if isinstance(s, ast.If):
        return any(map(_may_leave, [*s.body, *s.orelse]))
    if isinstance(s, ast.For | ast.While):
        return any(isinstance(x, ast.Return) for x in _within(s.body))
    return False


def _always(body: Sequence[ast.stmt]) -> bool:
    """Whether a block is left on all of its paths by a jump."""
    return any(isinstance(s, _JUMPS) or (isinstance(s, ast.If) and _always(s.body) and _always(s.orelse)) for s in body)
