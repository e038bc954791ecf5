"""A layer of ours trained beside torch's, from the same weights, in float64: outputs, gradients, weights and buffers alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import firebrick as fb

TOLERANCE = 1e-10


def train_alike(
    ours: fb.nn.Module,
    theirs: Any,
    inputs: Callable[[np.random.Generator], Sequence[np.ndarray]],
    *,
    names: dict[str, str] | None = None,
    ours_call: Callable[..., Any] | None = None,
    theirs_call: Callable[..., Any] | None = None,
    steps: int = 20,
    lr: float = 0.02,
) -> None:
    """Take ``steps`` steps of gradient descent on Σ output · weights with both, and compare at each step.

    Args:
        ours: Module of float64 parameters.
        theirs: torch module of float64 parameters; ours starts from its parameters and buffers.
        inputs: Draws the arrays of one step.
        names: Our parameter and buffer names → torch's, where they are not the same.
        ours_call: ``(module, *tensors) -> Tensor``, where it is not ``module(*tensors)``.
        theirs_call: ``(module, *tensors) -> torch.Tensor`` likewise.
        steps: How many.
        lr: Learning rate of both.
    """
    import torch

    rng = np.random.default_rng(0)
    names = names or {}
    params, buffers = dict(theirs.named_parameters()), dict(theirs.named_buffers())
    mine = [n for n, _ in ours.named_parameters()]
    assert {names.get(n, n) for n in mine} == set(params), (mine, sorted(params))
    held = {n: names.get(n, n) for n, _ in (*ours.named_parameters(), *ours.named_buffers())}
    everything = {**params, **{n: b for n, b in buffers.items() if n in held.values()}}
    ours.load_state_dict({n: fb.asarray(everything[other].detach().numpy().copy()) for n, other in held.items()})
    call = ours_call or (lambda m, *xs: m(*xs))
    their_call = theirs_call or (lambda m, *xs: m(*xs))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=lr)
    own = fb.optim.SGD(ours, lr=lr)
    for step in range(steps):
        arrays = inputs(rng)
        y = their_call(theirs, *(torch.asarray(a) for a in arrays))
        weights = np.asarray(rng.normal(size=tuple(y.shape))) / max(1, y.numel())
        optimizer.zero_grad()
        (y * torch.asarray(weights)).sum().backward()

        def loss(m: fb.nn.Module, arrays: Any = arrays, weights: Any = weights) -> tuple[fb.Tensor, fb.Tensor]:
            out = call(m, *(fb.asarray(a) for a in arrays))
            return fb.sum(out * fb.asarray(weights)), out

        (_, out), grads = fb.value_and_grad(loss, has_aux=True)(ours)
        where = f"step {step}"
        _close(out.numpy(), y.detach().numpy(), f"{where}: output")
        for n, p in ours.named_parameters():
            _close(grads[p].numpy(), params[names.get(n, n)].grad.numpy(), f"{where}: gradient of {n}")
        optimizer.step()
        own.update(ours, grads)
    for n, t in (*ours.named_parameters(), *ours.named_buffers()):
        _close(t.numpy(), everything[names.get(n, n)].detach().numpy(), f"{n} after {steps} steps")


def _close(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.shape == want.shape, f"{what}: {got.shape} for {want.shape}"
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=what)
