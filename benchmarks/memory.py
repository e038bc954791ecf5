"""Peak memory of a gradient through 24 blocks, with each checkpointing strategy: the table in docs/autodiff.md.

``python -m benchmarks.memory [DEVICE]``. Peaks are what tensors own beside the parameters, from the device's own account, so
they are the same in every run; all gradients must have the same bits.
"""

from __future__ import annotations

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


def main(device: str = "cpu") -> None:
    """Print the table for a device."""
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


if __name__ == "__main__":
    main(*sys.argv[1:2])
