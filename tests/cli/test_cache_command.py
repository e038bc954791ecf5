"""``firebrick cache``: what is listed, and that clearing removes it and nothing else."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import firebrick as fb
from firebrick.cli.cache import _ago
from firebrick.cli.reporting import size_of
from firebrick.compiler import cache
from firebrick.compiler.targets.llvm.host import _linked, compile_ir

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache, "store", cache.ObjectStore())
    with fb.config.scope(cache_dir=str(tmp_path / "kept")):
        yield tmp_path / "kept" / "objects"


def fill(count: int) -> None:
    _linked.clear()
    for n in range(count):
        compile_ir(f"define i64 @kernel{n}() {{\n  ret i64 {n}\n}}\n")


def test_an_empty_cache_says_so(run: Run, home: Path) -> None:
    result = run("cache", "list")
    assert result.exit_code == 0
    assert result.output == f"0 entries, 0 B of at most 512.0 MiB, in {home}\n"


def test_entries_are_listed_with_what_they_are(run: Run, home: Path) -> None:
    fill(2)
    output = run("cache", "list").output
    assert "kernel0" in output
    assert "kernel1" in output
    assert "vectors of" in output
    assert "llvmlite" in output
    assert f"2 entries, {sum(p.stat().st_size for p in home.iterdir()) / 1024:.1f} KiB of at most" in output


def test_an_entry_that_is_damaged_is_shown_as_such(run: Run, home: Path) -> None:
    fill(1)
    (entry,) = home.iterdir()
    entry.write_bytes(b"rubbish")
    output = run("cache", "list").output
    assert "not valid: it will be replaced" in output
    assert entry.name[:12] in output


def test_only_the_last_ones_are_listed_unless_all_are_asked_for(run: Run, home: Path) -> None:
    fill(23)
    short = run("cache", "list").output
    assert short.count("kernel") == 20
    assert "… and 3 more: firebrick cache list --all" in short
    assert run("cache", "list", "--all").output.count("kernel") == 23


def test_clear_removes_all_entries_and_nothing_else(run: Run, home: Path) -> None:
    fill(3)
    (home / "notes.txt").write_text("mine")
    result = run("cache", "clear")
    assert result.exit_code == 0
    assert result.output.startswith("removed 3 entries, ")
    assert result.output.endswith(f"from {home}\n")
    assert [p.name for p in home.iterdir()] == ["notes.txt"]
    assert run("cache", "clear").output == f"removed 0 entries, 0 B, from {home}\n"


def test_a_cache_that_is_off_is_told(run: Run, home: Path) -> None:
    with fb.config.scope(cache_dir="off"):
        said = "compiled code is not kept (FIREBRICK_CACHE_DIR is off, or there is no home directory)\n"
        assert run("cache", "list").output == said
        assert run("cache", "clear").exit_code == 0


def test_what_cannot_be_removed_is_an_error_in_one_line(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(1)

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refused)
    result = run("cache", "clear")
    assert result.exit_code == 1
    assert "Permission denied" in result.output


def test_times_and_sizes_are_in_the_largest_unit_of_which_there_are_some() -> None:
    seconds = (0, 1.9, 2, 119, 120, 7199, 7200, 86400 * 2 - 1, 86400 * 2, 86400 * 30)
    assert [_ago(s) for s in seconds] == [
        "now", "now", "2 seconds ago", "119 seconds ago", "2 minutes ago", "120 minutes ago", "2 hours ago", "48 hours ago",
        "2 days ago", "30 days ago",
    ]  # fmt: skip
    assert [size_of(n) for n in (0, 1023, 1024, 2**20 - 1, 2**20, 5 << 20)] == [
        "0 B", "1023 B", "1.0 KiB", "1024.0 KiB", "1.0 MiB", "5.0 MiB",
    ]  # fmt: skip


def test_one_entry_is_told_as_one(run: Run, home: Path) -> None:
    fill(1)
    assert "\n1 entry, " in run("cache", "list").output
    assert run("cache", "clear").output.startswith("removed 1 entry, ")
