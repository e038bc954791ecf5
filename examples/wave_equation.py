"""The wave equation by ``fb.scan``, and its gradient: the speed inside a plate is found from waves recorded around it.

python examples/wave_equation.py --out wave_equation.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import firebrick as fb
from firebrick import nn, optim


class Plate(nn.Module):
    """A square of n × n cells, with sources and receivers on a circle.

    Args:
        speed: Speed of the wave [n, n], in cells a time step, at most 0.7; near the circle and outside of it, 0.5 is taken.
        shots: Number of sources, each of which has a field of its own.
        receivers: Number of points at which each field is recorded.
    """

    def __init__(self, speed: fb.Tensor, shots: int, receivers: int) -> None:
        n = speed.shape[0]
        self.speed = nn.Parameter(speed)
        self.receivers = circle(n, receivers)
        rows, columns = circle(n, shots)
        sources = np.zeros((shots, n, n), np.float32)
        sources[np.arange(shots), rows.numpy(), columns.numpy()] = 1.0
        self.sources = nn.Buffer(fb.asarray(sources))
        away = np.hypot(*(np.mgrid[0:n, 0:n] - n / 2))
        self.inside = nn.Buffer(fb.asarray(away < 0.34 * n))
        edge = np.minimum(np.arange(n), np.arange(n)[::-1])
        damping = np.exp(-((0.03 * np.maximum(0, n // 8 - edge)) ** 2)).astype(np.float32)
        self.damping = nn.Buffer(fb.asarray(np.minimum(damping[:, None], damping[None, :])))  # the border absorbs waves

    def forward(self, wavelet: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        """Recordings [steps, shots, receivers] of a source that follows the wavelet [steps], and the last field."""
        squared = fb.where(self.inside, self.speed, 0.5) ** 2.0

        def step(carry: tuple[fb.Tensor, fb.Tensor], amplitude: fb.Tensor) -> tuple[tuple[fb.Tensor, fb.Tensor], fb.Tensor]:
            now, before = carry
            u = fb.pad(now, ((0, 0), (1, 1), (1, 1)))
            laplacian = u[:, 2:, 1:-1] + u[:, :-2, 1:-1] + u[:, 1:-1, 2:] + u[:, 1:-1, :-2] - 4.0 * now
            following = self.damping * (2.0 * now - self.damping * before + squared * laplacian + amplitude * self.sources)
            rows, columns = self.receivers
            return (following, now), following[:, rows, columns]

        zero = fb.zeros_like(self.sources)
        (field, _), recorded = fb.scan(step, (zero, zero), wavelet)
        return recorded, field


def circle(n: int, count: int) -> tuple[fb.Tensor, fb.Tensor]:
    """Rows and columns of points on a circle."""
    angle = 2 * np.pi * (np.arange(count) + 0.5) / count
    rows, columns = (np.rint(n / 2 + 0.36 * n * f(angle)).astype(np.int64) for f in (np.sin, np.cos))
    return fb.asarray(rows), fb.asarray(columns)


def true_speed(n: int) -> fb.Tensor:
    """What is to be found: a slow disc and a fast bar."""
    y, x = np.mgrid[0:n, 0:n] / n - 0.5
    speed = np.full((n, n), 0.5)
    speed[(x + 0.1) ** 2 + (y - 0.08) ** 2 < 0.11**2] = 0.44
    speed[(np.abs(x - 0.13) < 0.05) & (np.abs(y + 0.05) < 0.14)] = 0.57
    return fb.asarray(speed, dtype=fb.float32)


def check() -> float:
    """Relative difference of a directional derivative of the last field's energy from finite differences, in float64."""
    rng = np.random.default_rng(0)
    plate = Plate(true_speed(24), shots=1, receivers=4).astype(fb.float64)
    speed, along, wavelet = plate.speed.detach(), fb.asarray(rng.normal(size=(24, 24))), fb.asarray(rng.normal(size=20))

    def energy(plate: Plate) -> fb.Tensor:
        return fb.sum(plate(wavelet)[1] ** 2.0)

    slope = float(fb.sum(fb.grad(energy)(plate)[plate.speed] * along))
    energies = []
    for step in (1e-5, -1e-5):
        plate.load_state_dict({"speed": speed + step * along}, strict=False)
        energies.append(float(energy(plate)))
    return abs((energies[0] - energies[1]) / 2e-5 / slope - 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("wave_equation.png"), help="picture to write (wave_equation.png)")
    parser.add_argument("--short", action="store_true", help="a small plate and few steps")
    args = parser.parse_args()
    print(f"relative difference of the gradient from finite differences: {check():.1e}")
    n, shots, receivers, steps, rounds = (32, 6, 16, 70, 25) if args.short else (96, 12, 64, 260, 100)

    time = np.arange(steps) - 16.0
    wavelet = fb.asarray((1 - time**2 / 18) * np.exp(-(time**2) / 36), dtype=fb.float32)  # Ricker's
    truth, uniform = true_speed(n), fb.full((n, n), 0.5)
    recorded, _ = Plate(truth, shots, receivers)(wavelet)

    plate = Plate(uniform, shots, receivers)
    optimizer = optim.Adam(plate, lr=optim.cosine(4e-3, rounds))
    misfit = fb.value_and_grad(lambda plate: 1e3 * fb.mse_loss(plate(wavelet)[0], recorded))

    @fb.jit
    def descend() -> fb.Tensor:
        loss, gradients = misfit(plate)
        optimizer.update(plate, gradients)
        return loss

    losses = fb.read([descend() for _ in range(rounds)])
    print(f"misfit of the recordings: {losses[0]:.4f} at first, {losses[-1]:.5f} after {rounds} rounds")
    before, after = (fb.sqrt(fb.mse_loss(speed, truth)) for speed in (uniform, plate.speed))
    print(f"error of the speed: {before:.4f} at first, {after:.4f} at last")
    _, field = Plate(truth, shots, receivers)(wavelet[: int(1.3 * n)])
    draw(field[0].numpy(), truth.numpy(), plate.speed.numpy(), plate.receivers, args.out)


def draw(field: np.ndarray, truth: np.ndarray, found: np.ndarray, points: tuple[fb.Tensor, fb.Tensor], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    high = 3 * float(field.std())
    axes[0].imshow(field, cmap="RdBu", vmin=-high, vmax=high)
    axes[0].scatter(points[1].numpy(), points[0].numpy(), s=8, color="black")
    axes[0].set_title("the field of one source, and the receivers")
    for axis, speed, title in ((axes[1], truth, "true speed"), (axes[2], found, "speed found from the recordings")):
        shown = axis.imshow(speed, cmap="viridis", vmin=truth.min(), vmax=truth.max())
        axis.set_title(title)
    figure.colorbar(shown, ax=axes[1:], label="cells a time step")
    for axis in axes:
        axis.set_axis_off()
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
