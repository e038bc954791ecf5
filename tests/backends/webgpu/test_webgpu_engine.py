"""Devices, memory, programs and errors of the engine ``webgpu``."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu import engine
from firebrick.backends.webgpu.adapters import adapters
from firebrick.backends.webgpu.buffers import LEAST, BufferPool, size_class
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import CompiledGroup, Groups, default_launches
from firebrick.backends.webgpu.lowering import LoweredGroup
from firebrick.backends.webgpu.replay import LEAST as LONG_TABLE
from firebrick.backends.webgpu.replay import LaunchTable
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.testing.large import check_large

GPU = "webgpu:0"
libc = ctypes.CDLL(None)


def on_gpu(x: object) -> fb.Tensor:
    return fb.asarray(x, device=GPU)


def test_an_adapter_has_the_name_of_its_api_as_well() -> None:
    api = adapters()[0].api
    assert fb.device(f"{api}:0") is fb.device(api) is fb.device(GPU)
    assert fb.zeros(2, device=api).device.name == GPU
    other = next(name for name in ("vulkan", "metal", "dx12") if name != api)
    if not any(a.api == other for a in adapters()):
        with pytest.raises(fb.DeviceError, match=rf"webgpu has 0 device\(s\) by the name of {other}"):
            fb.device(f"{other}:0")


def test_the_forms_of_a_graph_are_those_that_a_device_runs() -> None:
    def step(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        return fb.softmax(a @ b, axis=-1)

    device = fb.device(GPU)
    a, b = fb.ones((4, 5), device=GPU), fb.ones((5, 6), device=GPU)
    compiled = fb.jit(step)
    shown = device.backend.forms(compiled.graph(a, b), ("groups", "specs", "naive", "code"), device)
    assert "fused × 2" in compiled.explain(a, b)
    assert shown.count(" = fused(") == shown.count("\n  key ") == shown.count("// launch 0, grid (") == 2
    assert shown.count("fn main(@builtin(workgroup_id)") == shown.count("// launch ")
    assert "runs it operation by operation" not in shown


def test_64_bit_integers_keep_all_bits() -> None:
    x = np.array([2**62 + 3, -(2**62) - 5, 2**40, -1, 7], np.int64)
    y = np.array([3, -7, 2**33 + 1, 0, 2], np.int64)
    a, b = on_gpu(x), on_gpu(y)
    for name in ("add", "multiply", "floor_divide", "remainder", "less", "maximum", "bitwise_xor"):
        with np.errstate(all="ignore"):
            want = fb.ops.OPS[name].reference(x, y)
        np.testing.assert_array_equal(getattr(fb, name)(a, b).numpy(), want)


def test_an_index_out_of_range_is_reported_with_its_line() -> None:
    x = on_gpu(np.zeros((5, 2), np.float32))
    with pytest.raises(IndexError, match=r"take: indices must lie in \[-5, 5\)\nReceived: 7"):
        fb.take(x, on_gpu([1, 7, 9]), axis=0)

    def chosen(x: fb.Tensor, at: fb.Tensor) -> fb.Tensor:
        return x[at] + 1.0

    compiled = fb.jit(chosen)
    assert compiled(x, on_gpu([0, -5])).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(IndexError, match=r"Received: -6, at .*test_webgpu_engine\.py"):
        compiled(x, on_gpu([0, -6]))
    assert compiled(x, on_gpu([4, 3])).tolist() == [[1.0, 1.0], [1.0, 1.0]]  # the fault does not stay


def test_destinations_show_what_was_written_also_with_aliases_and_earlier_views() -> None:
    x = on_gpu(np.arange(6, dtype=np.float32))
    view, out = x[2:4], on_gpu(np.zeros(6, np.float32))
    fb.add(x, x, out=out)
    assert out.tolist() == [0, 2, 4, 6, 8, 10]
    fb.multiply(out, out, out=out)
    x[2:4] = 9.0
    assert out.tolist() == [0, 4, 16, 36, 64, 100]
    assert view.tolist() == [2, 3]
    assert x.tolist() == [0, 1, 9, 9, 4, 5]


def test_a_buffer_that_waits_for_commands_is_not_overwritten_by_the_host() -> None:
    """What is recorded and not yet submitted reads the old values of a buffer that is given out again."""
    total = on_gpu(np.zeros(1000, np.float32))
    for k in range(50):
        x = on_gpu(np.full(1000, k, np.float32))
        total = total + x
        del x
    assert (total.numpy() == sum(range(50))).all()


def test_memory_is_used_again_and_given_back() -> None:
    device = fb.device(GPU)
    gc.collect()
    fb.memory_cleanup(device)
    before = fb.memory_stats(device)["buffers"]
    for _ in range(200):
        x = on_gpu(np.ones(1 << 16, np.float32)) * 2.0
    held = fb.memory_stats(device)
    assert held["buffers"] - before < 16 * x.nbytes
    del x
    gc.collect()
    fb.memory_cleanup(device)
    assert fb.memory_stats(device)["buffers"] <= before + (1 << 16)


def test_sizes_of_buffers_are_at_most_a_quarter_larger_than_asked_for() -> None:
    for nbytes in (1, 255, 256, 257, 1000, 4097, 10**6, 10**8 + 1):
        assert nbytes <= size_class(nbytes) <= max(LEAST, 1.25 * nbytes + 64)
        assert size_class(nbytes) % 64 == 0


def test_a_pool_tries_again_after_it_gave_back_what_is_idle() -> None:
    asked: list[int] = []

    def create(size: int) -> object:
        asked.append(size)
        if len(asked) == 2:
            raise MemoryError("no more")
        return object()

    pool = BufferPool(create, 1 << 30)
    first = pool.lease(1000)
    del first
    assert pool.lease(5000).block.size >= 5000
    assert pool.kept == 0
    with pytest.raises(MemoryError, match="a buffer of this device has at most 1,073,741,824 bytes"):
        pool.lease(1 << 31)


def test_a_tensor_that_no_buffer_holds_is_an_error_that_lists_memory() -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (3 << 30,), (0,))
    with pytest.raises(fb.OutOfMemoryError, match="a new tensor"):
        on_gpu(huge)


def test_arrays_without_elements() -> None:
    x = fb.zeros((0, 3), device=GPU)
    assert (x + 1.0).shape == (0, 3)
    with fb.config.scope(fallback="error"):
        assert x.sum(axis=0).tolist() == [0.0, 0.0, 0.0]
        assert (x @ fb.zeros((3, 2), device=GPU)).shape == (0, 2)
        assert x.T.reshape(3, 0).numpy().shape == (3, 0)


def test_what_has_no_kernel_runs_on_the_host_with_a_warning() -> None:
    x = on_gpu(np.eye(3, dtype=np.float32) * 4.0)
    with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError, match="webgpu:0 has no kernel for qr"):
        fb.linalg.qr(x)


def test_gradients_and_compiled_steps_agree_with_numpy() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 5)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])

    def loss(w: fb.Tensor, x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return fb.cross_entropy(fb.tanh(x @ w), y)

    want = fb.grad(loss)(*(fb.asarray(v, device="numpy") for v in (w, x, labels))).numpy()
    for function in (fb.grad(loss), fb.jit(fb.grad(loss))):
        got = function(*map(on_gpu, (w, x, labels))).numpy()
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-7)


def test_random_numbers_have_the_bits_of_other_engines() -> None:
    drawn = []
    for device in (GPU, "numpy"):
        g = fb.random.Generator(7)
        with fb.use_device(device):
            drawn.append(
                [g.uniform((1000,)), g.integers((500,), low=0, high=1000), g.permutation(300), g.bernoulli((100,), p=0.3)]
            )
    for a, b in zip(*drawn, strict=True):
        assert a.device.name == GPU
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_several_threads_use_one_device() -> None:
    wrong: list[str] = []

    def work(k: int) -> None:
        x = on_gpu(np.full(500, k, np.float32))
        for step in range(30):
            x = fb.sqrt(x * x)
            if step % 10 == 9 and not (x.numpy() == k).all():
                wrong.append(f"{k} after {step}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_is_refused_the_device_and_ends_as_it_wants_to() -> None:
    x = on_gpu(np.ones(8, np.float32)) + 1.0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            x.numpy()
        except fb.ExecutionError as e:
            code = 7 if "a fork of process" in str(e) else 2
        libc.exit(code)  # with the destructors of drivers, which pytest's own end of a child leaves out
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert x.tolist() == [2.0] * 8


def test_values_that_an_interrupt_kept_from_being_computed_are_errors_and_others_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = fb.device(GPU)
    gpu = device.backend.groups(device).gpu
    x = on_gpu(np.arange(5, dtype=np.float32)) + 1.0
    device.backend.sync(device)
    waiting = x * 3.0
    with monkeypatch.context() as patched:
        patched.setattr(type(gpu._device.queue), "submit", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            waiting.numpy()
    for use in (waiting.numpy, lambda: waiting + 1.0, lambda: fb.astype(waiting, fb.int32).numpy()):
        with pytest.raises(fb.ExecutionError, match="an interrupt kept from being started"):
            use()
    assert x.tolist() == [1, 2, 3, 4, 5]
    assert (x * 3.0).tolist() == [3, 6, 9, 12, 15]


def _interrupted(*args: object) -> None:
    raise KeyboardInterrupt


LOST = """
import numpy as np, firebrick as fb
device = fb.device("webgpu:0")
x = fb.asarray(np.ones(100, np.float32), device=device)
(x + 1.0).numpy()
waiting = x * 3.0
device.backend.groups(device).gpu._device.destroy()
for use in (waiting.numpy, lambda: (x + 1.0).numpy(), lambda: fb.ones(3, device=device), lambda: fb.sin(x).numpy()):
    try:
        use()
    except fb.DeviceLostError as e:
        assert "start the program again, from its last checkpoint" in str(e)
    else:
        raise AssertionError("a lost device computes nothing")
