"""Kernels for a driver with float16, subgroups of 32 items and exact arithmetic, compiled by tint (``dawn``).

Dawn's backend that runs nothing has these features: ``BACKEND``. An argument of the command line is ``step`` of ``main``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import wgpu
from pinned import graphs, records
from pinned.emission import DRIVERS, _groups, driver_lines
from pinned.programs import lines_of

import firebrick as fb
from firebrick.backends.webgpu import lowering
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.spec import kinds
from firebrick.compiler.targets.wgsl.shader import Shader

_LIMITS = (
    "max-storage-buffers-per-shader-stage", "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x",
    "max-compute-workgroup-storage-size", "max-storage-buffer-binding-size", "max-buffer-size",
)  # fmt: skip
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "product": (lambda x, y: fb.relu(x @ y), ((128, 64), (64, 96))),
    "convolution": (lambda x, w: fb.relu(fb.conv2d(x, w)), ((2, 3, 12, 12), (8, 3, 3, 3))),
    "softmax": (lambda x: fb.softmax(x * 2.0), ((37, 128),)),
    "sums": (lambda x: fb.sum(x, axis=0) + fb.max(x, axis=0), ((300, 65),)),
    "sort": (lambda x: fb.sort(x), ((5, 2048),)),
    "map": (lambda x: fb.exp(x) + fb.where(x > 0.0, x, -x), ((64, 64),)),
    "transposed": (lambda x: fb.cumulative_sum(x.T, axis=1), ((33, 65),)),
    "cast": (lambda x: (x.astype("int32") + 1).astype("bool"), ((7, 9),)),
    "scatter": (lambda x, y: fb.grad(lambda v: fb.sum(fb.take(v, fb.asarray([1, 3, 3]), axis=0) * y))(x), ((9, 8), (3, 8))),
    "attention": (lambda q, k, v: fb.scaled_dot_product_attention(q, k, v), ((2, 64, 32),) * 3),
}
"""Programs, with the shapes of their operands."""
VARIANTS = {
    "rows=1 columns=1", "subgroup=32 rows=1 columns=1", "subgroup=8 rows=1 columns=1", "tiles=32x32x8 group=64",
    "tiles=64x64x16 group=256 float16",
}  # fmt: skip
"""Further forms of products: small ones of each kind."""


class Tint:
    """Compiles shaders; counts those that use a feature, and keeps what is refused."""

    def __init__(self) -> None:
        adapter = wgpu.gpu.enumerate_adapters_sync()[0]
        limits = {name: adapter.limits[name] for name in _LIMITS}
        self.device = adapter.request_device_sync(required_features=sorted(adapter.features), required_limits=limits)
        exact = DRIVERS["exact"]
        least = replace(
            exact.capabilities, group_items=limits[_LIMITS[1]], shared_bytes=limits[_LIMITS[3]], buffers=limits[_LIMITS[0]] - 1
        )
        self.driver = DRIVERS["exact"] = replace(exact, capabilities=least)
        self.seen: set[str] = set()
        self.refused: list[str] = []

    def compile(self, found: Shader) -> None:
        if found.text in self.seen:
            return
        self.seen.add(found.text)
        kinds = [*("read-only-storage" if r else "storage" for r in found.reads), "uniform", *["storage"] * found.checks]
        entries = [{"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": t}} for k, t in enumerate(kinds)]
        try:
            layout = self.device.create_pipeline_layout(
                bind_group_layouts=[self.device.create_bind_group_layout(entries=entries)]
            )
            compute = {"module": self.device.create_shader_module(code=found.text), "entry_point": "main"}
            self.device.create_compute_pipeline(layout=layout, compute=compute)
        except wgpu.GPUError as e:
            self.refused.append(f"{e}\n{found.text}")


def main(step: int) -> None:
    """Compile the kernels of ``FUNCTIONS``.

    Args:
        step: If it is not 0, those of the pinned programs and of each ``step``-th that could be pinned too.
    """
    tint, made = Tint(), lowering.shader

    def shader(*args: Any) -> Shader:
        found = made(*args)
        tint.compile(found)
        return found

    lowering.shader = shader
    for function, shapes in FUNCTIONS.values():
        for dtype in ("float16", "float32"):
            graph = fb.jit(function).graph(*(fb.zeros(s, dtype=dtype) for s in shapes))
            driver_lines(graph, tint.driver, {})
            for body in _groups(fuse(graph, lowering.kind_of, lowering.POLICY)):
                outputs = [body.avals[v] for v in body.outputs]
                for v in variants(kinds.spec_of(body), tint.driver):
                    if v.name in VARIANTS:
                        lowering.lowered(v.build(), body.inputs, outputs, tint.driver)
    if step:
        for unit in records.read():
            if unit.endswith((" @ exact", " @ exact variants")):
                lines_of(unit)
        for program in [*graphs.candidates(10)][::step]:
            lines_of(f"{program} @ exact")
    count = {word: sum(word in text for text in tint.seen) for word in ("enable f16", "subgroupShuffle", "var<workgroup>")}
    print(f"{len(tint.seen)} shaders, {len(tint.refused)} refused, {count}")
    print("\n\n".join(tint.refused[:5]))
    sys.exit(bool(tint.refused) or min(count.values()) == 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
