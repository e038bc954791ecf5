"""LAMB, Lion and Muon against NumPy written from their papers' formulas, and Muon against torch's with an exact iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim

STEPS = 20
SHAPES = {"tall": (5, 3), "wide": (3, 6), "bias": (4,), "scalar": ()}
Arrays = dict[str, np.ndarray]
Rule = Callable[[np.ndarray, np.ndarray, dict[str, Any], int], np.ndarray]


class Bag(nn.Module):
    """A parameter of each shape."""

    def __init__(self, device: str) -> None:
        for name, value in values(0).items():
            setattr(self, name, nn.Parameter(fb.asarray(value, device=device)))


def values(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.normal(size=s)) for n, s in SHAPES.items()}


def gradients(p: Arrays, step: int) -> Arrays:
    """Of Σ c p + p² / 2."""
    return {n: values(step + 1)[n] + p[n] for n in p}


def lamb(
    p: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int, *, lr: float, b1: float, b2: float, decay: float
) -> np.ndarray:
    """Algorithm 2 of arXiv:1904.00962, with φ(z) = z."""
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g**2
    r = (s["m"] / (1 - b1**t)) / (np.sqrt(s["v"] / (1 - b2**t)) + 1e-6)
    u = r + decay * p
    return p - lr * np.linalg.norm(p.ravel()) / np.linalg.norm(np.ravel(u)) * u


def lion(
    p: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int, *, lr: float, b1: float, b2: float, decay: float
) -> np.ndarray:
    """Algorithm 2 of arXiv:2302.06675."""
    m = s.get("m", np.zeros_like(p))
    c = b1 * m + (1 - b1) * g
    s["m"] = b2 * m + (1 - b2) * g
    return p - lr * (np.sign(c) + decay * p)


def orthogonal(g: np.ndarray) -> np.ndarray:
    """Five steps of Newton–Schulz, by singular values: each goes through 3.4445 σ - 4.775 σ³ + 2.0315 σ⁵."""
    u, sigma, vt = np.linalg.svd(g, full_matrices=False)
    sigma = sigma / np.linalg.norm(sigma)
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
    return u @ np.diag(sigma) @ vt


def muon(p: np.ndarray, g: np.ndarray, s: dict[str, Any], t: int, *, lr: float, decay: float, match: bool) -> np.ndarray:
    """Matrices as in arXiv:2502.16982, section 2; others by AdamW."""
    kept = p * (1 - lr * decay)
    if p.ndim != 2:
        s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g**2
        return kept - lr * (s["m"] / (1 - 0.9**t)) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)
    s["b"] = 0.95 * s.get("b", 0.0) + 0.05 * g
    u = 0.05 * g + 0.95 * s["b"]
    n, m = p.shape
    return kept - lr * (0.2 * np.sqrt(max(n, m)) if match else np.sqrt(max(1.0, n / m))) * orthogonal(u)


CASES: dict[str, tuple[Callable[[Bag], optim.Optimizer], Rule]] = {
    "lamb": (
        lambda b: optim.LAMB(b, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1),
        lambda p, g, s, t: lamb(p, g, s, t, lr=0.02, b1=0.8, b2=0.95, decay=0.1),
    ),
    "lamb without decay": (
        lambda b: optim.LAMB(b, lr=0.05), lambda p, g, s, t: lamb(p, g, s, t, lr=0.05, b1=0.9, b2=0.999, decay=0.0),
    ),
    "lion": (lambda b: optim.Lion(b, lr=0.01), lambda p, g, s, t: lion(p, g, s, t, lr=0.01, b1=0.9, b2=0.99, decay=0.0)),
    "lion, decay": (
        lambda b: optim.Lion(b, lr=0.02, betas=(0.7, 0.9), weight_decay=0.4),
        lambda p, g, s, t: lion(p, g, s, t, lr=0.02, b1=0.7, b2=0.9, decay=0.4),
    ),
    "muon": (lambda b: optim.Muon(b, lr=0.02), lambda p, g, s, t: muon(p, g, s, t, lr=0.02, decay=0.1, match=False)),
    "muon, adamw's rate": (
        lambda b: optim.Muon(b, lr=0.01, weight_decay=0.0, adjust="match_rms_adamw"),
        lambda p, g, s, t: muon(p, g, s, t, lr=0.01, decay=0.0, match=True),
    ),
}  # fmt: skip


@pytest.mark.turns
@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_equal_the_papers_formulas(case: str, device: str) -> None:
    make, rule = CASES[case]
    bag = Bag(device)
    opt = make(bag)
    p = values(0)
    states: dict[str, dict[str, Any]] = {n: {} for n in p}
    for step in range(STEPS):
        theirs = gradients(p, step)

        def loss(b: Bag, step: int = step) -> fb.Tensor:
            parts = [(getattr(b, n), fb.asarray(c, device=device)) for n, c in values(step + 1).items()]
            total = fb.sum(parts[0][0] * 0.0)
            for q, c in parts:
                total = total + fb.sum(q * c + q * q * 0.5)
            return total

        opt.update(bag, fb.grad(loss)(bag))
        p = {n: rule(p[n], theirs[n], states[n], step + 1) for n in p}
        for n in p:
            np.testing.assert_allclose(getattr(bag, n).numpy(), p[n], rtol=1e-10, atol=1e-10, err_msg=f"{n}, step {step}")


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_muon_equals_torchs_but_for_its_bfloat16(adjust: str, nesterov: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", minversion="2.9", reason="torch with Muon, to compare with")
    from torch.optim import _muon

    monkeypatch.setattr(  # torch rounds to bfloat16 here; everything around it stays torch's
        _muon, "_zeropower_via_newtonschulz", lambda g, *_: torch.asarray(orthogonal(g.numpy()))
    )
    start = np.random.default_rng(3).normal(size=(6, 4))
    layer = nn.Linear(4, 6, bias=False, dtype=fb.float64)
    layer.load_state_dict({"weight": fb.asarray(start)})
    weight = torch.tensor(start, requires_grad=True)
    ours = optim.Muon(layer, lr=0.03, nesterov=nesterov, adjust=adjust)
    theirs = torch.optim.Muon([weight], lr=0.03, nesterov=nesterov, adjust_lr_fn=adjust)
    for step in range(STEPS):
        c = np.random.default_rng(step).normal(size=(6, 4))
        theirs.zero_grad()
        (weight * torch.asarray(c) + weight**2 / 2).sum().backward()
        theirs.step()
        ours.update(layer, fb.grad(lambda m, c=c: fb.sum(m.weight * fb.asarray(c) + m.weight**2.0 / 2.0))(layer))
        np.testing.assert_allclose(layer.weight.numpy(), weight.detach().numpy(), rtol=1e-10, atol=1e-10)


def test_newton_schulz_makes_singular_values_near_one(device: str) -> None:
    from firebrick.optim.muon import newton_schulz

    for shape in ((8, 3), (3, 8), (4, 4)):
        x = np.random.default_rng(0).normal(size=shape)
        sigma = np.linalg.svd(newton_schulz(fb.asarray(x, device=device)).numpy(), compute_uv=False)
        assert sigma.min() > 0.6
        assert sigma.max() < 1.3
    assert not newton_schulz(fb.zeros((2, 3), device=device)).numpy().any()


def test_lamb_leaves_a_ratio_of_nothing_at_one(device: str) -> None:
    layer = nn.Linear(2, 1, bias=False, dtype=fb.float64, device=device)
    layer.load_state_dict({"weight": fb.zeros((1, 2), dtype=fb.float64, device=device)})
    opt = optim.LAMB(layer, lr=0.1)
    opt.update(layer, fb.grad(lambda m: fb.sum(m.weight))(layer))
    np.testing.assert_allclose(layer.weight.numpy(), -0.1, rtol=1e-5)
    opt.update(layer, fb.grad(lambda m: fb.sum(m.weight * 0.0))(layer))
    assert np.isfinite(layer.weight.numpy()).all()