print("named each time")
"""


def test_a_lost_device_is_an_error_of_its_own_and_never_ends_the_process() -> None:
    found = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "named each time\n"


def test_measured_facts_are_shown() -> None:
    on_gpu([1.0]).numpy()
    facts = fb.device(GPU).backend.properties(fb.device(GPU))
    assert "division: exact" in facts["measured"]
    assert "longest loop" in facts["measured"]


def test_bind_groups_are_kept_for_the_same_buffers_and_only_for_these(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fb.device(GPU)
    gpu = device.backend.groups(device).gpu
    bound, made = type(gpu)._bound, 0

    def counted(self: object, *args: object) -> object:
        nonlocal made
        made += 1
        return bound(self, *args)

    step = fb.jit(lambda x: fb.softmax(x @ x) * 0.5 + 0.25)
    xs = [on_gpu(np.full((4, 4), k / 10, np.float32)) for k in range(10)]
    want = [fb.softmax(fb.asarray(x.numpy(), device="numpy") @ fb.asarray(x.numpy(), device="numpy")).numpy() for x in xs]
    monkeypatch.setattr(type(gpu), "_bound", counted)
    for _ in range(3):  # more buffers than a launch keeps groups for
        for x, w in zip(xs, want, strict=True):
            np.testing.assert_allclose(step(x).numpy(), w * 0.5 + 0.25, rtol=1e-5)
    x = xs[0]
    for _ in range(5):
        step(x).numpy()
    made = 0
    for _ in range(20):
        step(x).numpy()
    assert made == 0
    fb.memory_cleanup(device)  # buffers that groups use would not be given back
    assert not gpu._grouped
    step(x).numpy()
    assert made > 0


def test_gradients_of_an_empty_batch_are_zeros_in_half_precision_too() -> None:
    """No kernel computes them, and NumPy's own functions do not know bfloat16."""
    for of in (fb.float16, fb.bfloat16):
        x, w = (fb.ones(shape, dtype=of, device=GPU) for shape in ((0, 2, 4, 4), (3, 2, 1, 1)))
        found = fb.grad(lambda w, x=x: fb.conv2d(x, w).sum())(w)
        assert (found.dtype, found.shape) == (of, w.shape)
        assert not found.numpy().astype(np.float32).any()


