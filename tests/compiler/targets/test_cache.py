"""Objects on disk: what finds them, what is not trusted, size, processes at once, folders that cannot be used."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import firebrick as fb
from firebrick.compiler import cache
from firebrick.compiler.cache import CacheWarning, ObjectStore, pack, unpack
from firebrick.compiler.targets.llvm import host
from firebrick.compiler.targets.llvm.host import Options, Target, compile_ir

KEY = bytes(range(32))
IMAGE = b"an object" * 100


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of its own."""
    monkeypatch.setattr(cache, "store", ObjectStore())
    with fb.config.scope(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / "objects"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really compiled."""
    seen: list[str] = []
    real = host._emitted

    def counting(text: str, *rest: object) -> bytes:
        seen.append(text)
        return real(text, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "_emitted", counting)
    return seen


def answer(n: int) -> int:
    host._linked.clear()  # a module that still lives would be found without the cache
    text = f"define i64 @answer() {{\n  ret i64 {n}\n}}\n"
    return int(compile_ir(text).function("answer", ctypes.c_int64)())


def test_what_was_compiled_once_is_found_again(home: Path, compiled: list[str]) -> None:
    assert (answer(1), answer(1), answer(2), answer(1)) == (1, 1, 2, 1)
    assert len(compiled) == 2
    assert len(list(home.iterdir())) == 2


def test_the_key_is_all_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    target, options = Target.named("x86_64"), Options()
    keys = {
        cache.key("text", target, options),
        cache.key("texts", target, options),
        cache.key("text", replace(target, cpu="znver4"), options),
        cache.key("text", replace(target, features="+avx2"), options),
        cache.key("text", replace(target, triple="x86_64-pc-windows-msvc"), options),
        cache.key("text", replace(target, width_bits=256), options),
        cache.key("text", target, replace(options, speed=3)),
        cache.key("text", target, replace(options, passes=2)),
        cache.key("text", target, replace(options, unroll=True)),
    }
    monkeypatch.setattr(cache, "versions", lambda: ("0.49.0", "20.1.0"))
    keys.add(cache.key("text", target, options))
    monkeypatch.setattr(cache, "FORMAT", 99)
    keys.add(cache.key("text", target, options))
    assert len(keys) == 11


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda c: b"",
    "cut in the header": lambda c: c[:20],
    "cut in the object": lambda c: c[:-1],
    "longer": lambda c: c + b"\0",
    "one bit of the object": lambda c: c[:-5] + bytes([c[-5] ^ 1]) + c[-4:],
    "one bit of the check": lambda c: c[:70] + bytes([c[70] ^ 1]) + c[71:],
    "something else": lambda c: b"\x7fELF" + c,
    "another format": lambda c: c[:8] + b"\xff" + c[9:],
    "another key": lambda c: pack(hashlib.sha256(b"other").digest(), IMAGE, {}),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_rebuilt_and_said_so(home: Path, compiled: list[str], how: str) -> None:
    assert answer(3) == 3
    (path,) = home.iterdir()
    good = path.read_bytes()
    path.write_bytes(DAMAGE[how](good))
    with pytest.warns(CacheWarning, match="compiled again and the entry replaced"):
        assert answer(3) == 3
    assert len(compiled) == 2
    assert path.read_bytes() == good
    assert answer(3) == 3
    assert len(compiled) == 2  # the new one is used


def test_trouble_is_told_once(home: Path) -> None:
    for n in (4, 5):
        answer(n)
    for path in home.iterdir():
        path.write_bytes(b"rubbish")
    with pytest.warns(CacheWarning) as told:
        assert (answer(4), answer(5)) == (4, 5)
    assert len(told) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_an_entry_that_others_may_write_is_not_run(home: Path, compiled: list[str]) -> None:
    answer(6)
    (path,) = home.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.warns(CacheWarning, match="another user may write this entry"):
        assert answer(6) == 6
    assert len(compiled) == 2
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "place", [os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/dev/zero")], ids=["FIFO", "folder", "device"]
)
def test_what_is_no_regular_file_in_place_of_an_entry_is_said_and_not_waited_for(
    home: Path, place: Callable[[Path], None]
) -> None:
    key = bytes(range(32))
    home.mkdir(parents=True, exist_ok=True)
    place(home / (key.hex() + cache.SUFFIX))
    with pytest.warns(cache.CacheWarning, match="instead of a regular file"):
        assert cache.store.load(key) is None
    assert [e.facts for e in cache.store.entries()] == [{}]


@pytest.mark.parametrize("facts", [b"[]", b"{}", b'{"functions": 5}', b'{"functions": [5]}', b"[" * 900 + b"]" * 900])
def test_an_entry_with_other_facts_is_listed_as_not_valid(home: Path, facts: bytes) -> None:
    key, check = bytes(range(32)), hashlib.sha256(facts + b"code").digest()
    home.mkdir(parents=True, exist_ok=True)
    head = cache._HEADER.pack(cache._MAGIC, cache.FORMAT, key, len(facts), 4, check)
    (home / (key.hex() + cache.SUFFIX)).write_bytes(head + facts + b"code")
    assert [e.facts for e in cache.store.entries()] == [{}]


def test_an_entry_holds_what_was_put_in() -> None:
    assert unpack(pack(KEY, IMAGE, {"functions": ["f"]}), KEY) == (IMAGE, {"functions": ["f"]})
    assert unpack(pack(KEY, b"", {}), KEY) == (b"", {})


def test_an_entry_that_is_not_what_it_must_be_is_refused_with_the_reason() -> None:
    whole, size = pack(KEY, IMAGE, {}), len(IMAGE) + 2
    other = bytes(b ^ 1 for b in KEY)
    cases = [
        (whole[: cache._HEADER.size - 1], KEY, "not an entry of Firebrick's cache, or cut short"),
        (b"x" + whole[1:], KEY, "not an entry of Firebrick's cache, or cut short"),
        (whole, other, "an entry of another key"),
        (whole[:-1], KEY, f"{size - 1} bytes in place of {size}"),
        (whole + b"x", KEY, f"{size + 1} bytes in place of {size}"),
        (whole[: cache._HEADER.size], KEY, f"0 bytes in place of {size}"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), KEY, "its content is damaged"),
    ]
    for content, key, reason in cases:
        with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
            unpack(content, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "FORMAT", cache.FORMAT + 1)
        with pytest.raises(ValueError, match=rf"^an entry of format {cache.FORMAT - 1}, not {cache.FORMAT}$"):
            unpack(whole, KEY)


def test_what_was_used_longest_ago_makes_room(home: Path) -> None:
    size = len(pack(KEY, IMAGE, {}))
    keys = [bytes([n]) * 32 for n in range(6)]
    with fb.config.scope(cache_size=5 * size):
        for n, key in enumerate(keys[:5]):
            cache.store.save(key, IMAGE)
            os.utime(home / (key.hex() + cache.SUFFIX), (1000 + n, 1000 + n))
        assert cache.store.load(keys[0]) == IMAGE  # used now
        cache.store.save(keys[5], IMAGE)
    left = [k for k in keys if cache.store.load(k) is not None]
    assert left == [keys[0], keys[3], keys[4], keys[5]]
    with fb.config.scope(cache_size=size - 1):
        cache.store.save(KEY, IMAGE)  # larger than all there may be
    assert cache.store.load(KEY) is None


def test_an_entry_that_cannot_be_removed_stays_and_others_make_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(pack(KEY, IMAGE, {}))
    keys = [bytes([n]) * 32 for n in range(6)]
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith(keys[0].hex()):
            raise PermissionError
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    with fb.config.scope(cache_size=5 * size):
        for n, key in enumerate(keys):
            cache.store.save(key, IMAGE)
            os.utime(home / (key.hex() + cache.SUFFIX), (1000 + n, 1000 + n))
    assert [k for k in keys if cache.store.load(k) is not None] == [keys[0], keys[3], keys[4], keys[5]]


def test_an_entry_that_cannot_be_put_in_place_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "no space")

    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, refused)
    for name in ("replace", "rename"):
        monkeypatch.setattr(Path, name, refused)
    with pytest.warns(cache.CacheWarning, match="is not kept in .*: no space; it is compiled again"):
        cache.store.save(KEY, IMAGE)
    assert list(home.iterdir()) == []
    monkeypatch.undo()
    cache.store.check_writable()
    assert list(home.iterdir()) == []


def test_an_entry_that_another_process_removes_is_not_counted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [bytes([n]) * 32 for n in range(3)]
    for key in keys:
        cache.store.save(key, IMAGE)
    unlink = Path.unlink

    def gone(path: Path, missing_ok: bool = False) -> None:
        unlink(path)
        if path.name.startswith(keys[1].hex()):
            raise FileNotFoundError

    monkeypatch.setattr(Path, "unlink", gone)
    assert cache.store.clear() == (2, 2 * len(pack(KEY, IMAGE, {})))


def test_a_folder_that_cannot_be_listed_has_no_entries(home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("a file")
    assert list(cache.store.entries()) == []


def test_temporary_files_of_dead_writers_go_and_those_of_living_ones_stay(home: Path) -> None:
    home.mkdir(parents=True)
    (home / ".writing-old").write_bytes(b"half")
    os.utime(home / ".writing-old", (time.time() - 7200,) * 2)
    (home / ".writing-new").write_bytes(b"half")
    (home / "README").write_text("not ours")
    cache.store.save(KEY, IMAGE)
    assert sorted(p.name for p in home.iterdir()) == [".writing-new", KEY.hex() + cache.SUFFIX, "README"]
    assert cache.store.clear() == (1, len(pack(KEY, IMAGE, {})))
    assert sorted(p.name for p in home.iterdir()) == [".writing-new", "README"]


def test_a_full_disk_leaves_no_half_entry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        cache.store.save(KEY, IMAGE)
    assert list(home.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_once_and_code_runs(home: Path, compiled: list[str]) -> None:
    home.parent.mkdir()
    home.write_text("a file where the folder should be")
    with pytest.warns(CacheWarning, match="FIREBRICK_CACHE_DIR") as told:
        assert (answer(7), answer(8), answer(7)) == (7, 8, 7)
    assert len([w for w in told if "is not kept in" in str(w.message)]) == 1
    assert len(compiled) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_folder_that_is_only_read_still_serves(home: Path, tmp_path: Path) -> None:
    code = """
import ctypes, os, warnings
import firebrick as fb
from firebrick.compiler.targets.llvm import host
with fb.config.scope(cache_dir="off"):
    host.compile_ir("define void @f() {\\n  ret void\\n}\\n")  # everything is loaded
if os.getuid() == 0:
    os.setuid(65534)  # permissions do not bind the administrator
real, count = host._emitted, []
host._emitted = lambda *a: count.append(1) or real(*a)
for n in (1, 2):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        m = host.compile_ir(f"define i64 @f() {{\\n  ret i64 {n}\\n}}\\n")
    print(len(count), m.function("f", ctypes.c_int64)(), [str(w.message).split(":")[1].split(";")[0] for w in told])
"""
    environment = {**os.environ, "FIREBRICK_CACHE_DIR": str(home.parent)}
    compile_ir("define i64 @f() {\n  ret i64 1\n}\n")
    (entry,) = home.iterdir()
    entry.chmod(0o644)
    for folder in (home, home.parent):
        folder.chmod(0o555)
    for above in (tmp_path, *tmp_path.parents) if os.getuid() == 0 else ():
        if Path(tempfile.gettempdir()) in above.parents:  # who is not the administrator must be let in
            above.chmod(above.stat().st_mode | 0o011)
    try:
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        for folder in (home, home.parent):
            folder.chmod(0o755)
    assert run.stdout.splitlines() == ["0 1 []", "1 2 [' Permission denied']"], run.stderr
    assert len(list(home.iterdir())) == 1


def test_entries_of_a_folder_serve_when_their_time_of_use_cannot_be_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store.save(KEY, IMAGE)

    def refused(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    assert cache.store.load(KEY) == IMAGE


def test_off_keeps_nothing(home: Path, compiled: list[str]) -> None:
    with fb.config.scope(cache_dir="off"):
        assert cache.folder() is None
        assert (answer(11), answer(11)) == (11, 11)
        assert cache.store.entries() == []
        assert cache.store.clear() == (0, 0)
    assert len(compiled) == 2
    assert not home.exists()


def test_the_folder_is_the_systems_place_for_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fb.config.cache_dir = ""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "firebrick" / "objects"
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "me")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == tmp_path / "me" / ".cache" / "firebrick" / "objects"
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == tmp_path / "me" / "Library" / "Caches" / "firebrick" / "objects"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.folder() == tmp_path / "local" / "firebrick" / "objects"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", homeless)
    assert cache.folder() is None


def test_processes_that_write_the_same_entries_at_once_all_find_whole_ones(home: Path) -> None:
    code = """
import sys
from firebrick.compiler import cache
import warnings
warnings.simplefilter("error")
bad = 0
for r in range(300):
    key = bytes([r % 7]) * 32
    image = bytes([r % 7]) * 50_000
    cache.store.save(key, image)
    found = cache.store.load(key)
    bad += found is not None and found != image
print(bad)
"""
    environment = {**os.environ, "FIREBRICK_CACHE_DIR": str(home.parent), "FIREBRICK_CACHE_SIZE": "250000"}
    crowd = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, stderr=-1, text=True) for _ in range(3)]
    for process in crowd:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "0"), err
    assert 0 < len(cache.store.entries()) <= 5
    assert not [p for p in home.iterdir() if p.name.startswith(".writing-")]


def test_two_processes_run_the_same_code_cold_and_cached(home: Path) -> None:
    code = """
import ctypes
from firebrick.compiler.targets.llvm import host
from firebrick.compiler import cache
real, count = host._emitted, []
host._emitted = lambda *a: count.append(1) or real(*a)
m = host.compile_ir("define i64 @f() {\\n  ret i64 12\\n}\\n")
print(len(count), m.function("f", ctypes.c_int64)())
"""
    environment = {**os.environ, "FIREBRICK_CACHE_DIR": str(home.parent)}
    found = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True)
        for _ in range(2)
    ]
    assert [f.stdout.split() for f in found] == [["1", "12"], ["0", "12"]]
