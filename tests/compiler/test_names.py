"""Names in the compiler: one class name, and one file name, for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import firebrick

ROOT = Path(firebrick.__file__).parent
FOLDERS = ("compiler", "scalar", "backends/cpu")


def repeated(names: list[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that occur more than once, with the files that they occur in."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, path in names:
        found[name].append(str(path))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def classes(folder: Path) -> list[tuple[str, Path]]:
    """The classes of a folder, private ones without their underscore."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.append((node.name.lstrip("_"), path.relative_to(folder)))
    return found


def test_no_two_classes_of_the_compiler_have_one_name() -> None:
    assert repeated([pair for folder in FOLDERS for pair in classes(ROOT / folder)]) == {}


def test_no_two_files_of_the_compiler_have_one_name() -> None:
    files = [(p.name, p.relative_to(ROOT)) for p in sorted((ROOT / "compiler").rglob("*.py")) if p.name != "__init__.py"]
    assert repeated(files) == {}


def test_a_repeated_name_is_found_with_its_files(tmp_path: Path) -> None:
    for name, text in {"a.py": "class Loop: ...\n", "b.py": "class _Loop: ...\n", "c.py": "class Nest: ...\n"}.items():
        (tmp_path / name).write_text(text)
    assert repeated(classes(tmp_path)) == {"Loop": ["a.py", "b.py"]}