def test_the_check_of_large_tensors_asks_for_no_dtype_that_gpus_lack() -> None:
    report = check_large(fb.device(GPU), ["tanh"])
    assert report.ok, report
    assert report.checked == 1


@pytest.mark.parametrize("after", [False, True], ids=["before the launches are recorded", "after"])
@pytest.mark.parametrize("by", ["copy", "submit"])
def test_launches_that_an_interrupt_may_have_lost_are_never_read(by: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = on_gpu(np.arange(6, dtype=np.float32))
    x.numpy()
    backend, real, times = fb.device(GPU).backend, LaunchTable.record, [0]

    def interrupted(self: LaunchTable, into: object) -> None:
        times[0] += 1
        if times[0] == 1:
            if after:
                real(self, into)
            raise KeyboardInterrupt
        real(self, into)

    y = x * 2.0
    monkeypatch.setattr(LaunchTable, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.copy(y.storage.data) if by == "copy" else backend.flush(y.device)
    with pytest.raises(fb.ExecutionError, match="an interrupt kept from being started"):
        y.numpy()
    with pytest.raises(fb.ExecutionError, match="an interrupt kept from being started"):
        (y + 1.0).numpy()
    assert (x * 3.0).tolist() == [0, 3, 6, 9, 12, 15]


def test_short_and_long_tables_of_launches_record_the_same() -> None:
    x = on_gpu(np.arange(8, dtype=np.float32).reshape(2, 4) % 3)
    few, many = (fb.jit(lambda x, n=n: _chain(x, n)) for n in (3, 3 * LONG_TABLE))
    want = np.arange(8).reshape(2, 4) % 3
    assert np.array_equal(few(x).numpy(), want)
    assert np.array_equal(many(x).numpy(), want)
    for _ in range(3):  # buffers and bind groups are used again
        x, y = many(x), few(x)
    assert np.array_equal(x.numpy(), want)
    assert np.array_equal(y.numpy(), want)


def _chain(x: fb.Tensor, n: int) -> fb.Tensor:
    """``x`` after so many kernels of two kinds, in turns."""
    turn = fb.asarray(np.roll(np.eye(4, dtype=np.float32), 1, axis=1), device=GPU)
    for k in range(n):
        x = x @ turn if k % 2 else x @ turn.T
    return x @ turn if n % 2 else x


@pytest.mark.parametrize("n", [1, 16, 17, 3000])
def test_running_and_scattered_sums_stay_on_the_device_and_are_exact(n: int) -> None:
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-4, 4, n)).astype(np.float32)
    at = rng.integers(0, 5, n)
    with fb.config.scope(fallback="error"):
        running = fb.cumulative_sum(fb.asarray(x, device=GPU), axis=0).numpy()
        zeros, where = fb.zeros((5,), device=GPU), fb.asarray(at, device=GPU)
        scattered = fb.index_add(zeros, where, fb.asarray(x, device=GPU), axis=0).numpy()
        signs = fb.cumulative_sum(fb.asarray([-0.0] * n, dtype=fb.float32, device=GPU), axis=0).numpy()
    wide = x.astype(np.float64)
    sums, sizes = np.zeros(5), np.zeros(5)
    np.add.at(sums, at, wide)
    np.add.at(sizes, at, np.abs(wide))
    assert (np.abs(running - np.cumsum(wide)) <= 2.0**-23 * np.cumsum(np.abs(wide))).all()
    assert (np.abs(scattered - sums) <= 2.0**-23 * sizes).all()
    assert np.signbit(signs).all()


