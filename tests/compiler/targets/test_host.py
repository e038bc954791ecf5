"""Compiling text to functions: targets, errors, how long code stays in memory, several threads."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import llvmlite.binding
import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.targets.llvm import host, target
from firebrick.compiler.targets.llvm.host import (
    AS_WRITTEN,
    Options,
    Target,
    compile_ir,
    compile_many,
    defined,
    emit_assembly,
    emit_ir,
    emit_object,
)
from firebrick.core.errors import ConfigError, KernelCompileError, UnsupportedError

TRIPLE = """
define void @triple(ptr %x) {
  %v = load <16 x float>, ptr %x, align 4
  %m = fmul <16 x float> %v, splat (float 3.0)
  %a = fadd <16 x float> %m, splat (float 1.5)
  store <16 x float> %a, ptr %x, align 4
  ret void
}
"""
WIDEST = Target.host().width_bits


def number(n: int, name: str = "number") -> str:
    return f"define i64 @{name}() {{\n  ret i64 {n}\n}}\n"


@pytest.mark.parametrize("width", [w for w in (128, 256, 512) if w <= WIDEST])
def test_code_of_every_width_this_machine_has_runs_and_gives_the_same(width: int) -> None:
    target = Target.host(width)
    assert target.width_bits == width
    x = np.arange(16, dtype=np.float32)
    compile_ir(TRIPLE, target).function("triple", None, ctypes.c_void_p)(x.ctypes.data)
    assert (x == np.arange(16, dtype=np.float32) * 3 + np.float32(1.5)).all()


def test_a_loop_over_a_long_chain_of_values_that_are_used_twice_is_compiled() -> None:
    """A search for loops that compute a CRC took twice as long for each step of the chain."""
    chain = [f"  %y{k} = fadd double %x{k}, 3.5\n  %x{k + 1} = fmul double %y{k}, %x{k}" for k in range(60)]
    text = "\n".join([
        "define double @least(ptr %p) {\nentry:\n  br label %loop\nloop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %s = phi double [ 1.0, %entry ], [ %t, %loop ]",
        "  %a = getelementptr double, ptr %p, i64 %i\n  %x0 = load double, ptr %a", *chain,
        "  %less = fcmp olt double %x60, %s\n  %t = select i1 %less, double %x60, double %s",
        "  %next = add nuw nsw i64 %i, 1\n  %end = icmp eq i64 %next, 256\n  br i1 %end, label %out, label %loop",
        "out:\n  ret double %t\n}\n",
    ])  # fmt: skip
    code = f"from firebrick.compiler.targets.llvm import host\nprint(len(host.emit_object({text!r}, host.Target.host())) > 100)"
    done = python(code)  # which is given up after two minutes
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("arch", "width", "uses", "never"),
    [
        ("x86_64", 512, "zmm", "xmm16"),
        ("x86_64", 256, "ymm", "zmm"),
        ("x86_64", 128, "xmm", "ymm"),
        ("aarch64", 0, ".4s", "mm"),
    ],
)
def test_code_for_other_machines_uses_their_registers_and_no_wider_ones(arch: str, width: int, uses: str, never: str) -> None:
    text = emit_assembly(TRIPLE, Target.named(arch, width))
    assert uses in text
    assert never not in text
    assert emit_object(TRIPLE, Target.named(arch, width))[:4] == b"\x7fELF"
    assert f'target triple = "{Target.named(arch, width).triple}"' in emit_ir(TRIPLE, Target.named(arch, width))


def test_products_and_sums_are_only_fused_where_the_text_allows_it() -> None:
    target = Target.named("x86_64", 256)
    assert "fmadd" not in emit_assembly(TRIPLE, target)
    allowed = TRIPLE.replace("fmul", "fmul contract").replace("fadd", "fadd contract")
    assert "fmadd" in emit_assembly(allowed, target)


def test_a_target_tells_generators_what_they_need() -> None:
    wide, narrow, arm = Target.named("x86_64"), Target.named("x86_64", 128), Target.named("aarch64")
    assert [t.lanes(32) for t in (wide, narrow, arm)] == [16, 4, 4]
    assert [t.lanes(64) for t in (wide, narrow, arm)] == [8, 2, 2]
    assert [t.registers for t in (wide, narrow, arm)] == [32, 16, 32]
    assert [t.fma for t in (wide, narrow, arm)] == [True, False, True]
    assert wide.has("avx512f")
    assert not narrow.has("avx2")
    assert narrow.lanes(1) == 16
    assert Target.named("sm_80") == Target("nvptx64-nvidia-cuda", "sm_80", "", 32)
    assert Target.named("gfx90a") == Target("amdgcn-amd-amdhsa", "gfx90a", "", 32)
    with pytest.raises(ConfigError, match=r"or a GPU such as sm_80 or gfx90a\nReceived: sparc"):
        Target.named("sparc")


def test_the_setting_forces_a_width() -> None:
    with fb.config.scope(cpu_vector_bits=128):
        assert Target.host().width_bits == 128
        assert not Target.host().has("avx2")
    assert Target.host().width_bits == WIDEST
    with pytest.raises(fb.ConfigError, match="cpu_vector_bits is one of 0, 128, 256, 512"):
        fb.config.cpu_vector_bits = 64


def test_a_width_the_machine_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", dict)
    target._host.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="vectors of at most 128 bits"):
            Target.host(512)
    finally:
        target._host.cache_clear()


def test_text_that_is_not_valid_is_an_error_with_the_line() -> None:
    with pytest.raises(KernelCompileError, match=r"use of undefined value '%y'.*\(line 2: %x = add i32 1, %y\)"):
        compile_ir("define void @f() {\n  %x = add i32 1, %y\n  ret void\n}\n")
    with pytest.raises(KernelCompileError, match="valid LLVM IR"):  # well formed, and wrong: an entry block is no target
        compile_ir("define void @f() {\na:\n  br label %a\n}\n")


def test_a_function_that_is_nowhere_is_an_error_with_its_name() -> None:
    text = "declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}\n"
    with pytest.raises(KernelCompileError, match="declared and not found: nowhere"):
        compile_ir(text)
    callee = compile_ir(number(1, "nowhere"))
    assert compile_ir(text, imports={"nowhere": callee["nowhere"]}, keep=[callee])["f"]
    with pytest.raises(KernelCompileError, match="define the exported functions"):
        host.link([emit_object(number(2), Target.host())], ["other"])


def test_several_texts_become_one_module_and_may_call_each_other() -> None:
    caller = "declare i64 @callee()\ndefine i64 @caller() {\n  %r = call i64 @callee()\n  ret i64 %r\n}\n"
    module = compile_many([caller, number(6, "callee"), number(7), caller])
    assert [module.function(n, ctypes.c_int64)() for n in ("caller", "callee", "number")] == [6, 6, 7]
    assert compile_many([]).addresses == {}
    with pytest.raises(KernelCompileError, match="define the exported functions"):
        compile_many([number(8), number(9)])  # one name, twice
    with pytest.raises(KernelCompileError, match="declared and not found: callee"):
        compile_many([caller, number(1)])


def test_functions_of_the_process_are_found() -> None:
    text = (
        "declare double @cos(double)\ndefine double @f(double %x) {\n  %y = call double @cos(double %x)\n  ret double %y\n}\n"
    )
    assert compile_ir(text).function("f", ctypes.c_double, ctypes.c_double)(0.0) == 1.0


def test_only_visible_definitions_are_exported() -> None:
    text = (
        number(1, "a") + "define internal i64 @hidden() {\n  ret i64 0\n}\n" + number(2, '"odd name"') + "declare void @no()\n"
    )
    assert defined(text) == ("a", "odd name")
    module = compile_ir(text)
    assert set(module.addresses) == {"a", "odd name"}
    assert module.function("odd name", ctypes.c_int64)() == 2


def test_code_lives_as_long_as_a_callable_and_no_longer() -> None:
    module = compile_ir(number(77))
    function = module.function("number", ctypes.c_int64)
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is not None
    assert function() == 77
    del function
    gc.collect()
    assert alive() is None


def test_a_module_keeps_those_it_calls() -> None:
    callee = compile_ir(number(5, "callee"))
    alive = weakref.ref(callee)
    text = "declare i64 @callee()\ndefine i64 @f() {\n  %r = call i64 @callee()\n  ret i64 %r\n}\n"
    module = compile_ir(text, imports={"callee": callee["callee"]}, keep=[callee])
    del callee
    gc.collect()
    assert alive() is not None
    assert module.function("f", ctypes.c_int64)() == 5
    del module
    gc.collect()
    assert alive() is None


def test_the_same_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = compile_ir(number(78))
    monkeypatch.setattr(host, "emit_object", None)
    monkeypatch.setattr(host, "link", None)
    assert compile_ir(number(78)) is one
    with pytest.raises(TypeError):  # and what is new is not
        compile_ir(number(79))


def test_objects_are_the_same_each_time_and_differ_by_target_and_options() -> None:
    target = Target.host()
    assert emit_object(TRIPLE, target) == emit_object(TRIPLE, target)
    assert emit_object(TRIPLE, target) != emit_object(TRIPLE, Target.host(128)) or target.width_bits == 128
    loop = """
