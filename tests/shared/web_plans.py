"""Exported programs without a browser: their plans, run by wgpu on an adapter with the default limits and no feature.

This is a second reader of ``program.json``, beside ``firebrick.js``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
STORED = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
    "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": BFLOAT16, "F32": np.float32,
}  # fmt: skip


DEFAULTS = {
    "max-storage-buffer-binding-size": 128 << 20, "max-buffer-size": 256 << 20, "max-storage-buffers-per-shader-stage": 8,
    "max-compute-invocations-per-workgroup": 256, "max-compute-workgroup-size-x": 256, "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64, "max-compute-workgroup-storage-size": 16 << 10,
    "max-compute-workgroups-per-dimension": 65535, "min-storage-buffer-offset-alignment": 256,
}  # fmt: skip
"""Source: the specification of WebGPU, the table of limits."""


@cache
def device() -> Any:
    """A device of the first adapter, with WebGPU's default limits: what needs more is an error of validation."""
    from firebrick.backends.webgpu.adapters import adapters

    return adapters()[0].handle.request_device_sync(label="page", required_limits=DEFAULTS)


def tensors(folder: Path, facts: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a safetensors file whose hash is that of the plan."""
    content = (folder / facts["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == facts["sha256"]
    return {
        name: np.frombuffer(view["data"], STORED[view["dtype"]]).reshape(view["shape"])
        for name, view in safetensors.deserialize(content)
    }


class ExportedProgram:
    """A program of a folder."""

    def __init__(self, folder: Path) -> None:
        import wgpu

        self.folder, self.plan = folder, json.loads((folder / "program.json").read_text())
        plan, self.device = self.plan, device()
        usage = wgpu.BufferUsage
        kept = usage.STORAGE | usage.COPY_DST | usage.COPY_SRC
        # what a buffer held before is never read: results do not depend on it
        self.buffers = [self.device.create_buffer_with_data(data=b"\xa5" * n, usage=kept) for n in plan["buffers"]]
        self.faults = self.device.create_buffer(size=4 * (len(plan["faults"]) + 1), usage=kept)
        found = tensors(folder, plan["weights"])
        for w in plan["weights"]["tensors"]:
            x = found[w["name"]]
            assert (list(x.shape), x.dtype.name) == (w["shape"], w["dtype"])
            self.write(w["buffer"], x)
        pipelines = [self.pipeline(k) for k in plan["kernels"]]
        self.launches = []
        for launch in plan["launches"]:
            pipeline, layout = pipelines[launch["kernel"]]
            words = np.array(launch["words"], np.uint32)
            resources = [{"buffer": self.buffers[b], "offset": at, "size": n} for b, at, n in launch["bindings"]]
            resources.append(
                {
                    "buffer": self.device.create_buffer_with_data(data=words, usage=usage.UNIFORM),
                    "offset": 0,
                    "size": words.nbytes,
                }
            )
            if plan["kernels"][launch["kernel"]]["checks"]:
                resources.append({"buffer": self.faults, "offset": 0, "size": self.faults.size})
            entries = [{"binding": k, "resource": r} for k, r in enumerate(resources)]
            group = self.device.create_bind_group(layout=layout, entries=entries)
            self.launches.append((pipeline, group, launch["workgroups"]))

    def pipeline(self, kernel: Mapping[str, Any]) -> tuple[Any, Any]:
        import wgpu

        text = (self.folder / kernel["file"]).read_text()
        assert hashlib.sha256(text.encode()).hexdigest() == kernel["sha256"]
        types = ["read-only-storage" if a == "read" else "storage" for a in kernel["bindings"]]
        types += ["uniform", "storage"] if kernel["checks"] else ["uniform"]
        entries = [{"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": t}} for k, t in enumerate(types)]
        layout = self.device.create_bind_group_layout(entries=entries)
        made = self.device.create_compute_pipeline(
            layout=self.device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": self.device.create_shader_module(code=text), "entry_point": "main"},
        )
        return made, layout

    def write(self, buffer: int, x: Array) -> None:
        data = np.ascontiguousarray(x).tobytes()
        if data:
            self.device.queue.write_buffer(self.buffers[buffer], 0, data + bytes(-len(data) % 4))

    def run(self, steps: Sequence[Mapping[str, Any]], round: int) -> None:
        """Run steps; ``round`` is that of the loop whose steps they are."""
        for step in steps:
            match step:
                case {"launches": [first, end]}:
                    encoder = self.device.create_command_encoder()
                    into = encoder.begin_compute_pass()
                    for pipeline, group, workgroups in self.launches[first:end]:
                        into.set_pipeline(pipeline)
                        into.set_bind_group(0, group)
                        into.dispatch_workgroups(*workgroups, 1)
                    into.end()
                    self.device.queue.submit([encoder.finish()])
                case {"copy": [source, goal, size], "strides": [source_stride, goal_stride]}:
                    encoder = self.device.create_command_encoder()
                    encoder.copy_buffer_to_buffer(
                        self.buffers[source], source_stride * round, self.buffers[goal], goal_stride * round, size
                    )
                    self.device.queue.submit([encoder.finish()])
                case {"times": times, "reverse": reverse, "steps": inner}:
                    for k in reversed(range(times)) if reverse else range(times):
                        self.run(inner, k)
                case {"while": condition, "steps": inner}:
                    while self.holds(condition):
                        self.run(inner, 0)
                case {"if": condition, "then": then, "else": otherwise}:
                    self.run(then if self.holds(condition) else otherwise, 0)
                case _:
                    raise AssertionError(step)

    def holds(self, buffer: int) -> bool:
        """Whether a condition holds; none does after an index out of range."""
        found: bool = self.device.queue.read_buffer(self.buffers[buffer])[0] != 0
        return found and not np.frombuffer(self.device.queue.read_buffer(self.faults), np.uint32)[0]

    def selftest(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The inputs of the self-test and their results."""
        found = tensors(self.folder, self.plan["selftest"])
        return tuple({t["name"]: found[f"{kind}.{t['name']}"] for t in self.plan[f"{kind}s"]} for kind in ("input", "output"))  # type: ignore[return-value]

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs.

        Raises:
            IndexError: An index is out of range.
        """
        for t in self.plan["inputs"]:
            x = inputs[t["name"]]
            assert (list(x.shape), x.dtype.name) == (t["shape"], t["dtype"])
            self.write(t["buffer"], x)
        encoder = self.device.create_command_encoder()
        encoder.clear_buffer(self.faults)
        self.device.queue.submit([encoder.finish()])
        self.run(self.plan["steps"], 0)
        for check in self.plan["checks"]:
            if 0 in self.device.queue.read_buffer(self.buffers[check["buffer"]])[: check["bytes"]].tolist():
                raise IndexError(check["expected"])
        words = np.frombuffer(self.device.queue.read_buffer(self.faults), np.uint32)
        if words[0]:
            site = 0xFFFFFFFF - int(words[0])
            raise IndexError(f"{self.plan['faults'][site]['op']}: {0xFFFFFFFF - int(words[1 + site]) - (1 << 31)}")
        results = {}
        for t in self.plan["outputs"]:
            of = BFLOAT16 if t["dtype"] == "bfloat16" else np.dtype(t["dtype"])
            count = int(np.prod(t["shape"]))
            data = self.device.queue.read_buffer(self.buffers[t["buffer"]])
            results[t["name"]] = np.frombuffer(data, np.uint8)[: count * of.itemsize].view(of).reshape(t["shape"])
        return results