@pytest.mark.parametrize(
    ("index", "shown"), [(5_000_000_000, "2147483647 or more"), (-(1 << 40), "-2147483648 or less"), (12, "12")]
)
def test_an_index_beyond_32_bits_is_reported_as_what_is_known_of_it(index: int, shown: str) -> None:
    @fb.kernel
    def one(x: fb.kernel.In[fb.float32, "n"], i: int, out: fb.kernel.Out[fb.float32, "1"]) -> None:  # noqa: F821, UP037
        out[0] = x[i]

    x = fb.asarray(np.arange(10, dtype=np.float32), device="webgpu:0")
    at = fb.asarray(np.array([0, index], np.int64), device="webgpu:0")
    compiled = fb.jit(lambda a, b: fb.take(a, b, axis=0) * 2.0)
    runs = ((lambda: fb.take(x, at, axis=0), r"\.$"), (lambda: compiled(x, at), ", at "), (lambda: one(x, index), ", at "))
    for run, end in runs:
        with pytest.raises(IndexError, match=rf"(?m)Received: {shown}{end}"):
            run()


def test_a_group_is_lowered_once_for_all_lines_but_those_that_faults_and_refusals_name() -> None:
    lowered: list[str] = []

    def lowering(body: Graph, gpu: Gpu) -> tuple[LoweredGroup | str, None]:
        lowered.append(at := ", ".join(n.line for n in body.nodes))
        return (at, None) if body.nodes[0].op.name == "subtract" else default_launches(body, gpu)

    groups = Groups(fb.device(GPU).backend.groups(fb.device(GPU)).gpu, lowering)

    def of(op: str, line: str, *inputs: Aval) -> CompiledGroup | str:
        body = Graph(list(inputs))
        body.outputs = body.add(OPS[op], *range(len(inputs)), **({"axis": 0} if op == "take" else {}))
        body.nodes[0] = replace(body.nodes[0], line=line)
        return groups.of_body(body)

    x, at = Aval((5,), fb.float32), Aval((2,), fb.int32)
    assert of("add", "a.py:1", x, x) is of("add", "b.py:2", x, x)
    taken = [of("take", line, x, at) for line in ("a.py:3", "b.py:4", "a.py:3")]
    assert taken[0] is taken[2] is not taken[1]
    assert [of("subtract", line, x, x) for line in ("a.py:5", "b.py:6", "a.py:5")] == ["a.py:5", "b.py:6", "a.py:5"]
    assert lowered == ["a.py:1", "a.py:3", "b.py:4", "a.py:5", "b.py:6"]


