"""Where the variables of a function are defined in kernel IR, whose locals are visible in one block alone.

A variable's home is the innermost block that contains all statements that use it. If its first use there is an assignment, that
defines it; otherwise it is defined in front of the statement that uses it first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firebrick.compiler.kernel.language.source import Source, structured

IGNORED = "_"
"""What is assigned to this name is not used."""
Path = tuple[tuple[int, int], ...]
"""The blocks around an occurrence, each with the number of its statement there."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a variable is defined.

    Attributes:
        block: ``id`` of the list of statements.
        statement: Number of the statement there.
        before: Whether it is defined in front of the statement, instead of by it.
        once: Whether one statement alone assigns to it.
    """

    block: int
    statement: int
    before: bool
    once: bool


@dataclass(frozen=True, slots=True)
class Body:
    """The statements of a function as they are translated, which nobody changes.

    Attributes:
        statements: Those of ``structured``; in front, parameters that it assigns to become variables.
        changed: Names of these parameters; ``%`` and the name is the argument.
        homes: Of its variables.
    """

    statements: list[ast.stmt]
    changed: tuple[str, ...]
    homes: dict[str, Home]


def body_of(source: Source, result: bool) -> Body:
    """The statements of a function, made once: a loop that is written out may call it thousands of times.

    Args:
        source: Function.
        result: Whether it may return a value.
    """
    found: Body | None = source.bodies.get(result)
    if found is None:
        statements = structured(source, source.tree.body, result)
        a = source.tree.args
        parameters = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
        changed = tuple(name for name in homes(statements) if name in parameters)
        for name in changed:  # a variable, whose first value is the argument
            own = ast.Assign([ast.Name(name, ast.Store())], ast.Name(f"%{name}", ast.Load()))
            statements.insert(0, ast.fix_missing_locations(ast.copy_location(own, statements[0])))
        found = source.bodies[result] = Body(statements, changed, homes(statements))
    return found


def homes(body: Sequence[ast.stmt]) -> dict[str, Home]:
    """The home of each variable of a function's statements."""
    found: dict[str, list[tuple[Path, bool]]] = {}
    for name, path, store in _occurrences(body, ()):
        if name != IGNORED:
            found.setdefault(name, []).append((path, store))
    out: dict[str, Home] = {}
    for name, uses in found.items():
        stores = [path for path, store in uses if store]
        if not stores:
            continue
        depth = 0
        shortest = min(len(path) for path, _ in uses)
        while depth + 1 < shortest and len({path[depth + 1][0] for path, _ in uses}) == 1:
            depth += 1
        block, statement = uses[0][0][depth]
        first, is_store = uses[0]
        direct = is_store and len(first) == depth + 1
        out[name] = Home(block, statement, not direct, direct and len(stores) == 1)
    return out


def _occurrences(body: Sequence[ast.stmt], around: Path) -> Iterator[tuple[str, Path, bool]]:
    """The uses of names in the order in which they are executed: (name, path, whether it is assigned to)."""
    for k, s in enumerate(body):
        path = (*around, (id(body), k))
        match s:
            case ast.Assign(targets=targets, value=value):
                yield from _names(value, path)
                for t in targets:
                    yield from _names(t, path)
            case ast.AugAssign(target=target, value=value):
                yield from _names(value, path)
                if isinstance(target, ast.Name):
                    yield target.id, path, False
                yield from _names(target, path)
            case ast.If(test=test, body=then, orelse=other):
                yield from _names(test, path)
                yield from _occurrences(then, path)
                yield from _occurrences(other, path)
            case ast.While(test=test, body=inner):
                yield from _names(test, path)
                yield from ((flag, path, False) for flag in getattr(s, "stopped", ()))
                yield from _occurrences(inner, path)
            case ast.For(target=target, iter=over, body=inner):
                yield from _names(over, path)
                yield from ((flag, path, False) for flag in getattr(s, "stopped", ()))
                counters = {x.id for x in ast.walk(target) if isinstance(x, ast.Name)}
                yield from (u for u in _occurrences(inner, path) if u[0] not in counters)
            case _:
                yield from _names(s, path)


def _names(e: ast.AST, path: Path) -> Iterator[tuple[str, Path, bool]]:
    for x in ast.walk(e):
        if isinstance(x, ast.Name):
            yield x.id, path, isinstance(x.ctx, ast.Store)


def assigned_names(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign to."""
    return {x.id for s in body for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
