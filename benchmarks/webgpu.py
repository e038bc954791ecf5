"""A WebGPU device: products, elementwise and row kernels by the engine and by hand-written shaders, attention by its forms, and
factors and solves by the device and the host, in turns; and what a kernel costs on the host.
``python -m benchmarks.webgpu``; with ``--variants`` the variants of products instead.

A software driver computes on the processor, in threads of its own, so that the processor time of the process is what a kernel
costs there, whatever else the machine does. On a GPU the time until the result is there is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import click
import numpy as np

import firebrick as fb
from firebrick.backends.webgpu.commands import Gpu
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.aval import Aval
from firebrick.ops import OPS

ROWS, COLUMNS, ITEMS = 8, 4, 8
"""Of the hand-written shader: elements of an item, and items of a workgroup along both axes."""
SMALLER = "rows=8 columns=4"
"""The largest blocks that the engine uses without tuning on adapters that are GPUs."""


def written_by_hand(n: int) -> str:
    """A product of square matrices of row-major float32: each item has 8 × 4 sums, of which it reads vectors of four."""
    sums = "\n".join(f"    var t{i} = vec4<f32>();" for i in range(ROWS))
    steps = "\n".join(f"        t{i} += a[(row + {i}u) * {n}u + k] * v;" for i in range(ROWS))
    stores = "\n".join(f"    c[(row + {i}u) * {n // COLUMNS}u + column] = t{i};" for i in range(ROWS))
    return f"""
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@group(0) @binding(3) var<uniform> launch: array<vec4<u32>, 2>;
@compute @workgroup_size({ITEMS}, {ITEMS}) fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(local_invocation_id) own: vec3<u32>) {{
    let across = {n // (ITEMS * COLUMNS)}u;
    let column = (group.x % across) * {ITEMS}u + own.x;
    let row = ((group.x / across) * {ITEMS}u + own.y) * {ROWS}u;
{sums}
    for (var k = 0u; k < {n}u; k++) {{
        let v = b[k * {n // COLUMNS}u + column];
{steps}
    }}
{stores}
}}
"""


def _by_hand(gpu: Gpu, n: int, x: fb.Tensor, y: fb.Tensor) -> Callable[[], np.ndarray]:
    """A function that computes the product by the hand-written shader."""
    shader = Shader(written_by_hand(n), (True, True, False), False, 2, 64, ())
    groups = n // (ITEMS * COLUMNS) * (n // (ITEMS * ROWS))
    launch = gpu.prepared(shader, [4 * n * n] * 3, (), (groups, 64))
    result = gpu.array(Aval((n, n), fb.float32))
    leases = [t.storage.data.lease for t in (x, y)] + [result.lease]

    def run() -> np.ndarray:
        gpu.launch(launch, leases)
        gpu.wait()
        return gpu.read(result)

    return run


def product(n: int, rounds: int, device: str) -> dict[str, tuple[float, float]]:
    """GFLOP/s by processor time and by wall time, medians of rounds in turns."""
    home = fb.device(device)
    gpu = home.backend.groups(home).gpu
    rng = np.random.default_rng(0)
    x, y = (fb.asarray(rng.standard_normal((n, n)).astype(np.float32), device=home) for _ in range(2))

    def engine() -> np.ndarray:
        found = x @ y
        gpu.wait()
        return found.numpy()

    def forced() -> np.ndarray:
        with fb.force_variant(SMALLER):
            return engine()

    runs = {"engine": engine, SMALLER: forced, "by hand": _by_hand(gpu, n, x, y)}
    want = x.numpy().astype(np.float64) @ y.numpy().astype(np.float64)
    for name, run in runs.items():
        error = np.abs(run() - want).max() / np.abs(want).max()
        assert error < 1e-5, (name, error)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start, wall = time.process_time(), time.perf_counter()
            run()
            took[name].append((time.process_time() - start, time.perf_counter() - wall))
    flops = 2e-9 * n**3
    return {name: (flops / median(p for p, _ in t), flops / median(w for _, w in t)) for name, t in took.items()}


WORDS = "default, float16 in words"
"""The kernels of adapters that do not offer float16."""


def variants(shape: tuple[int, ...], of: str, rounds: int, device: str) -> dict[str, float]:
    """Milliseconds of processor time of the variants of a product of matrices of ``shape``, medians of rounds in turns."""
    home = fb.device(device)
    groups = home.backend.groups(home)
    gpu, measured = groups.gpu, groups.gpu.measured
    width = measured.capabilities.subgroup_sizes[0]
    names = ["default", SMALLER, "tiles=64x64x8 group=64"]
    if width > 1:
        names += [f"subgroup={width} rows=8 columns={n}" for n in (8, 4)]
    if of == "float16" and measured.capabilities.float16:
        names += [WORDS, "tiles=128x128x8 group=256 float16"]
    rng = np.random.default_rng(0)
    x, y = (fb.astype(fb.asarray(rng.standard_normal(shape).astype(np.float32), device=home), fb.dtype(of)) for _ in range(2))
    runs = {name: fb.jit(lambda x, y: x @ y) for name in names}

    def run(name: str) -> fb.Tensor:
        with fb.force_variant("default" if name == WORDS else name):
            found = runs[name](x, y)
        gpu.wait()
        return found

    want = run("default").numpy()
    for name in names:  # which compiles it
        if name == WORDS:
            gpu.measured = replace(measured, capabilities=replace(measured.capabilities, float16=False))
            groups._made.clear()
        assert run(name).numpy().tobytes() == want.tobytes(), name
        if name == WORDS:
            gpu.measured = measured
            groups._made.clear()
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, times in took.items():
            start = time.process_time()
            run(name)
            times.append(time.process_time() - start)
    return {name: 1e3 * median(times) for name, times in took.items()}


ROWS_OF, COLUMNS_OF = 4096, 1024
"""The matrix of elementwise and row kernels."""
_OF_ROW = f"""
    let b = i * {COLUMNS_OF // 4}u;
    var most = a[b];
    for (var k = 1u; k < {COLUMNS_OF // 4}u; k++) {{ most = max(most, a[b + k]); }}
    let top = max(max(most.x, most.y), max(most.z, most.w));
    var s = vec4<f32>();
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ let e = exp(a[b + k] - top); c[b + k] = e; s += e; }}
    let factor = 1.0 / (s.x + s.y + s.z + s.w);
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ c[b + k] = c[b + k] * factor; }}"""
_OF_NORM = f"""
    let b = i * {COLUMNS_OF // 4}u;
    var s = vec4<f32>();
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ s += a[b + k]; }}
    let mean = (s.x + s.y + s.z + s.w) / {COLUMNS_OF}.0;
    var q = vec4<f32>();
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ let d = a[b + k] - mean; q += d * d; }}
    let factor = 1.0 / sqrt((q.x + q.y + q.z + q.w) / {COLUMNS_OF}.0 + 1e-5);
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ c[b + k] = (a[b + k] - mean) * factor; }}"""
KERNELS: dict[str, tuple[Callable[[fb.Tensor], fb.Tensor], str, int]] = {
    "x * 2 + 1": (lambda x: x * 2.0 + 1.0, "    c[i] = a[i] * 2.0 + 1.0;", ROWS_OF * COLUMNS_OF // 4),
    "tanh(x) exp(x) + √x": (
        lambda x: fb.tanh(x) * fb.exp(x) + fb.sqrt(x), "    let v = a[i]; c[i] = tanh(v) * exp(v) + sqrt(v);",
        ROWS_OF * COLUMNS_OF // 4,
    ),
    "sums of rows": (
        lambda x: fb.sum(x, axis=1),
        f"""
    var s = vec4<f32>();
    for (var k = 0u; k < {COLUMNS_OF // 4}u; k++) {{ s += a[i * {COLUMNS_OF // 4}u + k]; }}
    c[i] = s;""",
        ROWS_OF,
    ),
    "sums of columns": (
        lambda x: fb.sum(x, axis=0),
        f"""
    var s = vec4<f32>();
    for (var k = 0u; k < {ROWS_OF}u; k++) {{ s += a[i + k * {COLUMNS_OF // 4}u]; }}
    c[i] = s;""",
        COLUMNS_OF // 4,
    ),
    "softmax": (fb.softmax, _OF_ROW, ROWS_OF),
    "layer norm": (fb.layer_norm, _OF_NORM, ROWS_OF),
}  # fmt: skip
"""Name → the function, the body of a shader for item ``i`` of vectors ``a`` and ``c``, and its items. The shaders use the
driver's functions, and sums without what additions lose: their results are less exact than the engine's."""


def kernels(rounds: int, device: str) -> dict[str, tuple[float, float]]:
    """Milliseconds of processor time of each kernel, by the engine and by hand, medians of rounds in turns."""
    home = fb.device(device)
    gpu = home.backend.groups(home).gpu
    values = np.random.default_rng(0).random((ROWS_OF, COLUMNS_OF)).astype(np.float32)
    x = fb.asarray(values, device=home)
    result = gpu.array(Aval((ROWS_OF, COLUMNS_OF), fb.float32))
    found = {}
    for name, (function, body, items) in KERNELS.items():
        text = f"""
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> c: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> launch: array<vec4<u32>, 1>;
@compute @workgroup_size(64) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_id) own: vec3<u32>) {{
    let i = (group.y * groups.x + group.x) * 64u + own.x;
    if (i >= launch[0].x) {{ return; }}
{body}
}}"""
        launch = gpu.prepared(Shader(text, (True, False), False, 1, 0, ()), [values.nbytes] * 2, (), (items,))
        run = fb.jit(function)

        def engine(run: Callable[[fb.Tensor], fb.Tensor] = run) -> fb.Tensor:
            made = run(x)
            gpu.wait()
            return made

        def by_hand(launch: Any = launch) -> None:
            gpu.launch(launch, [x.storage.data.lease, result.lease])
            gpu.wait()

        took: dict[Callable[[], object], list[float]] = {engine: [], by_hand: []}
        for k in range(rounds + 2):
            for call, times in took.items():
                start = time.process_time()
                call()
                if k > 1:
                    times.append(time.process_time() - start)
        want, got = gpu.read(result).reshape(-1), engine().numpy().reshape(-1)
        if want.size == got.size:
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
        ours, theirs = (1e3 * median(times) for times in took.values())
        found[name] = ours, theirs
    return found


ATTENTION = (((4, 128, 128, 32), True), ((4, 512, 512, 64), False), ((32, 64, 64, 16), True))
"""Batch, queries, keys and features, and whether it is causal."""


def attention(shape: tuple[int, ...], causal: bool, rounds: int, device: str) -> dict[str, float]:
    """Milliseconds of processor time, forward and with gradients, by default and in the naive form, in turns."""
    batch, n, m, d = shape
    home = fb.device(device)
    gpu = home.backend.groups(home).gpu
    rng = np.random.default_rng(0)
    arrays = [fb.asarray(rng.standard_normal((1, batch, k, d)).astype(np.float32), device=home) for k in (n, m, m)]

    def forward(*arrays: fb.Tensor) -> fb.Tensor:
        return fb.scaled_dot_product_attention(*arrays, causal=causal)

    def gradient(*arrays: fb.Tensor) -> object:
        return fb.grad(lambda *arrays: fb.sum(forward(*arrays) ** 2))(*arrays)

    def forced(run: Callable[..., object]) -> object:
        with fb.force_variant("naive"):
            return run(*arrays)

    runs: dict[str, Callable[[], object]] = {}
    for name, run in (("forward", forward), ("gradient", gradient)):
        runs[name] = lambda run=run: run(*arrays)  # type: ignore[misc]
        runs[f"{name}, naive"] = lambda run=run: forced(run)  # type: ignore[misc]
    took: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            gpu.wait()
            if k:  # the first one compiles
                took[name].append(time.process_time() - start)
    return {name: 1e3 * median(t) for name, t in took.items()}


MATRICES = ((1000, 8), (256, 32), (64, 64), (16, 128), (4, 256), (1, 512))
"""Matrices of a stack, and their rows."""


def matrices(count: int, n: int, rounds: int, device: str) -> dict[str, tuple[float, float]]:
    """Milliseconds of processor and of wall time until the host has the result, on the device and by the reference on the host,
    in turns; right sides have one column, or as many as the matrices."""
    home = fb.device(device)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, n, n))
    a = fb.asarray((x @ np.swapaxes(x, -1, -2) + n * np.eye(n)).astype(np.float32), device=home)
    runs: dict[str, Callable[[], object]] = {}
    cases: list[tuple[str, Any, tuple[fb.Tensor, ...], dict[str, Any]]] = [("cholesky", OPS["cholesky"], (a,), {})]
    factor = fb.linalg.cholesky(a)
    cases += [(f"solve {k}", OPS["solve_triangular"], (factor, a[..., :k] + 0.0), {"upper": False}) for k in (1, n)]
    for name, op, operands, params in cases:
        runs[name] = lambda op=op, operands=operands, params=params: op(*operands, **params).numpy()  # type: ignore[misc]

        def by_host(op: Any = op, operands: Any = operands, params: Any = params) -> object:
            found = op.reference(*(t.numpy() for t in operands), **params)
            return fb.asarray(found.astype(np.float32), device=home).numpy()

        runs[f"{name}, host"] = by_host
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for k in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time(), time.perf_counter()
            run()
            if k:  # the first one compiles
                took[name].append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return {name: (1e3 * median(p for p, _ in t), 1e3 * median(w for _, w in t)) for name, t in took.items()}


def host_time(kernels: int, rounds: int, device: str) -> tuple[float, float]:
    """Microseconds of the calling thread for each kernel of a compiled program: to record it, and to submit it."""
    home = fb.device(device)
    gpu = home.backend.groups(home).gpu
    x = fb.asarray(np.eye(8, dtype=np.float32), device=home)

    def chain(x: fb.Tensor) -> fb.Tensor:
        for _ in range(kernels):
            x = x @ x
        return x

    run = fb.jit(chain)
    run(x).numpy()
    took = []
    for _ in range(rounds):
        gpu.wait()
        start = time.thread_time()
        result = run(x)
        recorded = time.thread_time()
        gpu.submit()
        took.append((recorded - start, time.thread_time() - recorded))
        result.numpy()
    return 1e6 * median(r for r, _ in took) / kernels, 1e6 * median(s for _, s in took) / kernels


@click.command()
@click.option("--device", default="webgpu:0", show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--size", "sizes", type=int, multiple=True, default=(256, 512, 1024), show_default=True)
@click.option("--variants", "of_products", is_flag=True, help="Compare the variants of products, and nothing else.")
def main(device: str, rounds: int, sizes: tuple[int, ...], of_products: bool) -> None:
    """Print GFLOP/s of square products of float32, the times of other kernels, and the host time of a kernel."""
    print(f"{fb.device(device)}: {fb.device(device).backend.properties(fb.device(device))['name']}")
    if of_products:
        for of in ("float32", "float16"):
            for shape in (*((n, n) for n in sizes), (32, 64, 64)):
                found = variants(shape, of, rounds, device)
                for name, ms in found.items():
                    print(f"{of} {shape!s:13} {name:34} {ms:8.2f} ms, {found['default'] / ms:.2f} times as fast as default")
        return
    step = ITEMS * max(ROWS, COLUMNS)
    if any(n % step or n < step for n in sizes):
        raise click.BadParameter(f"the shader by hand computes products of multiples of {step} rows, at least one")
    for n in sizes:
        for name, (processor, wall) in product(n, rounds, device).items():
            print(f"{n:5} {name:16} {processor:7.2f} GFLOP/s of processor time, {wall:7.2f} of wall time")
    for name, (ours, theirs) in kernels(rounds, device).items():
        print(f"{name:20} {ours:7.1f} ms of processor time, {theirs:7.1f} by hand, ratio {ours / theirs:.2f}")
    for shape, causal in ATTENTION:
        found = attention(shape, causal, rounds, device)
        print(f"attention {shape}: " + ", ".join(f"{name} {took:.1f} ms" for name, took in found.items()))
    for count, n in MATRICES:
        for name, (processor, wall) in matrices(count, n, rounds, device).items():
            print(f"{count:5} matrices of {n:3}: {name:16} {processor:7.2f} ms of processor time, {wall:7.2f} of wall time")
    record, submit = host_time(200, 5 * rounds, device)
    print(f"a kernel of a program of 200: {record:.2f} µs to record, {submit:.2f} µs to submit")


if __name__ == "__main__":
    main()