define void @f(ptr %x) {
entry:
  br label %l
l:
  %i = phi i64 [ 0, %entry ], [ %n, %l ]
  %p = getelementptr i64, ptr %x, i64 %i
  store i64 %i, ptr %p
  %n = add i64 %i, 1
  %m = icmp slt i64 %n, 1024
  br i1 %m, label %l, label %e
e:
  ret void
}
"""
    assert "<" not in emit_ir(loop, target).split("define")[1]
    assert "x i64>" in emit_ir(loop, target, Options(vectorize=True))


def test_threads_may_compile_at_once() -> None:
    answers: dict[int, int] = {}

    def work(first: int) -> None:
        for n in range(first, first + 5):
            answers[n] = compile_ir(number(n, f"f{n}")).function(f"f{n}", ctypes.c_int64)()

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {n: n for k in range(1, 5) for n in range(1000 * k, 1000 * k + 5)}


def python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_importing_firebrick_does_not_load_llvm() -> None:
    result = python("import sys, firebrick; print([m for m in sys.modules if 'llvmlite' in m])")
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(PR_SET_MDWE) of Linux, which forbids code in memory")
def test_where_code_in_memory_is_forbidden_the_error_says_what_to_do() -> None:
    result = python(
        """
import ctypes
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    print("cannot forbid")
    raise SystemExit
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.core.errors import KernelCompileError
try:
    compile_ir("define void @f() {\\n  ret void\\n}\\n")
