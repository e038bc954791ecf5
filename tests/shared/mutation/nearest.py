"""The tests to ask about a mutant: those that were measured to execute its line, cheapest and most specific first."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutation.collecting import Shard
from mutation.points import Mutant

SIGNATURES = (
    "tests/test_defaults.py::",
    "tests/core/test_constants.py::",
)  # look at what is defined, and execute nothing of it
PINNED = "tests/compiler/test_pinned.py::"  # cheap, shows a change of any text; each parameter is another program
TRANSLATED = {"compiler/templates/": "tests/compiler/templates/"}  # text of kernels, which Python does not execute → its tests


@dataclass(frozen=True)
class Asked:
    """A test that executes a line.

    Attributes:
        name: Its name for pytest.
        seconds: Processor time that it took while it was measured.
        elsewhere: Whether only processes that it starts execute the line.
    """

    name: str
    seconds: float
    elsewhere: bool = False

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


class Map:
    """What all tests that were measured execute.

    Args:
        package: The folder of the sources.
        shards: What is known of each test file.
        never: Tests that are never asked, as they failed without a mutation.
    """

    def __init__(self, package: Path, shards: Iterable[Shard], never: Iterable[str] = ()) -> None:
        self.package = package
        self.names: list[str] = []
        self.seconds: list[float] = []
        self.sizes: list[int] = []  # lines that a test executes in all
        self.lines: dict[str, list[tuple[bytes, list[int], bool]]] = defaultdict(list)
        self.never = set(never)
        for shard in shards:
            self._add(shard)

    def _add(self, shard: Shard) -> None:
        base = len(self.names)
        self.names += shard.tests
        # measuring these takes three times as long as running them, and all that execute a line should be asked
        self.seconds += [s / 3 if t.startswith(PINNED) else s for t, s in zip(shard.tests, shard.seconds, strict=True)]
        self.sizes += [0] * len(shard.tests)
        self.never |= set(shard.failed)
        for lines, elsewhere in ((shard.lines, False), (shard.elsewhere, True)):
            for path, groups in lines.items():
                for digits, tests in groups:
                    bits = bytes.fromhex(digits)
                    self.lines[path].append((bits, [base + t for t in tests], elsewhere))
                    size = int.from_bytes(bits, "little").bit_count()
                    for t in tests:
                        self.sizes[base + t] += size

    def executing(self, path: str, lines: Iterable[int]) -> dict[int, bool]:
        """Tests that execute one of the lines; true for those of which only other processes do."""
        wanted = sum(1 << n for n in set(lines))
        found: dict[int, bool] = {}
        for bits, tests, elsewhere in self.lines.get(path, ()):
            if int.from_bytes(bits, "little") & wanted:
                for t in tests:
                    found[t] = found.get(t, True) and elsewhere
        return found

    def nearest(self, mutant: Mutant) -> list[Asked]:
        """The tests to ask, best first.

        Where none is known to execute the line, these are tests of its function, or else of its file: a profile function,
        for one, runs unseen by what measures lines.
        """
        if mutant.imported:
            found = self._using(mutant) | self.executing(mutant.path, range(mutant.lines[0], mutant.lines[1] + 1))  # lambdas
            found |= {t: False for t, name in enumerate(self.names) if name.startswith(SIGNATURES)}
            read = self._reading(mutant)
            found |= dict.fromkeys(read, False)
        else:
            read = set()
            found = self.executing(mutant.path, range(mutant.lines[0], mutant.lines[1] + 1)) or self._around(mutant)
            for folder, tests in TRANSLATED.items():
                if mutant.path.startswith(folder) and not self.executed(mutant):
                    found |= {t: False for t, name in enumerate(self.names) if name.startswith(tests)}
        here: dict[int, int] = defaultdict(int)  # lines of the mutant's file that a test executes
        for bits, tests, _ in self.lines.get(mutant.path, ()):
            size = int.from_bytes(bits, "little").bit_count()
            for t in tests:
                here[t] += size
        cost = {t: (self.seconds[t] + 0.02) * self.sizes[t] / max(here[t], 1) for t in found if self.names[t] not in self.never}
        cost |= {t: c / 50 for t, c in cost.items() if self.names[t].startswith(PINNED)}
        cost |= dict.fromkeys(read & cost.keys(), 1e-9)
        cost |= {t: 0.0 for t in cost if self.names[t].startswith(SIGNATURES)}
        ranked, alike = [], defaultdict(int)
        for t in sorted(cost, key=lambda t: (cost[t], self.names[t])):
            function = self.names[t].partition("[")[0]
            alike[function] += not function.startswith(PINNED)
            # another parameter of a test finds less that is new
            ranked.append((cost[t] * max(1, alike[function]), self.names[t], t))
        return [Asked(self.names[t], self.seconds[t], found[t]) for _, _, t in sorted(ranked)]

    def executed(self, mutant: Mutant) -> bool:
        """Whether a test is known to execute a mutant's line."""
        return mutant.imported or bool(self.executing(mutant.path, range(mutant.lines[0], mutant.lines[1] + 1)))

    def _around(self, mutant: Mutant) -> dict[int, bool]:
        """Tests that execute other lines of the same function, or of one around it, or of the file."""
        functions = _functions(parsed(self.package / mutant.path))
        around = [_inside(f) for f in functions if f.lineno <= mutant.line <= (f.end_lineno or 0)]
        for lines in [*sorted(around, key=len), [n for f in functions for n in _inside(f)]]:
            if found := self.executing(mutant.path, lines):
                return found
        return {}

    def _reading(self, mutant: Mutant) -> set[int]:
        """Tests that read what a line of a module defines: a table that a test compares executes no line of the package."""
        names, module = _bound(_innermost(parsed(self.package / mutant.path), mutant.line)), Path(mutant.path).stem
        readers = {
            (file, f.name)
            for file in {name.partition("::")[0] for name in self.names}
            if names and _mentions(self.package.parents[1] / file, frozenset({module}))
            for f in _functions(parsed(self.package.parents[1] / file))
            if _uses(f, names)
        }
        return {t for t, name in enumerate(self.names) if (name.partition("::")[0], _function(name)) in readers}

    def _using(self, mutant: Mutant) -> dict[int, bool]:
        """Tests that use what a line that runs at import makes: a function's default, or a name of the module or class."""
        tree = parsed(self.package / mutant.path)
        statement = _innermost(tree, mutant.line)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return self.executing(mutant.path, _inside(statement))
        names = _bound(statement)
        found: dict[int, bool] = {}
        if names:
            for file in sorted(self.package.rglob("*.py")):
                path = str(file.relative_to(self.package))
                if path == mutant.path or (path in self.lines and _mentions(file, frozenset(names))):
                    lines = [n for f in _functions(parsed(file)) if _uses(f, names) for n in _inside(f)]
                    for t, elsewhere in self.executing(path, lines).items():
                        found[t] = found.get(t, True) and elsewhere
        return found or self.executing(mutant.path, [n for f in _functions(tree) for n in _inside(f)])


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def _function(test: str) -> str:
    return test.partition("[")[0].rpartition("::")[2]


@cache
def _mentions(file: Path, names: frozenset[str]) -> bool:
    return (
        file.exists() and re.search(rf"\b({'|'.join(map(re.escape, names))})\b", file.read_text(encoding="utf-8")) is not None
    )


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _inside(function: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    return range(function.body[0].lineno, (function.end_lineno or 0) + 1)


def _uses(function: ast.AST, names: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Name) and n.id in names) or (isinstance(n, ast.Attribute) and n.attr in names)
        for n in ast.walk(function)
    )


def _innermost(tree: ast.Module, line: int) -> ast.stmt | None:
    """The statement of the module, or of a class in it, that a line belongs to; a function with its decorators."""
    body: list[ast.stmt] = tree.body
    found = None
    while body:
        found, body = next(
            ((n, n.body if isinstance(n, ast.ClassDef) else []) for n in body if _first(n) <= line <= (n.end_lineno or 0)),
            (found, []),
        )
    return found


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _bound(statement: ast.stmt | None) -> set[str]:
    """Names that a statement gives a value or fills."""
    if statement is None:
        return set()
    if isinstance(statement, ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Expr):  # a registration, or a table that is filled
        return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    stored = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored or {n.value.id for n in ast.walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)}
