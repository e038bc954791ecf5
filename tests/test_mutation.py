"""The tool of `make mutate`: what it changes, what it finds in sources with a known hole, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mutation.outcomes import EQUIVALENT, equivalents
from mutation.overlay import PACKAGE, Overlay
from mutation.points import mutants
from mutation.running import Ordered
from mutation.sampling import sample

SHARED = Path(__file__).parent / "shared"

PROGRAM = '''
"""A program of a few functions."""


def larger(x, y):
    """The larger one."""
    return x if x > y else y


def twice(x):
    return x * 2


def forgotten(x):
    return -x


def briefly(lock):
    lock.acquire()
    lock.release()
'''

TESTS = """
import sys
from threading import Lock
from firebrick import briefly, forgotten, larger, twice


def test_the_larger_one():
    assert (larger(1, 2), larger(2, 1), larger(2, 2)) == (2, 2, 2)


def test_twice():
    assert twice(2) == 4


def test_a_lock_is_released():
    lock = Lock()
    briefly(lock)
    briefly(lock)


def test_it_is_measured():
    assert twice(1) and sys.gettrace() is not None
"""

JUDGED = """
# why

__init__.py larger
- return x if x > y else y
+ return x if x >= y else y
= Equal numbers are the same whichever is returned.
"""


def changes(source: str) -> set[str]:
    """The changed lines of all mutants."""
    return {m.difference(source).partition("\n+ ")[2] for m in mutants("a.py", source) if m.viable(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x):\n    return x < 2\n", {"return x <= 2", "return x >= 2", "return x < 3", "return x < 1", "return None"}),
        ("def f(x, y):\n    g(x, y)\n", {"g(y, x)", "pass"}),
        ("def f(x):\n    for y in x:\n        continue\n", {"break", "pass"}),
        ("def f(x):\n    return x[1:y]\n", {
            "return x[1 + 1:y]", "return x[1 - 1:y]", "return x[1:y + 1]", "return x[1:y - 1]",
            "return x[2:y]", "return x[0:y]", "return None",
        }),
        ("def f(x, y):\n    return x and y\n", {"return x or y", "return True and y", "return x and True", "return None"}),
        ("def f(x):\n    if x:\n        raise KeyError(f'{x + 1}', x < 2)\n", {"if not (x):", "if True:", "if False:", "pass"}),
        ("def f(x, *, y=True): ...\n", {"def f(x, *, y=False): ..."}),
        ("def f(x):\n    return g(x, axis=x)\n", {"return g(x)", "return None"}),
        ("x = {'one': y}\n", {"x = {'one_': y}"}),
        ("def f(é):\n    g(é, 1)\n", {"g(1, é)", "g(é, 2)", "g(é, 0)", "pass"}),
    ],
)  # fmt: skip
def test_a_point_is_changed_in_each_way_and_nothing_else_is(source: str, expected: set[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""One or two."""\n',
        "def f(x: Literal[1] = y) -> Literal[2]:\n    'Three.'\n",
        "if TYPE_CHECKING:\n    from a import b\n    x = 1\n",
        "class A:\n    def __repr__(self):\n        return f'{1 + 2}' if self.x else '3'\n",
        "@lru_cache(maxsize=64)\ndef f(x): ...\n",
        "@overload\ndef f(x=1): ...\n",
        "assert isinstance(x, A)\n",
        "def _add_samples(rng):\n    return rng(1)\n",
        "Shape = int | tuple[int, ...]\n",
        "@register(cost=per_result(2))\ndef f(x): ...\n",
    ],
)
def test_what_no_test_could_notice_is_left_alone(source: str) -> None:
    assert changes(source) == set()


def tree(root: Path) -> Path:
    """A small tree, with a hole in its tests: 2 + 2 is 2 * 2."""
    for path, text in {PACKAGE / "__init__.py": PROGRAM, Path("tests/test_it.py"): TESTS, Path("judged.txt"): JUDGED}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_larger_sample_begins_with_the_smaller_one_and_another_seed_draws_another(tmp_path: Path) -> None:
    package = tree(tmp_path) / PACKAGE
    assert sample(package, 3, 1) == sample(package, 7, 1)[:3]
    assert sample(package, 7, 1) != sample(package, 7, 2)
    assert sample(package, 7, 1, under=("nn",)) == []
    before = {(m.difference(PROGRAM), m.text) for m in sample(package, 99, 1)}
    longer = "import os\n" + PROGRAM.replace("def forgotten(x):", "def forgotten(x):\n    os.sync(x, 1)")
    (package / "__init__.py").write_text(longer)
    assert {(m.difference(longer), m.text) for m in sample(package, 99, 1)} > before, "what did not change is drawn as before"


def test_a_mutant_is_only_in_the_copy_and_gone_after_an_exception(tmp_path: Path) -> None:
    original = tree(tmp_path / "tree") / PACKAGE / "__init__.py"
    overlay = Overlay(tmp_path / "tree", tmp_path / "copy")
    overlay.update()
    copy = overlay.root / PACKAGE / "__init__.py"
    times = {int(copy.stat().st_mtime)}
    for mutant in sample(original.parent, 4, 0):
        with pytest.raises(KeyError, match="stopped"), overlay.mutated(mutant):  # noqa: PT012 - what happens meanwhile
            assert copy.read_text() == mutant.applied(PROGRAM) != PROGRAM
            times.add(int(copy.stat().st_mtime))
            raise KeyError("stopped")
        assert copy.read_text() == original.read_text() == PROGRAM
    assert len(times) == 5, "a compiled file of one version would be taken for another's"
    original.write_text("")
    (tmp_path / "tree/judged.txt").unlink()
    overlay.update()
    assert copy.read_text() == ""
    assert not (overlay.root / "judged.txt").exists()