except KernelCompileError as e:
    print(e)
"""
    )
    assert result.returncode == 0, result.stderr
    if "cannot forbid" in result.stdout:
        pytest.skip("this Linux cannot forbid it (before 6.3)")
    assert "refuses to make memory executable: Permission denied" in result.stdout
    assert "FIREBRICK_DEVICE=numpy" in result.stdout


def test_a_text_may_say_that_nothing_is_to_be_gained_by_passes() -> None:
    text = "define i64 @twice(i64 %x) {\n  %a = add i64 %x, 0\n  %b = add i64 %a, %a\n  ret i64 %b\n}\n"
    assert "add i64 %x, 0" not in emit_ir(text, Target.host())
    assert "add i64 %x, 0" in emit_ir(AS_WRITTEN + text, Target.host())
    for t in (text, AS_WRITTEN + text):
        assert compile_ir(t).function("twice", ctypes.c_int64, ctypes.c_int64)(21) == 42


def test_objects_are_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [number(k, f"number{k}") for k in range(9)]
    target = Target.host()
    want = [host.emit_object(text, target) for text in texts]
    assert len(set(want)) == len(texts)
    users: set[int] = set()
    emitted = host._emitted

    def noted(*args: Any) -> bytes:
        users.add(threading.get_ident())
        return emitted(*args)

    monkeypatch.setattr(host, "_emitted", noted)
    for threads in (1, 2, 5):
        with fb.config.scope(num_threads=threads):
            assert host.emit_objects(texts, target) == want
        if threads == 1:
            assert users == {threading.get_ident()}

    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with fb.config.scope(num_threads=5):
        assert host.emit_objects(texts, target) == want
    assert host.emit_objects([], target) == []


@pytest.mark.parametrize("threads", [1, 4])
def test_one_wrong_text_of_several_is_reported_and_nothing_is_left_behind(threads: int) -> None:
    texts = [*(number(k, f"number{k}") for k in range(6)), "define i64 @wrong() {\n  ret i32 0\n}\n"]
    with fb.config.scope(num_threads=threads):
        for _ in range(3):
            with pytest.raises(KernelCompileError, match="valid LLVM IR") as caught:
                host.emit_objects(texts, Target.host())
            del caught
            gc.collect()
        assert all(host.emit_objects(texts[:-1], Target.host()))
    assert not [t for t in threading.enumerate() if t.name.startswith("Thread-") and "work" in t.name]


def test_an_interrupt_ends_a_compilation_when_all_threads_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [number(k, f"number{k}") for k in range(40)]
    emitted, done = host._emitted, threading.Event()

    def slow(*args: Any) -> bytes:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.05)
            raise KeyboardInterrupt
        time.sleep(0.2)
        done.set()
        return emitted(*args)

    monkeypatch.setattr(host, "_emitted", slow)
    before = threading.active_count()
    with fb.config.scope(num_threads=3), pytest.raises(KeyboardInterrupt):
        host.emit_objects(texts, Target.host())
    assert done.is_set()
    assert threading.active_count() == before
    monkeypatch.undo()
    with fb.config.scope(num_threads=3):
        assert all(host.emit_objects(texts, Target.host()))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_any_type_is_raised_and_no_object_is_empty(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> bytes:
        raise IndexError("of the code generator")

    monkeypatch.setattr(host, "_emitted", fails)
    with fb.config.scope(num_threads=threads), pytest.raises(IndexError, match="of the code generator"):
        host.emit_objects([number(k, f"number{k}") for k in range(4)], Target.host())


def test_pass_managers_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM keeps 30 KiB for each one that is not."""
    freed: list[bool] = []
    dispose = host._dispose

    def noted(passes: Any) -> None:
        before = passes.closed
        dispose(passes)
        freed.append(passes.closed and not before)

    monkeypatch.setattr(host, "_dispose", noted)
    emit_ir(TRIPLE, Target.host())
    emit_assembly(TRIPLE, Target.host())
    assert freed == [True] * len(freed)
    assert len(freed) == 2
    calls: list[Any] = []
    monkeypatch.setattr(
        llvmlite.binding.ffi, "lib", type("Lib", (), {"LLVMPY_DisposeNewModulePassManger": lambda _, x: calls.append(x)})()
    )

    class Passes:
        """As of a version of llvmlite whose ``close`` frees nothing."""

        _dispose = llvmlite.binding.ffi.ObjectRef._dispose

        def detach(self) -> None:
            calls.append("detached")

        def close(self) -> None:
            calls.append("closed")

    class Freed(Passes):
        def _dispose(self) -> None: ...

    for made in (Passes(), Freed()):
        dispose(made)  # type: ignore[arg-type]
    assert calls[1:] == ["detached", "closed", "closed"]
    assert isinstance(calls[0], Passes)
