"""Kernels of groups for GPUs: the code, executed by threads of the system, gives the interpreter's bits, and it assembles."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from assembling import AMD, EVERY_NVIDIA, NVIDIA, assemble, external, ptx
from drawn_groups import draw_group
from kept_results import kept_object
from running_kernels import bits
from threads_on_cpu import threads
from written_kernels import ITEM, Launch, whole

from firebrick.compiler.kernel import ArrayParameter, Atomic, Barrier, Function, Let, SharedArray, Shuffle, Store, interpret
from firebrick.compiler.targets.llvm.gpu_kernel import blocks, gpu_module
from firebrick.compiler.targets.llvm.host import emit_assembly
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import Expr, cast, local

nvidia = pytest.mark.parametrize("target", EVERY_NVIDIA.values(), ids=EVERY_NVIDIA)
amd = pytest.mark.parametrize("target", AMD.values(), ids=AMD)
BLOCK = 10
G, LANE = local("g", "int64"), local("i", "int64")


def agree(launch: Launch) -> None:
    want, found = ({n: x.copy() for n, x in launch.arrays.items()} for _ in range(2))
    fault = interpret(launch.function, want, launch.scalars, launch.grid, checked=False)
    assert threads(launch.function, found, launch.scalars, launch.grid, width=4) == fault
    for name, x in want.items():
        assert np.array_equal(bits(x), bits(found[name])), f"{name}\n{launch.function}"


def shuffled(width: int, group: int, value: Expr, dtype: str) -> Function:
    """A kernel whose items store the value of the item to the left, around the corner."""
    x, y = ArrayParameter("x", "int64"), ArrayParameter("y", dtype, "write")
    s = Shuffle("s", value, LANE - 1, width)
    store = Store("y", G * whole(group) + LANE, local("s", value.dtype))
    return Function(f"shuffled_{dtype}_{width}", (x, y), (), "i", (s, store), ("g",), group)


def reversed_by_shared() -> Function:
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
    s = SharedArray("s", "float32", 128)  # more than a subgroup of any GPU
    at = G * whole(128) + LANE
    body = (Store("s", LANE, x[at]), Barrier(), Store("y", at, s[whole(127) - LANE]))
    return Function("reversed_by_shared", (x, y), (), "i", body, ("g",), 128, (s,))


@pytest.mark.parametrize("block", range(4))
def test_threads_of_random_kernels_of_groups_have_the_bits_of_the_interpreter(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        agree(draw_group(seed))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(4, 100))
def test_threads_of_more_random_kernels_have_the_bits_of_the_interpreter(block: int) -> None:
    test_threads_of_random_kernels_of_groups_have_the_bits_of_the_interpreter(block)


@pytest.mark.parametrize("width", [2, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["int64", "float64", "float32", "uint8", "bool"])
def test_a_shuffle_of_any_width_and_dtype_gives_the_value_of_another_item(width: int, dtype: str) -> None:
    x = np.random.default_rng(width).integers(-(1 << 62), 1 << 62, 256)
    f = shuffled(width, 128, cast(ArrayParameter("x", "int64")[G * whole(128) + LANE], dtype), dtype)
    agree(Launch(f, {"x": x, "y": np.zeros(256, dtype)}, {}, (2, 128)))


def test_a_missing_barrier_is_seen_by_the_threads() -> None:
    f = reversed_by_shared()
    launch = Launch(f, {"x": np.arange(256, dtype=np.float32), "y": np.zeros(256, np.float32)}, {}, (2, 128))
    agree(launch)
    hasty = Function(f.name, f.arrays, (), "i", tuple(s for s in f.body if not isinstance(s, Barrier)), ("g",), 128, f.shared)
    found = {n: x.copy() for n, x in launch.arrays.items()}
    threads(hasty, found, {}, (2, 128))
    assert not np.array_equal(found["y"], launch.arrays["x"].reshape(2, 128)[:, ::-1].ravel())


def test_a_launch_has_blocks_for_each_row_of_items() -> None:
    f = Function("k", (ArrayParameter("y", "int64", "write"),), (), "i", (Store("y", ITEM, ITEM),), ("g",))
    assert blocks(f, (3, 65), 32) == 9
    assert blocks(f, (0, 65), 32) == blocks(f, (3, 0), 32) == 0
    assert blocks(reversed_by_shared(), (5, 128), 128) == 5


@nvidia
def test_random_kernels_of_groups_assemble_for_nvidia(target: Target, tmp_path: Path) -> None:
    text = ptx(gpu_module(named(25), target), target)
    assert not external(text)
    assemble(text, target, tmp_path, level=1)


@amd
def test_random_kernels_of_groups_become_objects_for_amd(target: Target) -> None:
    functions = named(25)
    image = kept_object(gpu_module(functions, target), target)
    assert all(f.name.encode() in image for f in functions)


def named(count: int) -> list[Function]:
    """Random kernels of groups with different names."""
    found = []
    for seed in range(count):
        f = draw_group(seed).function
        found.append(Function(f"{f.name}_{seed}", f.arrays, f.scalars, f.item, f.body, f.outer, f.group, f.shared))
    return found


def test_groups_use_the_instructions_of_nvidia() -> None:
    target = EVERY_NVIDIA["sm_75"]
    text = ptx(gpu_module([reversed_by_shared()], target), target)
    assert ".reqntid 128" in text
    assert re.search(r"st\.shared.*bar\.sync.*ld\.shared", text, re.DOTALL)
    x = ArrayParameter("x", "int64")[LANE]
    narrow, wide = (ptx(gpu_module([shuffled(w, 64, x, "int64")], target), target) for w in (32, 64))
    assert narrow.count("shfl.sync.idx") == 2
    assert "bar.sync" not in narrow
    assert "shfl" not in wide
    assert wide.count("bar.sync") == 2


def test_groups_use_the_instructions_of_amd() -> None:
    x = ArrayParameter("x", "int64")[LANE]
    for cpu, subgroup in (("gfx942", 64), ("gfx1100", 32)):
        target = AMD[cpu]
        text = emit_assembly(gpu_module([reversed_by_shared()], target), target)
        assert re.search(r"ds_(write|store)_b32.*s_barrier.*ds_(read|load)_b32", text, re.DOTALL)
        assert not re.search(r"flat_(load|store)", text)
        inside, outside = (
            emit_assembly(gpu_module([shuffled(w, 128, x, "int64")], target), target) for w in (subgroup, 2 * subgroup)
        )
        assert inside.count("ds_bpermute_b32") == 2
        assert "s_barrier" not in inside
        assert "ds_bpermute" not in outside
        assert outside.count("s_barrier") == 2


def test_float16_is_converted_by_instructions() -> None:
    x, y = ArrayParameter("x", "float16"), ArrayParameter("y", "float16", "write")
    f = Function("k", (x, y), (), "i", (Store("y", ITEM, x[ITEM] * x[ITEM + 1] + x[ITEM + 2]),))
    text = ptx(gpu_module([f], NVIDIA["sm_80"]), NVIDIA["sm_80"])
    assert text.count("cvt.f32.f16") == 3
    assert text.count("cvt.rn.f16.f32") == 1
    assert "mul.rn.f32" in text
    amd_text = emit_assembly(gpu_module([f], AMD["gfx942"]), AMD["gfx942"])
    assert "v_cvt_f32_f16" in amd_text
    assert "v_cvt_f16_f32" in amd_text
    numbers = np.concatenate([np.arange(0, 1 << 16, 7, dtype=np.uint16).view(np.float16)[:9000], np.float16([0, 1])])
    numbers[np.isnan(numbers)] = 0
    agree(Launch(f, {"x": numbers, "y": np.zeros(9000, np.float16)}, {}, 9000))


def test_atomic_operations_have_the_scope_of_their_array() -> None:
    y, s = ArrayParameter("y", "int32", "read_write"), SharedArray("s", "int32", 4)
    one = cast(LANE, "int32")
    body = (Store("s", LANE, one), Barrier(), Atomic("add", "s", whole(0), one), Atomic("max", "y", whole(0), one))
    text = gpu_module([Function("k", (y,), (), "i", body, (), 4, (s,))], NVIDIA["sm_80"])
    assert re.search(r'atomicrmw add .* syncscope\("block"\)', text)
    assert re.search(r'atomicrmw max .* syncscope\("device"\)', text)


def test_too_much_shared_memory_is_refused_with_its_size() -> None:
    s = SharedArray("s", "float64", 7000)
    f = Function("k", (), (), "i", (Store("s", LANE, cast(LANE, "float64")),), (), 64, (s,))
    assert gpu_module([f], AMD["gfx942"])
    with pytest.raises(KernelCompileError, match="at most 49152 bytes on sm_80") as e:
        gpu_module([f], NVIDIA["sm_80"])
    assert "56000 bytes: s: shared float64[7000]" in str(e.value)
    most = 49152 // 8
    for size in (most, most + 1):
        f = Function("k", (), (), "i", (Store("s", LANE, cast(LANE, "float64")),), (), 64, (SharedArray("s", "float64", size),))
        if size == most:
            assert gpu_module([f], NVIDIA["sm_80"])
        else:
            with pytest.raises(KernelCompileError, match="at most 49152 bytes"):
                gpu_module([f], NVIDIA["sm_80"])


def test_neighbours_at_an_aligned_address_are_one_access() -> None:
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
    read = [Let(f"x{k}", x[ITEM * 4 + k]) for k in range(4)]
    body = (*read, *(Store("y", ITEM * 4 + k, r.local) for k, r in enumerate(read)))
    f, target = Function("k", (x, y), (), "i", body), NVIDIA["sm_80"]
    assert "v4" not in ptx(gpu_module([f], target), target)
    text = ptx(gpu_module([f], target, alignment=16), target)
    assert "ld.global.v4.b32" in text
    assert "st.global.v4.b32" in text
