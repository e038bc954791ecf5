"""The points of a source file that can be mutated, each with the text that takes the place of another.

The syntax tree says where a point is; the change is made in the text, so that all else stays as it was, comments and lines
too. What no test could notice, or need not, is left out: docstrings, annotations, what only type checkers read, texts of
errors, warnings and logs, `__repr__`, samples in the op table (they are the tests' own data) and its estimates of
cost, and settings that change no result (`lru_cache` sizes, `slots=True`, `zip`'s `strict=`).
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

Edit = tuple[ast.AST, str, str]  # what is replaced, by which text, the kind of mutation

_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"), ast.Eq: ("!=",), ast.NotEq: ("==",),
    ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-",), ast.Sub: ("+",), ast.Mult: ("/", "+"), ast.Div: ("*",), ast.FloorDiv: ("/", "*"),
    ast.Mod: ("//",), ast.Pow: ("*",), ast.LShift: (">>",), ast.RShift: ("<<",),
    ast.BitAnd: ("|",), ast.BitOr: ("&",), ast.BitXor: ("|",),
}  # fmt: skip
_SIGNS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: r"is\s+not",
    ast.In: "in", ast.NotIn: r"not\s+in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//",
    ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_SYMMETRIC = {  # in their arguments; or a change of order is no program at all
    "max", "min", "add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor", "equal", "not_equal",
    "broadcast_shapes", "isinstance", "issubclass", "hasattr", "getattr", "setattr", "cast", "field", "NamedTuple", "TypeVar",
}  # fmt: skip
_OF_TEXTS = re.compile(
    r"(^|\.)(warn|warn_explicit|echo|secho|log|debug|info|warning|exception|critical|print|fail)$|(Error|Warning|Exception|Exit|Interrupt)$"
)
_UNSEEN = {"lru_cache", "cache", "dataclass", "overload", "TypeVar", "ParamSpec", "cast", "NewType"}
_UNSEEN_KEYWORDS = {
    "strict",
    "slots",
    "maxsize",
    "stacklevel",
    "daemon",
    "encoding",
    "errors",
    "name",
    "samples",
    "help",
    "repr",
    "cost",
}
_TEXT_METHODS = {"__repr__", "__str__", "__rich__", "__dir__"}


@dataclass(frozen=True)
class Mutant:
    """One change at one point.

    Attributes:
        path: The file, in the package.
        line: The first line of the point.
        lines: First and last line of the innermost statement around it, or of its head; a test that executes one may notice.
        imported: Whether it is executed when the module is imported, and only then.
        kind: The kind of mutation.
        function: Qualified name of the function or class around the point; empty at the module's level.
        start: Position of the replaced text in the file's bytes.
        end: Where it ends.
        text: What takes its place.
    """

    path: str
    line: int
    lines: tuple[int, int]
    imported: bool
    kind: str
    function: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """The file with the change made."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def viable(self, source: str) -> bool:
        """Whether the change is Python, and another program."""
        try:
            return ast.dump(ast.parse(self.applied(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False

    def difference(self, source: str) -> str:
        """The changed lines, the old ones after ``-`` and the new ones after ``+``."""
        lines = difflib.unified_diff(source.splitlines(), self.applied(source).splitlines(), n=0, lineterm="")
        return "\n".join(f"{x[0]} {x[1:].strip()}" for x in lines if not x.startswith(("---", "+++", "@@")))


def mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of a file, by position; a few are not `viable`."""
    return _File(path, source).mutants()


class _File:
    """A walk through the syntax tree of one file."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source, self.data = path, source, source.encode()
        self.starts = [0]
        for line in self.data.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.found: dict[tuple[int, int, str], Mutant] = {}
        self.tree = ast.parse(source)
        self.heads = sorted(_heads(self.tree), key=lambda h: h[1] - h[0], reverse=True)
        self.bodies = [
            (n.body[0].lineno, n.end_lineno or 0)
            for n in ast.walk(self.tree)
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def mutants(self) -> list[Mutant]:
        for node in self.tree.body:
            self.walk(node, "")
        return sorted(self.found.values(), key=lambda m: (m.start, m.end, m.text))

    # Positions ----------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node's text is."""
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def add(self, start: int, end: int, text: str, kind: str, function: str) -> None:
        line = self.data.count(b"\n", 0, start) + 1
        lines = next((h for h in reversed(self.heads) if h[0] <= line <= h[1]), (line, line))
        imported = not any(first <= line <= last for first, last in self.bodies)
        self.found.setdefault((start, end, text), Mutant(self.path, line, lines, imported, kind, function, start, end, text))

    def replace(self, node: ast.AST, text: str, kind: str, function: str) -> None:
        self.add(*self.span(node), text, kind, function)

    def sign(self, left: ast.AST, right: ast.AST, operator: ast.AST, new: tuple[str, ...], kind: str, function: str) -> None:
        """Replace the operator that is written between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), self.data[start:end])
        sign = _SIGNS[type(operator)]
        match = re.search((rf"\b{sign}\b" if sign[0].isalpha() else re.escape(sign)).encode(), gap)
        if match is not None:
            for text in new:
                self.add(start + match.start(), start + match.end(), text, kind, function)

    # The walk -----------------------------------------------------------------------------------

    def walk(self, node: ast.AST, function: str) -> None:
        """Visit a node and what is in it."""
        if _skipped(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.definition(node, f"{function}.{node.name}" if function else node.name)
            return
        if (rule := _RULES.get(type(node))) is not None:
            rule(self, node, function)
        for child in _children(node):
            self.walk(child, function)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, name: str) -> None:
        """A function or class: decorators, defaults and body; not its annotations and its docstring."""
        decorators = [d for d in node.decorator_list if not _named(d, _UNSEEN)]
        if len(decorators) < len(node.decorator_list) and any(_named(d, {"overload"}) for d in node.decorator_list):
            return
        for decorator in decorators:
            self.walk(decorator, name)
        if isinstance(node, ast.ClassDef):
            for keyword in node.keywords:
                self.walk(keyword.value, name)
        else:
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self.walk(default, name)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        for child in body:
            self.walk(child, name)

    # Rules --------------------------------------------------------------------------------------

    def compare(self, node: ast.Compare, function: str) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self.sign(left, right, operator, _COMPARISONS[type(operator)], "comparison", function)

    def boolean(self, node: ast.BoolOp, function: str) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        neutral = "True" if isinstance(node.op, ast.And) else "False"
        for left, right in pairwise(node.values):
            self.sign(left, right, node.op, (other,), "and/or", function)
        for value in node.values:
            self.replace(value, neutral, "operand dropped", function)

    def binary(self, node: ast.BinOp, function: str) -> None:
        if any(
            isinstance(x, ast.JoinedStr) or (isinstance(x, ast.Constant) and isinstance(x.value, str))
            for x in (node.left, node.right)
        ):
            return
        if isinstance(node.op, ast.BitOr) and not function:
            return  # a name for a type
        if type(node.op) in _ARITHMETIC:
            self.sign(node.left, node.right, node.op, _ARITHMETIC[type(node.op)], "arithmetic", function)

    def unary(self, node: ast.UnaryOp, function: str) -> None:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            self.replace(node, self.text(node.operand), "constant", function)
        else:
            self.replace(node, f"({self.text(node.operand)})", "unary", function)

    def constant(self, node: ast.Constant, function: str) -> None:
        value = node.value
        if isinstance(value, bool):
            self.replace(node, str(not value), "constant", function)
        elif isinstance(value, int):
            for new in {value + 1, abs(value - 1)}:
                self.replace(node, str(new), "constant", function)
        elif isinstance(value, float):
            self.replace(node, {0.0: "1.0", 1.0: "0.0"}.get(value, f"({self.text(node)} * 2)"), "constant", function)

    def condition(self, node: ast.If | ast.While | ast.IfExp, function: str) -> None:
        self.replace(node.test, f"not ({self.text(node.test)})", "condition negated", function)
        if not isinstance(node, ast.While):
            self.replace(node.test, "True", "condition forced", function)
        self.replace(node.test, "False", "condition forced", function)

    def filters(self, node: ast.comprehension, function: str) -> None:
        for test in node.ifs:
            self.replace(test, "True", "condition forced", function)

    def returned(self, node: ast.Return, function: str) -> None:
        if node.value is None:
            self.replace(node, "pass", "statement deleted", function)
        elif not (isinstance(node.value, ast.Constant) and (node.value.value is None or node.value.value is False)):  # alike
            self.replace(node.value, "None", "return value", function)

    def call(self, node: ast.Call, function: str) -> None:
        name = self.text(node.func).rsplit(".", 1)[-1]
        if _for_people(node):
            return
        values = node.args
        if name not in _SYMMETRIC and not any(isinstance(a, ast.Starred) for a in values):
            for one, other in pairwise(values):
                start, end = self.span(one)[0], self.span(other)[1]
                between = self.data[self.span(one)[1] : self.span(other)[0]].decode()
                self.add(start, end, self.text(other) + between + self.text(one), "arguments swapped", function)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in _UNSEEN_KEYWORDS:
                start, end = self.span(keyword)
                comma = re.match(rb"\s*,\s*", self.data[end:])
                before = re.search(rb",\s*$", self.data[:start])
                if comma is not None:
                    end += comma.end()
                elif before is not None:
                    start = before.start()
                self.add(start, end, "", "argument dropped", function)
        if name == "range" and not any(isinstance(a, ast.Starred) for a in values):
            for value in values[:2]:
                for sign in "+-":
                    self.replace(value, f"{self.text(value)} {sign} 1", "off by one", function)

    def sliced(self, node: ast.Slice, function: str) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None:
                for sign in "+-":
                    self.replace(bound, f"{self.text(bound)} {sign} 1", "off by one", function)

    def expression(self, node: ast.Expr, function: str) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self.replace(node, "pass", "statement deleted", function)

    def deleted(self, node: ast.stmt, function: str) -> None:
        self.replace(node, "pass", "statement deleted", function)

    def assignment(self, node: ast.Assign, function: str) -> None:
        """Only those to attributes and items: without one to a name that had no value, a program just stops."""
        if all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets):
            self.replace(node, "pass", "statement deleted", function)

    def augmented(self, node: ast.AugAssign, function: str) -> None:
        self.replace(node, "pass", "statement deleted", function)
        if type(node.op) in _ARITHMETIC:
            start, end = self.span(node.target)[1], self.span(node.value)[0]
            sign = _SIGNS[type(node.op)].encode() + b"="
            if (at := self.data.find(sign, start, end)) >= 0:
                self.add(at, at + len(sign), _ARITHMETIC[type(node.op)][0] + "=", "arithmetic", function)

    def left_loop(self, node: ast.Break | ast.Continue, function: str) -> None:
        self.replace(node, "continue" if isinstance(node, ast.Break) else "break", "break/continue", function)
        self.replace(node, "pass", "statement deleted", function)

    def choices(self, node: ast.Dict, function: str) -> None:
        """Strings in a table of choices: a name that is not found any more."""
        for part in [*node.keys, *node.values]:
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
                self.replace(part, repr(part.value + "_"), "string", function)


_RULES: dict[type[ast.AST], Callable[[_File, ast.AST, str], None]] = {
    ast.Compare: _File.compare, ast.BoolOp: _File.boolean, ast.BinOp: _File.binary, ast.UnaryOp: _File.unary,
    ast.Constant: _File.constant, ast.If: _File.condition, ast.While: _File.condition, ast.IfExp: _File.condition,
    ast.comprehension: _File.filters, ast.Return: _File.returned, ast.Call: _File.call, ast.Slice: _File.sliced,
    ast.Expr: _File.expression, ast.Raise: _File.deleted, ast.Delete: _File.deleted, ast.Assign: _File.assignment,
    ast.AugAssign: _File.augmented, ast.Break: _File.left_loop, ast.Continue: _File.left_loop, ast.Dict: _File.choices,
}  # type: ignore[dict-item]  # fmt: skip


def _heads(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Lines of each statement; of one with a body, those before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            yield first, last


def _named(node: ast.AST, names: set[str]) -> bool:
    """Whether a decorator or a call is of one of the names."""
    node = node.func if isinstance(node, ast.Call) else node
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


def _for_people(node: ast.Call) -> bool:
    """Whether a call's arguments are a text that people read."""
    return _OF_TEXTS.search(ast.unparse(node.func)) is not None


def _skipped(node: ast.AST) -> bool:
    """Whether nothing in a node is mutated."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Global() | ast.Nonlocal():
            return True
        case ast.If(test=test):
            return re.search(r"\bTYPE_CHECKING\b|\bsys\.(platform|version_info)\b", ast.unparse(test)) is not None
        case ast.FunctionDef(name=name):
            return name in _TEXT_METHODS or name.strip("_").endswith(("samples", "cost"))
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__") and name.endswith("__")
        case ast.Call():
            return _named(node, _UNSEEN)
        case ast.Expr(value=ast.Constant()):
            return True
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that may be mutated."""
    match node:
        case ast.Raise():
            return  # a text
        case ast.AnnAssign(value=value):
            if value is not None:
                yield value
        case ast.Call(func=func, args=args, keywords=keywords):
            yield func
            if not _for_people(node):
                yield from args
                yield from (k.value for k in keywords if k.arg not in _UNSEEN_KEYWORDS)
        case _:
            yield from ast.iter_child_nodes(node)
