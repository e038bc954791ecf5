"""Registration with libraries when they are imported, and never before."""

import subprocess
import sys
from pathlib import Path

import pytest
from extras import need
from forked import printed_with_numpy_alone

from firebrick.functions.registrations import _Finder, register


def run(program: str, *paths: Path) -> str:
    """What a program of its own prints."""
    lines = [f"import sys; sys.path[:0] = {[str(p) for p in paths]}", program]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_firebrick_imports_neither_einops_nor_opt_einsum() -> None:
    assert run("import firebrick; print({'einops', 'opt_einsum'} & set(sys.modules))") == "set()"


@pytest.mark.parametrize("order", ["import einops, firebrick as fb", "import firebrick as fb, einops"])
def test_einops_takes_tensors_in_either_order_of_imports(order: str, tmp_path: Path) -> None:
    need("einops")
    assert (
        printed_with_numpy_alone(f"{order}\nprint(einops.rearrange(fb.ones((2, 3)), 'a b -> b a').shape)", tmp_path) == "(3, 2)"
    )


@pytest.mark.parametrize("part", ["train", "nn", "random", "analog"])
@pytest.mark.parametrize("order", ["import firebrick.{0}, einops", "import einops, firebrick.{0}"])
def test_einops_takes_tensors_whatever_part_is_imported_first(order: str, part: str, tmp_path: Path) -> None:
    need("einops")
    program = (
        order.format(part)
        + "\nfrom firebrick.random import normal\nprint(einops.rearrange(normal((2, 3)), 'a b -> b a').shape)"
    )
    assert printed_with_numpy_alone(program, tmp_path) == "(3, 2)"


@pytest.mark.parametrize("order", ["import opt_einsum, firebrick as fb", "import firebrick as fb, opt_einsum"])
def test_opt_einsum_takes_tensors_in_either_order_of_imports(order: str, tmp_path: Path) -> None:
    assert (
        printed_with_numpy_alone(f"{order}\nprint(opt_einsum.contract('ab->ba', fb.ones((2, 3))).shape)", tmp_path) == "(3, 2)"
    )


def library(folder: Path, registration: str) -> str:
    """A library, what comes after its import, and a program that imports it with a registration for it."""
    (folder / "a_library.py").write_text("VALUE = 1\n")
    (folder / "after_it.py").write_text(registration)
    return (
        "from firebrick.functions.registrations import _Finder\n"
        "sys.meta_path.insert(0, _Finder({'a_library': 'after_it', 'not_installed': 'after_it'}))\n"
        "import a_library\n"
        "print(a_library.VALUE, type(a_library.__loader__).__name__, type(a_library.__spec__.loader).__name__)\n"
    )


def test_a_library_keeps_its_loader_and_is_changed_by_what_comes_after_it(tmp_path: Path) -> None:
    program = library(tmp_path, "import a_library\na_library.VALUE = 2\n")
    assert run(program, tmp_path) == "2 SourceFileLoader SourceFileLoader"


def test_a_library_that_has_changed_inside_is_still_imported_with_a_warning(tmp_path: Path) -> None:
    program = "import warnings\nwarnings.simplefilter('error')\n" + library(tmp_path, "from a_library import missing\n")
    caught = program.replace(
        "import a_library\n", "try:\n  import a_library\nexcept UserWarning as e:\n  print(e)\n  sys.exit()\n"
    )
    assert run(caught, tmp_path).startswith("a_library cannot take Firebrick's tensors: cannot import name 'missing'")
    relaxed = program.replace("'error'", "'ignore'")
    assert run(relaxed, tmp_path) == "1 SourceFileLoader SourceFileLoader"


def test_a_library_that_is_not_installed_is_reported_by_python_each_time(tmp_path: Path) -> None:
    program = library(tmp_path, "") + (
        "for _ in range(2):\n  try:\n    import not_installed\n  except ModuleNotFoundError as e:\n    print(e)\n"
    )
    assert run(program, tmp_path).splitlines()[1:] == ["No module named 'not_installed'"] * 2


def test_asking_whether_a_library_is_there_does_not_spoil_its_registration(tmp_path: Path) -> None:
    program = library(tmp_path, "import a_library\na_library.VALUE = 2\n")
    asked = program.replace("import a_library\n", "import importlib.util as u\nu.find_spec('a_library')\nimport a_library\n")
    assert run(asked, tmp_path) == "2 SourceFileLoader SourceFileLoader"


def test_registering_again_adds_no_second_finder() -> None:
    before = sum(isinstance(f, _Finder) for f in sys.meta_path)
    register({"a module that nobody imports": "math"})
    try:
        assert sum(isinstance(f, _Finder) for f in sys.meta_path) <= max(before, 1)
    finally:
        sys.meta_path[:] = [
            f for f in sys.meta_path if not (isinstance(f, _Finder) and "a module that nobody imports" in f.waiting)
        ]


def test_the_loader_of_a_library_that_is_not_imported_answers_what_the_library_does(tmp_path: Path) -> None:
    program = library(tmp_path, "import a_library\na_library.VALUE = 2\n")
    asked = program.replace(
        "import a_library\n",
        "import importlib.util as u\nloader = u.find_spec('a_library').loader\n"
        "print('VALUE' in loader.get_source('a_library'))\nimport a_library\n",
    )
    assert run(asked, tmp_path) == "True\n2 SourceFileLoader SourceFileLoader"
