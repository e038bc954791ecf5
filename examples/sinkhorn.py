"""Optimal transport with gradients: points flow along the gradient of the Sinkhorn divergence, from a disc to a spiral.

python examples/sinkhorn.py --out sinkhorn.png
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import firebrick as fb


def transport(x: fb.Tensor, y: fb.Tensor, epsilon: float, iterations: int) -> tuple[fb.Tensor, fb.Tensor]:
    """Sinkhorn's algorithm for uniform measures on points x [n, 2] and y [m, 2], on logarithms.

    Returns:
        The cost ⟨P, |x - y|²⟩ + epsilon · KL(P, uniform), and the plan P [n, m]. Its columns sum to 1/m; its rows sum to 1/n
        after enough iterations.
    """
    n, m = x.shape[0], y.shape[0]
    distance = fb.sum((x[:, None] - y[None, :]) ** 2.0, axis=-1)

    def iterate(potentials: tuple[fb.Tensor, fb.Tensor], _: None) -> tuple[tuple[fb.Tensor, fb.Tensor], None]:
        f, g = potentials
        f = epsilon * (math.log(m) - fb.logsumexp((g[None, :] - distance) / epsilon, axis=1))
        g = epsilon * (math.log(n) - fb.logsumexp((f[:, None] - distance) / epsilon, axis=0))
        return (f, g), None

    (f, g), _ = fb.scan(iterate, (fb.zeros_like(x[:, 0]), fb.zeros_like(y[:, 0])), None, length=iterations)
    plan = fb.exp((f[:, None] + g[None, :] - distance) / epsilon) / (n * m)
    return fb.mean(f) + fb.mean(g), plan


def divergence(x: fb.Tensor, y: fb.Tensor, epsilon: float, iterations: int) -> fb.Tensor:
    """The cost without its entropic bias: 0 where the point clouds are equal (Feydy et al., arXiv:1810.08278)."""
    (both, _), (left, _), (right, _) = (transport(a, b, epsilon, iterations) for a, b in ((x, y), (x, x), (y, y)))
    return both - 0.5 * (left + right)


def clouds(n: int) -> tuple[fb.Tensor, fb.Tensor]:
    """A disc, and a spiral with two arms."""
    rng = np.random.default_rng(0)
    radius, angle = np.sqrt(rng.uniform(0, 1, n)), rng.uniform(0, 2 * np.pi, n)
    disc = 0.4 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    along, arm = np.sqrt(rng.uniform(0.02, 1, n)), np.arange(n) % 2
    turn = 1.7 * np.pi * along + np.pi * arm
    spiral = along[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1) + rng.normal(size=(n, 2)) * 0.02
    return fb.asarray(disc, dtype=fb.float32), fb.asarray(spiral, dtype=fb.float32)


def check() -> None:
    """Compare the gradient with finite differences in float64, and the marginals of the plan with the weights."""
    x, y = (fb.astype(a[:8], fb.float64) for a in clouds(20))
    fb.gradcheck(lambda x, y: divergence(x, y, 0.1, 20), [x, y])
    plan = transport(x, y, 0.1, 200)[1]
    error = max(fb.max(fb.abs(8.0 * fb.sum(plan, axis=axis) - 1.0)) for axis in (0, 1))
    print(f"gradient equals finite differences; relative error of the marginals: {error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("sinkhorn.png"), help="picture to write (sinkhorn.png)")
    parser.add_argument("--short", action="store_true", help="few points and steps")
    args = parser.parse_args()
    check()
    n, steps = (60, 12) if args.short else (600, 40)
    x, y = clouds(n)
    value_and_gradient = fb.jit(fb.value_and_grad(lambda x: divergence(x, y, 0.01, 60)))
    frames, costs = [x], []
    for _ in range(steps):
        cost, gradient = value_and_gradient(x)
        x = x - 0.1 * n * gradient  # each point has weight 1/n
        frames.append(x)
        costs.append(cost)
    print(f"divergence: {costs[0]:.4f} at first, {costs[-1]:.5f} after {steps} steps")
    draw(fb.read(frames), y.numpy(), args.out)


def draw(frames: list[np.ndarray], target: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [0, len(frames) // 12, len(frames) // 5, len(frames) - 1]
    figure, axes = pyplot.subplots(1, len(shown), figsize=(16, 4.2), layout="constrained")
    colours = np.arctan2(frames[0][:, 1], frames[0][:, 0])  # of where a point comes from
    for axis, k in zip(axes, shown, strict=True):
        axis.scatter(*target.T, s=14, color="0.85", linewidths=0)
        axis.scatter(*frames[k].T, s=10, c=colours, cmap="hsv", linewidths=0)
        axis.set(title=f"step {k}", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
        axis.set_axis_off()
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
