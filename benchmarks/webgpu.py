"""A WebGPU device: products by the engine and by a hand-written shader, and attention by its forms, in turns; and what a kernel
costs on the host.
``python -m benchmarks.webgpu``.

A software driver computes on the processor, in threads of its own, so that the processor time of the process is what a kernel
costs there, whatever else the machine does. On a GPU the time until the result is there is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import click
import numpy as np

import firebrick as fb
from firebrick.backends.webgpu.commands import Gpu
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.aval import Aval

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
def main(device: str, rounds: int, sizes: tuple[int, ...]) -> None:
    """Print GFLOP/s of square products of float32, the times of attention, and the host time of a kernel."""
    print(f"{fb.device(device)}: {fb.device(device).backend.properties(fb.device(device))['name']}")
    step = ITEMS * max(ROWS, COLUMNS)
    if any(n % step or n < step for n in sizes):
        raise click.BadParameter(f"the shader by hand computes products of multiples of {step} rows, at least one")
    for n in sizes:
        for name, (processor, wall) in product(n, rounds, device).items():
            print(f"{n:5} {name:16} {processor:7.2f} GFLOP/s of processor time, {wall:7.2f} of wall time")
    for shape, causal in ATTENTION:
        found = attention(shape, causal, rounds, device)
        print(f"attention {shape}: " + ", ".join(f"{name} {took:.1f} ms" for name, took in found.items()))
    record, submit = host_time(200, 5 * rounds, device)
    print(f"a kernel of a program of 200: {record:.2f} µs to record, {submit:.2f} µs to submit")


if __name__ == "__main__":
    main()
