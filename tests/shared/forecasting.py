"""A tiny patch transformer on 15 windows of a series, the training that once froze because destinations read as zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

import firebrick as fb


def windows(count: int = 15, window: int = 24, horizon: int = 4) -> tuple[Any, Any]:
    """``count`` windows of a noisy seasonal series, and what follows each."""
    rng = np.random.default_rng(7)
    t = np.arange(count * 6 + window + horizon)
    series = np.sin(2 * np.pi * t / 12) + 0.5 * np.sin(2 * np.pi * t / 5) + 0.05 * rng.normal(size=t.size)
    starts = np.arange(count) * 6
    x = np.stack([series[s : s + window] for s in starts])
    y = np.stack([series[s + window : s + window + horizon] for s in starts])
    return x.astype(np.float32), y.astype(np.float32)


def train(device: str, epochs: int = 10, jit: bool = False) -> list[float]:
    """Losses before training and after each epoch, by hand."""
    fb.random.seed(0)
    model = fb.models.patch_transformer_forecaster(24, 4, patch=6, dim=16, heads=2, layers=1).to(device)
    optimizer = fb.optim.Adam(model, lr=1e-2)
    x, y = (fb.asarray(a, device=device) for a in windows())

    def step(model: Any, optimizer: Any, x: fb.Tensor, y: fb.Tensor) -> None:
        _, grads = fb.value_and_grad(lambda m, a, b: fb.mse_loss(m(a), b))(model, x, y)
        optimizer.update(model, grads)

    run = fb.jit(step) if jit else step
    losses = [fb.mse_loss(model(x), y).item()]
    for _ in range(epochs):
        for at in range(0, 15, 5):
            run(model, optimizer, x[at : at + 5], y[at : at + 5])
        losses.append(fb.mse_loss(model(x), y).item())
    return losses
