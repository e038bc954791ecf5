"""Every example in a docstring of Firebrick runs and shows what it says."""

from __future__ import annotations

import doctest
import importlib
import linecache
import pkgutil

import pytest
from extras import need

import firebrick
from firebrick.core.config import config
from firebrick.testing import engines

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
# the part of the package that an optional dependency is needed for
NEEDS = {"firebrick.backends.torch": "torch"}


def modules() -> list[str]:
    return [
        m.name
        for m in pkgutil.walk_packages(firebrick.__path__, "firebrick.", onerror=lambda name: None)
        if not m.name.endswith("__main__")
    ]


def missing_engine(name: str) -> str | None:
    return next((e for prefix, e in NEEDS.items() if name.startswith(prefix) and e in engines().missing), None)


@pytest.mark.parametrize("name", ["firebrick", *sorted(modules())])
def test_the_examples_in(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine := missing_engine(name):
        pytest.skip(f"engine {engine} cannot be used here")
    if name.startswith("firebrick.interop.einops"):
        pytest.importorskip("einops")
    if name == "firebrick.data.text":
        need("tokenizers")
    monkeypatch.chdir(str(tmp_path))
    # doctest has a debugger for each object, which looks whether any of the thousands of sources that were read has changed
    check = linecache.checkcache
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: check(filename) if filename is not None else None)
    module = importlib.import_module(name)
    config.device = "cpu"
    before = dict(firebrick.ops.OPS)
    # names of a module of ours, such as ``round``, must not hide the built-in ones that a reader has
    failed, _ = doctest.testmod(module, globs={"__name__": "__main__"}, optionflags=FLAGS, report=True)
    firebrick.ops.OPS.clear()  # examples declare operations
    firebrick.ops.OPS.update(before)
    assert failed == 0


def test_every_public_function_has_an_example_that_runs() -> None:
    lacking = []
    for name in dir(firebrick):
        value = getattr(firebrick, name)
        if callable(value) and not name.startswith("_") and not isinstance(value, type) and name != "import_module":
            doc = value.__doc__ or ""
            if ">>>" not in doc:
                lacking.append(name)
    assert lacking == []


def test_an_example_that_shows_something_else_is_found() -> None:
    def wrong() -> None:
        """One.

        >>> 1 + 1
        3
        """

    (test,) = doctest.DocTestFinder().find(wrong, "wrong", globs={})
    assert doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=lambda text: None).failed == 1
