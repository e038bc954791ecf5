"""Kernels printed for machines that are not here: PTX that assembles, objects for GPUs and for other processors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import assembling
import numpy as np
import pytest
from assembling import AMD, NVIDIA, PROCESSORS, assemble, external, object_for, ptx
from drawn_kernels import draw
from kept_results import kept_object
from running_kernels import bits
from threads_on_cpu import threads
from written_kernels import ITEM, WRITTEN, saxpy, whole

from firebrick.compiler.kernel import ArrayParameter, Function, Store, interpret
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.host import emit_assembly
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.scalar_kernel import cpu_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar import expr
from firebrick.scalar.expr import DTYPES, FLOATS, Expr, binary, bitcast, cast, philox, unary

nvidia = pytest.mark.parametrize("target", NVIDIA.values(), ids=NVIDIA)
amd = pytest.mark.parametrize("target", AMD.values(), ids=AMD)


def kernels() -> list[Function]:
    return [make().function for make in WRITTEN.values()] + [draw(seed).function for seed in range(30)]


def ops_of(name: str) -> Function:
    """A kernel that stores the value of every scalar op of a dtype, and every cast from it."""
    outputs = {d: ArrayParameter(f"out_{d}", d, "write") for d in DTYPES}
    x, y = ArrayParameter("x", name), ArrayParameter("y", name)
    a, b = x[ITEM], y[ITEM]
    found: list[Expr] = [cast(a, d) for d in DTYPES if d != name]
    found += [bitcast(a, d) for d in DTYPES if d != name and expr.BITS[d] == expr.BITS[name]]
    for op, taken in expr._SAME.items():
        if name in taken and op != "scale":
            count = expr._COUNT.get(op, 2)
            found.append(unary(op, a) if count == 1 else binary(op, a, b) if count == 2 else expr.fma(a, b, a))
    if name in FLOATS:
        found.append(expr.scale(a, expr.minimum(unary("rint", b), 20.0)))
    if name == "uint32":
        found.append(philox([a, b, a, b], ITEM))
    found += [expr.select(expr.ne(a, b), a, b), expr.rarely(expr.eq(a, b), a, b)]
    body = tuple(Store(f"out_{e.dtype}", ITEM * whole(len(found)) + k, e) for k, e in enumerate(found))
    return Function(f"ops_of_{name}", (x, y, *outputs.values()), (), "i", body)


@nvidia
def test_kernels_assemble_for_nvidia(target: Target, tmp_path: Path) -> None:
    text = ptx(gpu_module(kernels(), target), target)
    assert not external(text)
    assert len(re.findall(r"^\.visible \.entry", text, re.MULTILINE)) == len(kernels())
    assert assemble(text, target, tmp_path).startswith(b"\x7fELF")


@nvidia
def test_every_scalar_op_of_every_dtype_assembles_for_nvidia(target: Target, tmp_path: Path) -> None:
    text = ptx(gpu_module([ops_of(d) for d in DTYPES], target), target)
    assert not external(text)
    assemble(text, target, tmp_path)


@amd
def test_kernels_become_objects_for_amd(target: Target) -> None:
    for functions in (kernels(), [ops_of(d) for d in DTYPES]):
        image = kept_object(gpu_module(functions, target), target)
        assert image.startswith(b"\x7fELF")
        assert all(f.name.encode() in image for f in functions)


@pytest.mark.parametrize("name", PROCESSORS)
def test_kernels_become_objects_for_other_processors(name: str) -> None:
    functions = [*kernels(), *(ops_of(d) for d in DTYPES)]
    image = object_for(name, module_text([cpu_kernel(f, PROCESSORS[name]) for f in functions]))
    assert all(f.name.encode() in image for f in functions)


def test_an_assembler_that_refuses_fails_the_test(tmp_path: Path) -> None:
    target = NVIDIA["sm_80"]
    good = ptx(gpu_module([saxpy().function], target), target)
    for bad in (good.replace("ld.global", "ld.globe", 1), good.replace("add.rn.f32", "add.rn.f64", 1)):
        assert bad != good
        with pytest.raises(AssertionError, match="ptxas for sm_80"):
            assemble(bad, target, tmp_path)


def test_a_missing_assembler_is_a_skip_by_name_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "_ptxas", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="ptxas cannot be used here: install the wheel nvidia-cuda-nvcc"):
        assembling.ptxas()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="ptxas cannot be used here"):
        assembling.ptxas()


@nvidia
def test_arithmetic_of_a_gpu_is_rounded_at_each_operation(target: Target) -> None:
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
    a = x[ITEM]
    f = Function("k", (x, y), (), "i", (Store("y", ITEM, expr.sqrt(a * a + a) / a),))
    text = ptx(gpu_module([f], target), target)
    for rounded in ("mul.rn.f32", "add.rn.f32", "sqrt.rn.f32", "div.rn.f32"):
        assert rounded in text
    assert "fma" not in text
    assert "ftz" not in text
    once = ptx(gpu_module([Function("k", (x, y), (), "i", (Store("y", ITEM, expr.fma(a, a, a)),))], target), target)
    assert "fma.rn.f32" in once
    assert "f64" not in once


@amd
def test_arithmetic_of_amds_gpus_is_rounded_at_each_operation_and_keeps_denormals(target: Target) -> None:
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
    a = x[ITEM]
    text = emit_assembly(gpu_module([Function("k", (x, y), (), "i", (Store("y", ITEM, a * a + a),))], target), target)
    assert "v_mul_f32" in text
    assert "v_add_f32" in text
    assert not re.search(r"v_(fma|fmac|mad|mac)_f32|flat_(load|store)", text)
    assert ".amdhsa_float_denorm_mode_32 3" in text


@nvidia
def test_memory_of_a_gpu_is_read_and_written_as_global(target: Target) -> None:
    text = ptx(gpu_module(kernels(), target), target)
    assert set(re.findall(r"\b(?:ld|st)\.\w+", text)) == {"ld.global", "ld.param", "st.global"}


def test_threads_beyond_the_grid_do_nothing() -> None:
    text = ptx(gpu_module([saxpy().function], NVIDIA["sm_80"]), NVIDIA["sm_80"])
    guard = re.search(r"setp\.ge\.s64\s+(%p\d+), %rd\d+, %rd\d+;\s+@\1 bra\s+(\S+);", text)
    assert guard is not None
    assert text.index("ld.global") > guard.end()
    assert text.index("ret;") > text.index(f"{guard[2]}:")


@pytest.mark.parametrize("width", [1, 7, 32])
def test_threads_of_a_gpu_compute_what_the_interpreter_does(width: int) -> None:
    launches = [make() for name, make in WRITTEN.items() if name != "halves"] + [draw(seed) for seed in range(15)]
    for launch in launches:
        one, other = ({name: x.copy() for name, x in launch.arrays.items()} for _ in range(2))
        fault = interpret(launch.function, one, launch.scalars, launch.grid)
        reported = threads(launch.function, other, launch.scalars, launch.grid, width, first=width)
        assert reported == (fault and replace(fault, site=width + fault.site))
        for name, x in one.items():
            assert np.array_equal(bits(x), bits(other[name])), f"{name}\n{launch.function}"


def test_printed_kernels_have_no_vectors() -> None:
    for f in [*kernels(), *(ops_of(d) for d in DTYPES)]:
        printed = cpu_kernel(f, Target.host())
        assert not re.search(r"<\d+ x ", printed.text + " ".join(printed.declarations)), f.name
        assert not re.search(r"<\d+ x ", gpu_module([f], NVIDIA["sm_80"])), f.name
