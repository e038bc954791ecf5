"""Threads that import different parts of the package at the same time all get whole modules.

Python locks a module before it imports the package that the module is in. A thread that imports ``nn.linear`` while another
imports ``nn``, which imports ``nn.linear``, closes a circle of locks: Python breaks it with an error or with a module that is
not whole. So a package imports the packages that it takes parts of first, by their own names; the first test reads the sources
for that, and the others try it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import firebrick

ROOT = Path(firebrick.__file__).parent


@cache
def sources() -> dict[str, ast.Module]:
    """The modules of the package by name, without those of the command, which imports from one thread."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.startswith(("firebrick.cli", "firebrick.__main__")):
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def packages(module: str) -> list[str]:
    """The packages that a module is in, outermost first, and the module."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(2, len(parts) + 1)]


class Imports:
    """What each module imports, as names of modules of the package."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self.trees = trees
        self.at_once = {name: self.all(tree.body, functions=False) for name, tree in trees.items()}
        # packages that import parts of their own
        self.within = {n for n in trees if any(part.startswith(f"{n}.") for _, part in self.at_once[n])}
        self.loaded = cache(self._loaded)

    def _named(self, node: ast.AST) -> list[tuple[str, str]]:
        """Pairs of the module that a statement imports first, and the one it imports as a name of that, if it is one."""
        if isinstance(node, ast.Import):
            return [(n.name, n.name) for n in node.names if n.name in self.trees]
        if isinstance(node, ast.ImportFrom) and node.module in self.trees:
            full = [f"{node.module}.{n.name}" for n in node.names]
            return [(node.module, name if name in self.trees else node.module) for name in full]
        return []

    def all(self, body: list[ast.stmt], *, functions: bool) -> list[tuple[str, str]]:
        """What statements import when they run, in functions too where these are asked for."""
        found = []
        for node in body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not functions:
                continue
            found += self._named(node)
            for field in ("body", "orelse", "finalbody", "handlers"):
                inner = getattr(node, field, [])
                found += self.all(inner, functions=functions) if isinstance(inner, list) else []
        return found

    def first(self, module: str) -> list[str]:
        """The packages that a module imports by their names before anything else of Firebrick."""
        found = []
        for node in self.trees[module].body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("firebrick"):
                break
            found += [name for name, _ in self._named(node)]
        return found

    def _loaded(self, module: str) -> frozenset[str]:
        """All modules that are loaded once a module is."""
        found: set[str] = set()
        ahead = [module]
        while ahead:
            for name in packages(ahead.pop()):
                if name in self.trees and name not in found:
                    found.add(name)
                    for pair in self.at_once[name]:
                        ahead.extend(pair)
        return frozenset(found)

    def entered_by_parts(self) -> set[tuple[str, str]]:
        """Pairs of a package and of a module outside it that imports a part of it where the package may not be loaded."""
        found = set()
        for module, tree in self.trees.items():
            above = packages(module)
            engine = ["firebrick.backends.cpu"] if module.startswith("firebrick.compiler.targets.llvm") else []  # its importer
            before = frozenset().union(*(self.loaded(first) for part in [*above, *engine] for first in self.first(part)))
            for entry, _ in self.all(tree.body, functions=True):
                for package in (set(packages(entry)[:-1]) & self.within) - set(above) - before:
                    own = above[:1] == packages(package)[:1]  # parts of one package, which is loaded by one thread
                    if not own or package not in self.loaded(above[0]):
                        found.add((package, module))
        return found


def test_a_package_is_imported_by_its_name_before_parts_of_it_are() -> None:
    late = Imports(sources()).entered_by_parts()
    assert late == set(), "the package of the second module imports the first package before anything else, by its name"


def test_the_check_of_the_order_of_imports_notices_a_package_that_is_not_imported_first() -> None:
    whole = sources()["firebrick.nn"]
    without = ast.Module([s for s in whole.body if not isinstance(s, ast.Import)], whole.type_ignores)
    assert ("firebrick.functions", "firebrick.nn.linear") in Imports({**sources(), "firebrick.nn": without}).entered_by_parts()


THREADS = """
import os, sys, threading, traceback
sys.setswitchinterval({interval})
import firebrick as fb
from importlib import import_module
uses = [{uses}]
errors, start = [], threading.Barrier(len(uses))
def run(use):
    start.wait()
    try:
        use()
    except BaseException:
        errors.append(traceback.format_exc())
threads = [threading.Thread(target=run, args=(use,), daemon=True) for use in uses]
[t.start() for t in threads]
[t.join({seconds}) for t in threads]
errors += [f"a thread hangs: {{t.name}}" for t in threads if t.is_alive()]
print(*errors[:1], flush=True)
os._exit(len(errors) > 0)
"""
PARTS = ["nn", "train", "data", "optim", "graph", "random", "models", "distributed", "testing", "ops", "functions", "autodiff",
         "backends", "compiler", "interop"]  # fmt: skip
IMPORTED = [f"lambda: import_module('firebrick.{part}')" for part in PARTS]
USED = [
    "lambda: fb.nn.Linear(2, 2)(fb.ones((1, 2))).numpy()",
    "lambda: fb.jit(lambda x: fb.softmax(x @ x, -1))(fb.ones((4, 4))).numpy()",
    "lambda: fb.grad(lambda x: fb.sum(x * x))(fb.ones(3)).numpy()",
    "lambda: fb.linalg.inv(fb.ones((1, 1))).numpy()",
    "lambda: fb.fft.fft(fb.ones(4)).numpy()",
    "lambda: fb.random.uniform((3,)).numpy()",
    "lambda: fb.ones(3, device='numpy').numpy()",
    "lambda: fb.from_dlpack(__import__('numpy').ones(3)).numpy()",
    "lambda: fb.kernel",
    "lambda: fb.op",
    "lambda: fb.devices()",
]


def together(uses: list[str], interval: float) -> str:
    """What a new process prints in which a thread each runs the uses: nothing, or the first error."""
    program = THREADS.format(uses=", ".join(uses), interval=interval, seconds=60)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    return (done.stdout + done.stderr).strip()


def test_threads_that_first_import_different_packages_all_get_whole_ones() -> None:
    assert together(IMPORTED[:8], 1e-6) == ""


def test_threads_that_first_use_different_parts_all_get_their_values() -> None:
    assert together(USED[:8], 1e-4) == ""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_eight_threads_that_first_import_or_use_any_parts_get_whole_ones(seed: int) -> None:
    import random

    assert together(random.Random(seed).sample(IMPORTED + USED, 8), (1e-6, 5e-3)[seed % 2]) == ""
