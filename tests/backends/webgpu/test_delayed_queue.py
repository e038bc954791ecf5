"""A device whose queue is late: each submission waits for some milliseconds of other work. What the host reads, writes and
gives back in the meantime is never that of a kernel that has not run yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forecasting import train

import firebrick as fb

TURNS = 20_000
WORK = f"""
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    var x = a[id.x];
    for (var k = 0u; k < {TURNS}u; k++) {{ x = x * 1664525u + 1013904223u; }}
    a[id.x] = x;
}}
"""


class Delay:
    """Work before each submission to a device's queue."""

    def __init__(self, device: fb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu = device.backend.groups(device).gpu
        gpu, wgpu = self.gpu._device, self.gpu._wgpu
        self.pipeline = self.gpu._compiled(WORK, (False,), ())
        self.buffer = gpu.create_buffer(size=4 * 64, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
        self.group = gpu.create_bind_group(
            layout=self.pipeline.layout,
            entries=[{"binding": 0, "resource": {"buffer": self.buffer, "offset": 0, "size": 4 * 64}}],
        )
        self.submissions = 0
        queue = type(gpu.queue)
        self._submit = queue.submit

        def late(queue: Any, commands: list[Any]) -> None:
            if queue is gpu.queue:
                self.submissions += 1
                self._submit(queue, [self.work()])
            self._submit(queue, commands)

        monkeypatch.setattr(queue, "submit", late)

    def work(self) -> Any:
        encoder = self.gpu._device.create_command_encoder()
        began = encoder.begin_compute_pass()
        began.set_pipeline(self.pipeline.pipeline)
        began.set_bind_group(0, self.group)
        began.dispatch_workgroups(1)
        began.end()
        return encoder.finish()


@pytest.fixture
def delayed(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> fb.Device:
    Delay(anew, monkeypatch)
    return anew


def test_the_queue_is_late(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests below delay something: the work before a submission has been done when a value is there."""
    delay = Delay(anew, monkeypatch)
    x = fb.ones(3, device=anew) + 1.0
    before = delay.submissions
    assert x.tolist() == [2.0, 2.0, 2.0]
    assert delay.submissions > before
    found, want = np.frombuffer(delay.gpu._device.queue.read_buffer(delay.buffer), np.uint32), 0
    for _ in range(TURNS * delay.submissions):
        want = (want * 1664525 + 1013904223) % 2**32
    assert found.tolist() == [want] * 64


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_training_does_not_freeze(delayed: fb.Device, jit: bool) -> None:
    before, *losses = train("webgpu:0", jit=jit)
    assert losses[-1] <= 0.2 * before
    np.testing.assert_allclose([before, *losses], train("cpu:0", jit=jit), rtol=1e-3)


Values = list[Any]


def _uploaded(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    """A new tensor in place of one whose buffer may be used again."""
    i, x = rng.integers(len(ts)), rng.integers(-9, 9, ts[0].shape).astype(np.float32)
    ts[i] = fb.asarray(x, device="webgpu:0")
    arrays[i] = x.copy()
    x[:] = np.nan  # the host's memory is its own again


def _added(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    i, j = rng.integers(len(ts), size=2)
    ts[i] += ts[j]
    arrays[i] = arrays[i] + arrays[j]


def _swapped(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    i, j = rng.integers(len(ts), size=2)
    ts[i], ts[j] = ts[j] - ts[i], ts[i]
    arrays[i], arrays[j] = arrays[j] - arrays[i], arrays[i]


def _assigned(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    """A part of a tensor is written, from a view of itself too."""
    i, j = rng.integers(len(ts), size=2)
    rows = slice(*sorted(int(n) for n in rng.integers(0, ts[0].shape[0] + 1, size=2)))
    ts[i][rows] = fb.flip(ts[j], axis=0)[rows] * 0.5
    arrays[i] = arrays[i].copy()
    arrays[i][rows] = arrays[j][::-1][rows] * np.float32(0.5)


def _transposed(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    i, j = rng.integers(len(ts), size=2)
    ts[i] = fb.matrix_transpose(ts[j])
    arrays[i] = arrays[j].T


def _moved(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    i = rng.integers(len(ts))
    ts[i] = ts[i].to("numpy").to("webgpu:0")


@fb.jit
def _both(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
    z = fb.matrix_transpose(x) - y
    return z * 0.25, fb.flip(z, axis=1) + x


def _compiled(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    i, j = rng.integers(len(ts), size=2)
    ts[i], ts[j] = _both(ts[i], ts[j])
    z = arrays[i].T - arrays[j]
    arrays[i], arrays[j] = z * np.float32(0.25), z[:, ::-1] + arrays[i]


@fb.jit
def _update(state: dict[str, fb.Tensor], x: fb.Tensor) -> None:
    state["a"][...] = state["a"] * 0.5 + x
    state["b"] -= state["a"]


def _state(rng: np.random.Generator, ts: Values, arrays: Values) -> None:
    """A compiled step whose old state it may write over."""
    i, j, k = rng.integers(len(ts), size=3)
    state = {"a": ts[i] + 0.0, "b": ts[j] + 0.0}
    a, b = arrays[i], arrays[j]
    for _ in range(3):
        _update(state, ts[k])
        a = a * np.float32(0.5) + arrays[k]
        b = b - a
    ts[i], ts[j] = state["a"], state["b"]
    arrays[i], arrays[j] = a, b


CHANGES: list[Callable[[np.random.Generator, Values, Values], None]] = [
    _uploaded, _added, _swapped, _assigned, _transposed, _moved, _compiled, _state,
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 5, 16])
def test_every_value_is_that_of_the_last_kernel_that_wrote_it(delayed: fb.Device, size: int) -> None:
    rng = np.random.default_rng(size)
    arrays: Values = [rng.integers(-9, 9, (size, size)).astype(np.float32) for _ in range(4)]
    ts: Values = [fb.asarray(x, device="webgpu:0") for x in arrays]
    with np.errstate(all="ignore"):
        for turn in range(150):
            CHANGES[rng.integers(len(CHANGES))](rng, ts, arrays)
            k = rng.integers(len(ts))
            if rng.random() < 0.3:
                assert ts[k].numpy().tobytes() == np.ascontiguousarray(arrays[k]).tobytes(), turn
            for v in range(len(ts)):  # no number grows
                if np.abs(arrays[v]).max() > 1e6:
                    ts[v], arrays[v] = ts[v] * 0.0 + 1.0, arrays[v] * 0.0 + np.float32(1.0)
    for t, want in zip(ts, arrays, strict=True):
        assert t.numpy().tobytes() == np.ascontiguousarray(want).tobytes()


def test_memory_is_given_back_while_kernels_wait(delayed: fb.Device) -> None:
    found = []
    for k in range(8):
        x = fb.asarray(np.full((64, 64), float(k), np.float32), device=delayed)
        y = x * 2.0 + 1.0
        found.append(y)
        delayed.backend.flush(delayed)
        del x
        fb.memory_cleanup(delayed)
    assert [float(y[0, 0].item()) for y in found] == [2.0 * k + 1.0 for k in range(8)]