def test_compiled_shaders_of_dropped_programs_are_freed_but_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fb.device(GPU).backend.groups(fb.device(GPU)).gpu
    compiled, count = Gpu._compiled, 0

    def counted(self: Gpu, *more: object) -> object:
        nonlocal count
        count += 1
        return compiled(self, *more)

    monkeypatch.setattr(Gpu, "_compiled", counted)
    x = fb.ones(3, device=GPU)
    gc.collect()
    before = len(gpu._pipelines)
    for n in range(150):
        assert fb.jit(lambda v, n=n: v * 2.0 + (n + 0.25))(x).numpy()[0] == n + 2.25
    gc.collect()
    assert count >= 150
    assert len(gpu._pipelines) - before <= 64


def test_the_kernels_of_a_program_are_compiled_once_though_more_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    compiled = Gpu._compiled
    monkeypatch.setattr(Gpu, "_compiled", lambda self, text, *more: [texts.append(text), compiled(self, text, *more)][1])

    def function(x: fb.Tensor) -> fb.Tensor:
        for n in range(80):
            x = fb.cumulative_sum(x * (1.0 + n / 128), axis=0) - x  # a kernel of its own
        return x

    x = fb.asarray(np.array([1.0, 0.5, 0.25], np.float32), device=GPU)
    f = fb.jit(function)
    first = f(x).numpy()
    assert len(texts) == len(set(texts)) > 64
    texts.clear()
    np.testing.assert_array_equal(f(x).numpy(), first)
    assert not texts


