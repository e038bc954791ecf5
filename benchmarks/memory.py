"""Peak memory: of a gradient through 24 blocks with each checkpointing strategy (the table in docs/autodiff.md), and of
training steps with and without ``jit``.

``python -m benchmarks.memory [DEVICE]``. Peaks are what tensors own beside the parameters, from the device's own account, so
they are the same in every run; all gradients must have the same bits. Of training steps there is the peak of the process, too:
how much more than before a step was resident at most, in a process of its own (Linux).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import firebrick as fb
from firebrick import nn

BATCH, TOKENS, CHANNELS, BLOCKS = 16, 64, 64, 24


class MixerBlock(nn.Module):
    """Mixes tokens, then channels. Source: Tolstikhin et al., "MLP-Mixer", arXiv:2105.01601."""

    def __init__(self, tokens: int, channels: int) -> None:
        self.norms = [nn.LayerNorm(channels), nn.LayerNorm(channels)]
        self.tokens = [nn.Linear(tokens, 2 * tokens), nn.Linear(2 * tokens, tokens)]
        self.channels = [nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [batch, tokens, channels] to the same."""
        y = fb.matrix_transpose(self.norms[0](x))
        x = x + fb.matrix_transpose(self.tokens[1](fb.gelu(self.tokens[0](y))))
        return x + self.channels[1](fb.gelu(self.channels[0](self.norms[1](x))))


def networks() -> dict[str, nn.Module]:
    """The deep networks of the table."""
    fb.random.seed(0)
    return {
        "MLP-Mixer": nn.Sequential(*(MixerBlock(TOKENS, CHANNELS) for _ in range(BLOCKS))),
        "transformer": nn.Sequential(*(nn.TransformerEncoderLayer(CHANNELS, 4, dropout=0.1) for _ in range(BLOCKS))),
    }


def peak(model: nn.Module, x: fb.Tensor, how: AbstractContextManager[Any]) -> tuple[int, bytes]:
    """Bytes above what lived before, and the bits of the gradients."""
    states = {n: g.state() for n, g in model.generators().items()}
    fb.memory_cleanup(x.device)
    before = fb.memory_stats(x.device)["live"]
    with how:
        _, grads = fb.value_and_grad(lambda m: fb.mean(fb.square(m(x))))(model)
    top = fb.memory_stats(x.device)["peak"] - before
    for n, g in model.generators().items():
        g.set_state(states[n])
    return top, b"".join(grads[p].numpy().tobytes() for p in model.parameters())


STEPS = {
    "ResNet-18": lambda: (fb.models.build("resnet18", 32, 3, width=32), (16, 3, 32, 32)),
    "6-block transformer": lambda: (
        fb.models.build("transformer-classifier", 32, 3, dim=128, heads=4, layers=6),
        (16, 3, 32, 32),
    ),
}


def step_peaks(name: str, device: str, jit: bool) -> dict[str, int]:
    """Bytes that a training step with Adam takes at most beyond what lived before it."""
    fb.set_default_device(device)
    fb.random.seed(0)
    model, shape = STEPS[name]()
    opt = fb.optim.Adam(model, lr=1e-3)
    gradient = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        loss, grads = gradient(model, x, y)
        opt.update(model, grads)
        return loss

    run = fb.jit(step) if jit else step
    rng = np.random.default_rng(0)
    x, y = fb.asarray(rng.normal(size=shape).astype(np.float32)), fb.asarray(rng.integers(0, 10, shape[0]))
    for _ in range(2):
        run(x, y).item()
    fb.memory_cleanup(fb.device(device))
    live = fb.memory_stats(fb.device(device))["live"]
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # the peak of what is resident begins anew
    before = _resident("VmRSS")
    for _ in range(2):
        run(x, y).item()
    return {"tensors": fb.memory_stats(fb.device(device))["peak"] - live, "process": _resident("VmHWM") - before}


def _resident(what: str) -> int:
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(what))


def steps(device: str) -> None:
    """Print the peaks of training steps, each measured in a process of its own."""
    # large blocks go back to the system when they are freed, so that what is resident is what is used
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    for name in STEPS:
        print(f"training step of {name} on {device}")
        for jit in (False, True):
            code = f"import json, benchmarks.memory as m; print(json.dumps(m.step_peaks({name!r}, {device!r}, {jit})))"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=settings)
            found = json.loads(done.stdout)
            tensors, process = (found[k] / 2**20 for k in ("tensors", "process"))
            print(f"  {'jit' if jit else 'eager'}: {tensors:.1f} MiB of tensors, {process:.1f} MiB of the process")


def main(device: str = "cpu") -> None:
    """Print the tables for a device."""
    x = fb.asarray(np.random.default_rng(0).normal(size=(BATCH, TOKENS, CHANNELS)), dtype=fb.float32, device=device)
    for name, model in networks().items():
        whole, bits = peak(model.to(device), x, nullcontext())
        print(f"{name}: {whole / 2**20:.1f} MiB")
        ways = {"balanced": fb.checkpointing("balanced")}
        ways |= {f"budget of {s:.0%}": fb.checkpointing(budget=int(s * whole)) for s in (0.3, 0.15)}
        for way, how in ways.items():
            less, same = peak(model, x, how)
            note = "" if same == bits else "  OTHER GRADIENTS"
            print(f"  {way}: {less / 2**20:.1f} MiB, {less / whole:.0%}{note}")
    steps(device)


if __name__ == "__main__":
    main(*sys.argv[1:2])
