"""NumPy's scalars count as Python's in every call of every example of the API reference."""

from __future__ import annotations

import ast
import doctest
import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from api_reference import Name, public_names

EXAMPLES = [n for n in public_names() if n.same_as is None and ">>>" in n.doc and not n.path.startswith("fb.kernel")]

AS_THEY_ARE = {"asarray", "Buffer", "Parameter", "Share"}
"""Functions whose first argument is data, which keeps the dtype of NumPy's scalars; and a record that the library fills."""


OTHERS = {"math", "np", "os", "tempfile", "Path", "re", "pickle", "json"}
"""Names in examples that are not Firebrick's."""


class WithNumPyScalars(ast.NodeTransformer):
    """Numbers among the arguments of Firebrick's functions become NumPy's scalars.

    In calls of one function the defaults of its other arguments are written out, as such scalars.

    Attributes:
        count: How many have.
    """

    def __init__(self, name: Name, wide: bool) -> None:
        self.path, self.defaults, self.wide, self.count = name.path, defaults_of(name.value), wide, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        path = ast.unparse(node.func)
        if path == self.path and not any(isinstance(a, ast.Starred) for a in node.args):
            written = {k.arg for k in node.keywords} | set(list(self.defaults)[: len(node.args)])
            node.keywords += [
                ast.keyword(n, ast.parse(repr(v), mode="eval").body)
                for n, v in self.defaults.items()
                if n not in written and v is not None
            ]
        owner, _, called = path.rpartition(".")
        if owner and owner.partition(".")[0] not in OTHERS and called not in AS_THEY_ARE:
            node.args = [self._scalar(a) for a in node.args]
            for k in node.keywords:
                k.value = self._scalar(k.value)
        return node

    def _scalar(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._scalar(e) for e in node.elts], ast.Load())
        try:
            value = ast.literal_eval(node)
        except ValueError:
            return node
        if type(value) not in (bool, int, float):
            return node
        self.count += 1
        return ast.parse(f"_np.{self._kind(value)}({value!r})", mode="eval").body

    def _kind(self, value: float) -> str:
        if isinstance(value, bool):
            return "bool_"
        if isinstance(value, int):
            return "int64" if self.wide or not -(2**31) <= value < 2**31 else "int32"
        return "float64" if self.wide or float(np.float32(value)) != value else "float32"


def defaults_of(function: Any) -> dict[str, Any]:
    """The parameters of a function in their order, with their defaults that are numbers or tuples of them, else None."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default if is_number(p.default) and p.kind is not p.POSITIONAL_ONLY else None for p in parameters}


def is_number(value: Any) -> bool:
    return type(value) in (bool, int, float) or (type(value) is tuple and bool(value) and all(map(is_number, value)))


def changed(source: str, name: Name, wide: bool) -> tuple[str, int]:
    """A statement with NumPy's scalars, and how many it has."""
    made = WithNumPyScalars(name, wide)
    return ast.unparse(made.visit(ast.parse(source))) + "\n", made.count


def with_numpy_scalars(name: Name, wide: bool) -> tuple[doctest.DocTest, int]:
    """The examples of a docstring with NumPy's scalars."""
    test = doctest.DocTestParser().get_doctest(name.doc, {"_np": np, "__name__": "__main__"}, name.path, None, None)
    count = 0
    for example in test.examples:
        example.source, found = changed(example.source, name, wide)
        count += found
    return test, count


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Operations that an example declares, and the files that it writes, are gone after it."""
    before = dict(fb.ops.OPS)
    monkeypatch.chdir(tmp_path)
    # doctest's debugger looks whether any of the thousands of sources that were read has changed
    check = linecache.checkcache
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: check(filename) if filename is not None else None)
    yield
    fb.ops.OPS.clear()
    fb.ops.OPS.update(before)


NAMES = {n.path: n for n in EXAMPLES}
COUNTS = {n.path: with_numpy_scalars(n, True)[1] for n in EXAMPLES}


def in_turn() -> Iterator[Any]:
    """Each example with each width: each run takes 64 and 32 bits in turn."""
    for turn, name in enumerate(n for n in EXAMPLES if COUNTS[n.path]):
        for wide in (True, False):
            marks = () if wide == (turn % 2 == 0) else pytest.mark.soak
            yield pytest.param(name, wide, id=f"{name.path}-{64 if wide else 32} bits", marks=marks)


@pytest.mark.parametrize(("name", "wide"), list(in_turn()))
def test_an_example_gives_the_same_with_numpys_scalars(name: Name, wide: bool) -> None:
    test, _ = with_numpy_scalars(name, wide)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert not report, "".join(report)


def test_many_arguments_are_tried_and_one_that_is_read_otherwise_is_found() -> None:
    assert sum(COUNTS.values()) > 1500
    assert changed("fb.sum(x, axis=1)", NAMES["fb.sum"], True)[0] == "fb.sum(x, axis=_np.int64(1), keepdims=_np.bool_(False))\n"

    def shown(n: int) -> str:
        """Its number, as it is.

        >>> fb.shown(3)
        '3'
        """
        return repr(n)

    test, count = with_numpy_scalars(Name("fb.shown", shown, None), True)
    test.globs["fb"] = SimpleNamespace(shown=shown)
    assert count == 1
    assert doctest.DocTestRunner().run(test, out=lambda _: None).failed == 1