def test_judged_mutants_have_a_reason_each(tmp_path: Path) -> None:
    assert all(len(reason) > 10 for reason in equivalents(EQUIVALENT).values())
    file = tmp_path / "judged.txt"
    file.write_text(JUDGED.replace("= Equal", "Equal"))
    with pytest.raises(ValueError, match="reasons after '= '"):
        equivalents(file)


def test_measured_lines_are_followed_through_changes_of_a_source(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="coverage, to measure which tests execute a line")
    from mutation.collecting import followed

    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text("\n".join(f"line {n}" for n in range(1, 41)))
    new.write_text("\n".join(["new", *(f"line {n}" for n in range(1, 11)), "other", *(f"line {n}" for n in range(12, 41))]))
    executed = sum(1 << n for n in (1, 10, 11, 12, 40)).to_bytes(8, "little").hex()
    found = int.from_bytes(bytes.fromhex(followed(executed, old, new)), "little")
    assert [n for n in range(64) if found >> n & 1] == [2, 11, 13, 41]  # line 11 is another one now


def test_a_source_that_is_gone_leaves_what_was_measured_of_the_others(tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="coverage, to measure which tests execute a line")
    from mutation.collecting import Shard, digest, load, path_of

    package, state = tmp_path / PACKAGE, tmp_path / "state"
    package.mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    gone = state / "measured" / "0123" / "gone.py"
    gone.parent.mkdir(parents=True)
    gone.write_text("y = 1\n")
    sources = {"a.py": digest(package / "a.py"), "gone.py": "0123"}
    shard = Shard("tests/test_a.py", "key", ["one"], [0.1], lines={k: [("02", [0])] for k in sources}, sources=sources)
    file = path_of(state, shard.file)
    file.parent.mkdir()
    file.write_text(json.dumps(asdict(shard)))
    found = load(state, tmp_path, shard.file)
    assert found is not None
    assert found.lines == {"a.py": [["02", [0]]]}
    assert load(state, tmp_path, shard.file, "key") is None  # measured again where that is allowed


def test_a_name_that_is_gone_stands_for_the_parameters_that_its_test_has_now(tmp_path: Path) -> None:
    here = ("test_a[new-1]", "test_b", "test_a[new-2]", "test_c[1]", "test_c[2]")
    names = [*(f"t.py::{n}" for n in here), "u.py::test_a[new-1]"]
    items: list[Any] = [SimpleNamespace(nodeid=n) for n in names]
    ordered = Ordered(["t.py::test_c[2]", "t.py::test_a[old]"], tmp_path / "journal", 1.0)
    ordered.pytest_collection_modifyitems(items)
    ordered.journal.close()
    assert [i.nodeid for i in items] == ["t.py::test_c[2]", "t.py::test_a[new-1]", "t.py::test_a[new-2]"]


def mutate(root: Path, *more: str) -> tuple[int, str]:
    """Run the tool on all mutants of a tree; its exit status and what it prints."""
    pytest.importorskip("coverage", reason="coverage, to measure which tests execute a line")
    command = [sys.executable, "-m", "mutation", "--count", "99", "--jobs", "1", "--patience", "6", "--no-preload"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COVERAGE"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(SHARED), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "--equivalent", "judged.txt", *more], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak
def test_a_known_hole_is_found_and_a_test_closes_it(tmp_path: Path) -> None:
    root = tree(tmp_path)
    wanted = {"+ return x + 2", "+ return x if x >= y else y"}  # survives; is judged equivalent
    seed = next(
        s for s in range(10_000) if wanted <= {m.difference(PROGRAM).splitlines()[1] for m in sample(root / PACKAGE, 99, s)}
    )
    code, shown = mutate(root, "--seed", str(seed))
    assert code == 1, shown
    assert "SURVIVED arithmetic, __init__.py:11, in twice" in shown
    assert "TIMEOUT statement deleted, __init__.py:20, in briefly" in shown
    assert "NOT EXECUTED" in shown
    assert "these fail without a mutation too, and are not asked any more: tests/test_it.py::test_it_is_measured\n" in shown
    assert "| **all** | 5 | 2 | 1 | 1 | 1 | 1 |" in shown
    assert (root / PACKAGE / "__init__.py").read_text() == PROGRAM

    again, repeated = mutate(root, "--seed", str(seed))
    assert "5 mutants, 5 known, 0 to do" in repeated
    assert (again, repeated[repeated.index("| folder") :]) == (code, shown[shown.index("| folder") :])

    with (root / "tests/test_it.py").open("a") as out:
        out.write("\n\ndef test_more():\n    assert twice(3) == 6\n    assert forgotten(3) == -3\n")
    code, shown = mutate(root, "--seed", str(seed))
    assert code == 0, shown
    assert "| **all** | 5 | 4 | 1 | 1 | 0 | 0 |" in shown

    (root / "tests/conftest.py").write_text("def pytest_no_such_hook(): ...\n")
    code, shown = mutate(root, "--seed", str(seed), "--no-collect")
    assert code == 1
    assert "the tests do not begin, without a mutation" in shown
    assert "unknown hook" in shown


def test_all_that_a_run_has_started_is_killed_with_it(tmp_path: Path) -> None:
    program = f"""
import os, subprocess, sys
from pathlib import Path
from mutation.forking import Child

def run():
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"
    own = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    Path("pid").write_text(own.stdout.readline().decode())
    Path("pid").rename("started")
    return own.wait()

child = Child(run, Path({str(tmp_path)!r}), Path("log").absolute(), {{}})
while not Path("started").exists():
    assert child.poll() is None
started = int(Path("started").read_text())
assert started in child.processes()
child.kill()
assert child.poll() == -9
assert child.processes() == []
"""
    environment = {**os.environ, "PYTHONPATH": str(SHARED)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
