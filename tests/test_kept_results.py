from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kept_results
import pytest
from kept_results import code_generator, kept, kept_assembly, kept_object

import firebrick as fb
from firebrick.compiler.cache import CacheWarning
from firebrick.compiler.targets.llvm.host import emit_assembly, emit_object
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import KernelCompileError

TEXT = "define i64 @one() {\n  ret i64 1\n}\n"


@pytest.fixture(autouse=True)
def empty(tmp_path: Path) -> Any:
    """An empty folder for compiled code."""
    with fb.config.scope(cache_dir=str(tmp_path)):
        yield


def counted(result: bytes) -> tuple[Callable[[], bytes], list[int]]:
    """A function that returns the result, and a list that grows with each call."""
    calls: list[int] = []

    def make() -> bytes:
        calls.append(1)
        return result

    return make, calls


def test_a_result_is_made_once_for_the_same_parts_and_again_for_any_other() -> None:
    make, calls = counted(b"result")
    for _ in range(2):
        assert kept(("tool", ["--level", "3"], "text"), make) == b"result"
    assert len(calls) == 1
    third = ["--level", "3"]
    for other in (("tool", ["--level", "2"], "text"), ("tool", third, "other"), ("tool", third, "te", "xt")):
        before = len(calls)
        assert kept(other, make) == b"result"
        assert len(calls) == before + 1


def test_what_fails_is_tried_again() -> None:
    def fail() -> bytes:
        raise AssertionError("refused")

    for _ in range(2):
        with pytest.raises(AssertionError, match="refused"):
            kept(("text",), fail)
    make, calls = counted(b"")
    assert kept(("text",), make) == b""
    assert calls == [1]


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    make, calls = counted(b"result")
    kept(("text",), make)
    (entry,) = tmp_path.rglob("*.fbo")
    content = bytearray(entry.read_bytes())
    content[-1] ^= 1
    entry.write_bytes(content)
    with pytest.warns(CacheWarning, match="damaged"):
        assert kept(("text",), make) == b"result"
    assert calls == [1, 1]


def test_kept_code_is_that_of_the_code_generator_and_wrong_code_is_refused_each_time() -> None:
    for target in (Target.host(), Target.named("aarch64")):
        for _ in range(2):
            assert kept_object(TEXT, target) == emit_object(TEXT, target)
            assert kept_assembly(TEXT, target) == emit_assembly(TEXT, target)
    assert kept_object(TEXT, Target.host()) != kept_object(TEXT.replace("1\n", "2\n"), Target.host())
    for _ in range(2):
        with pytest.raises(KernelCompileError):
            kept_object(TEXT.replace("ret i64", "ret i32"), Target.host())


def test_targets_that_differ_in_features_alone_have_objects_of_their_own() -> None:
    text = "define <4 x i32> @f(<4 x i32> %x, <4 x i32> %y) {\n  %z = mul <4 x i32> %x, %y\n  ret <4 x i32> %z\n}\n"
    plain, wider = (Target("x86_64-unknown-linux-gnu", "x86-64", features, 128) for features in ("", "+sse4.1"))
    assert str(plain) == str(wider)
    assert kept_assembly(text, plain) == emit_assembly(text, plain)
    assert kept_assembly(text, wider) == emit_assembly(text, wider) != emit_assembly(text, plain)


def test_changed_sources_of_the_code_generator_make_objects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_object(TEXT, Target.host())
    monkeypatch.setattr(kept_results.host, "emit_object", lambda *args: b"other")
    assert kept_object(TEXT, Target.host()) != b"other"
    monkeypatch.setattr(kept_results, "code_generator", lambda: (*code_generator(), "changed"))
    assert kept_object(TEXT, Target.host()) == b"other"