def test_launches_of_equal_sizes_share_the_buffer_of_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fb.device(GPU).backend.groups(fb.device(GPU)).gpu
    made: list[bytes] = []
    create = type(gpu._device).create_buffer_with_data
    monkeypatch.setattr(
        type(gpu._device), "create_buffer_with_data",
        lambda self, *, data, **more: [made.append(bytes(data)), create(self, data=data, **more)][1],
    )  # fmt: skip
    sizes = (1237, 1239, 1237)
    held = [fb.jit(lambda v, n=n: v * (n + 0.125)) for n in range(3)]
    for f, n, size in zip(held, range(3), sizes, strict=True):
        assert (f(fb.ones(size, device=GPU)).numpy() == n + 0.125).all()
    assert len(made) == len(set(made)) >= 2
    words = len(gpu._words)
    del f
    held.clear()
    gc.collect()
    assert len(gpu._words) <= words


def _written(x: fb.Tensor, none: fb.Tensor) -> fb.Tensor:
    x = x + 0.0
    x[2:2] = none
    return x


WITH_EMPTY: dict[str, Callable[[fb.Tensor, fb.Tensor, fb.Tensor], fb.Tensor]] = {
    "slice_update": lambda x, i, none: _written(x, none),
    "concat": lambda x, i, none: fb.concat([none, x, none, x]),
    "index_add": lambda x, i, none: fb.index_add(x, i, none, axis=0),
    "scatter": lambda x, i, none: fb.scatter(x, fb.reshape(i, (0, 4)), none, axis=0),
    "take": lambda x, i, none: fb.take(x, i, axis=0),
    "gradient of take": lambda x, i, none: fb.grad(lambda x: fb.sum(fb.take(x, i, axis=0)))(x),
    "take_along_axis": lambda x, i, none: fb.take_along_axis(x, fb.reshape(i, (0, 4)), axis=0),
    "searchsorted": lambda x, i, none: fb.searchsorted(fb.reshape(none, (0,)), fb.reshape(x, (16,))),
}


@pytest.mark.parametrize("name", WITH_EMPTY)
def test_some_operands_may_have_no_elements(name: str) -> None:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    f, arrays = WITH_EMPTY[name], (x, np.zeros(0, np.int32), x[4:])
    want = f(*(fb.asarray(a, device="numpy") for a in arrays)).numpy()
    with fb.config.scope(fallback="error"):
        for run in (f, fb.jit(f)):
            found = run(*(fb.asarray(a, device="webgpu:0") for a in arrays)).numpy()
            assert (found.shape, found.tolist()) == (want.shape, want.tolist())


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (OSError("no libvulkan"), "wgpu cannot be loaded (no libvulkan): "),
        (ModuleNotFoundError("No module named 'wgpu'", name="wgpu"), "pip install 'firebrick[webgpu]'"),
        ((), "wgpu finds no adapter with Vulkan, Metal or DirectX 12: "),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_missing_is_said(found: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def adapters() -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    backend = fb.device(GPU).backend
    monkeypatch.setattr(engine, "adapters", adapters)
    assert message in str(backend.unavailable("webgpu"))


def test_to_wait_for_a_device_reads_from_it_when_all_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = on_gpu([1.0, 2.0])
    device = x.device
    order: list[str] = []
    submit, read = Gpu.submit, Gpu.bytes_of
    monkeypatch.setattr(Gpu, "submit", lambda gpu: (order.append("submit"), submit(gpu))[1])
    monkeypatch.setattr(Gpu, "bytes_of", lambda gpu, *where: (read(gpu, *where), order.append("read"))[0])
    _ = x + 1.0
    device.backend.sync(device)
    assert order[-2:] == ["submit", "read"]


def test_a_checkpointed_function_knows_a_view_again_without_reading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table, x = on_gpu(np.arange(6.0, dtype=np.float32)), on_gpu(np.ones((2, 3), np.float32)).require_grad()
    y = fb.sum(fb.checkpoint(lambda v: fb.sin(v * fb.reshape(table, (2, 3))))(x))
    monkeypatch.setattr(type(fb.device(GPU).backend), "to_host", None)
    found = fb.backward(y)[x]
    monkeypatch.undo()
    np.testing.assert_allclose(found.numpy(), np.cos(table.numpy().reshape(2, 3)) * table.numpy().reshape(2, 3), rtol=1e-5)
