"""The package root loads its names when the first is used, and parts of the package work whichever is imported first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import printed_with_numpy_alone

import firebrick as fb


def run(program: str) -> str:
    """What a program prints in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_root_imports_neither_numpy_nor_the_floors() -> None:
    loaded = run("import sys, firebrick; print(sorted(m for m in sys.modules if m.startswith(('numpy', 'firebrick'))))")
    assert loaded == "['firebrick']"


FIRST_USES = {
    "a name": "import firebrick as fb; print(fb.add(fb.ones(2), 1).tolist())",
    "a name of from": "from firebrick import ones; print((ones(2) + 1).tolist())",
    "all names": "from firebrick import *; print((ones(2) + 1).tolist())",
    "a subpackage": "import firebrick as fb; print(fb.random.Generator and (fb.ones(2) + 1).tolist())",
    "a chapter": "import firebrick as fb; print(fb.linalg and (fb.ones(2) + 1).tolist())",
    "the names": "import firebrick as fb; assert {'ones'} <= {*dir(fb), *fb.__all__}; print((fb.ones(2) + 1).tolist())",
    "a misspelling": (
        "import firebrick as fb\ntry: fb.onse\nexcept AttributeError as e: assert 'ones' in str(e)\n"
        "print((fb.ones(2) + 1).tolist())"
    ),
    "a patch": "import firebrick as fb; fb.ones = lambda n: [2.0] * n; fb.zeros(1); print(fb.ones(2))",
    "threads": (
        "import firebrick as fb, threading; out = []\n"
        "ts = [threading.Thread(target=lambda: out.append((fb.ones(2) + 1).tolist())) for _ in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]; assert out == [[2.0, 2.0]] * 8; print(out[0])"
    ),
}


@pytest.mark.parametrize("use", FIRST_USES)
def test_whatever_is_used_first_loads_the_names(use: str, tmp_path: Path) -> None:
    assert printed_with_numpy_alone(FIRST_USES[use], tmp_path) == "[2.0, 2.0]"


PARTS = ["core.tensor", "core.bind", "ops", "backends.dispatch", "autodiff", "graph", "functions", "random", "nn", "data",
         "optim", "distributed", "train", "models", "testing", "cli"]  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_any_part_can_be_imported_first_and_its_tensors_have_operators(part: str, tmp_path: Path) -> None:
    program = (
        f"import firebrick.{part}\nimport numpy as np\nfrom firebrick.core.hooks import hooks\n"
        "x = hooks.from_host(np.ones(2, np.float32), hooks.find_device(None))\nprint((x + 1).tolist())"
    )
    assert printed_with_numpy_alone(program, tmp_path) == "[2.0, 2.0]"


def test_the_root_has_the_names_of_its_namespace() -> None:
    from firebrick import namespace

    assert fb.__all__ == namespace.__all__
    assert all(getattr(fb, name) is getattr(namespace, name) for name in namespace.__all__ if name != "nan")
    assert fb.ones(1).__array_namespace__() is fb
