"""Two galaxies that meet: the gravity of all pairs, a loop in each work item, integrated by leapfrog steps.

python examples/kernels/bodies.py --out bodies.png
"""

from __future__ import annotations

import numpy as np
from pictures import options, save

import firebrick as fb

K = fb.kernel


@K(grid="n")
def acceleration(at: K.In[fb.float32, "n, 2"], mass: K.In[fb.float32, "n"], softening: float, out: K.Out[fb.float32, "n, 2"]):
    """The acceleration of each body by all others."""
    i = K.index()
    ax, ay = 0.0, 0.0
    for k in range(at.shape[0]):
        dx = at[k, 0] - at[i, 0]
        dy = at[k, 1] - at[i, 1]
        near = dx * dx + dy * dy + softening
        pull = mass[k] / (near * fb.sqrt(near))
        ax += pull * dx
        ay += pull * dy
    out[i, 0] = ax
    out[i, 1] = ay


def galaxy(rng, count, centre, velocity, turn):
    radius, angle = np.sqrt(rng.uniform(0.02, 1.0, count)), rng.uniform(0, 2 * np.pi, count)
    at = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    speed = np.sqrt(radius**2 / (radius + 0.1))
    moving = turn * np.stack([-np.sin(angle), np.cos(angle)], 1) * speed[:, None]
    return at + centre, moving + velocity


def main() -> None:
    path, short = options(__doc__ or "")
    count, steps = (100, 20) if short else (3000, 600)
    rng = np.random.default_rng(0)
    parts = [galaxy(rng, count, (-1.5, -0.4), (0.25, 0.0), 1), galaxy(rng, count, (1.5, 0.4), (-0.25, 0.0), -1)]
    at, velocity = (fb.asarray(np.concatenate(x).astype(np.float32)) for x in zip(*parts, strict=True))
    mass = fb.full((2 * count,), 1.0 / count)

    @fb.jit
    def leap(at, velocity, dt):
        velocity = velocity + acceleration(at, mass, 0.02) * (0.5 * dt)
        at = at + velocity * dt
        return at, velocity + acceleration(at, mass, 0.02) * (0.5 * dt)

    def shown(at):
        return np.log1p(np.histogram2d(*at.numpy().T[::-1], bins=60 if short else 240, range=[[-3, 3]] * 2)[0])

    panels, momentum = {"before": shown(at)}, fb.sum(velocity, axis=0).numpy()
    for number in range(steps):
        at, velocity = leap(at, velocity, 0.01)
        if number == steps // 2:
            panels["as they meet"] = shown(at)
    drift = np.abs(fb.sum(velocity, axis=0).numpy() - momentum).max() / (2 * count)
    assert drift < 1e-3, "forces of pairs cancel, so momentum is kept"
    save(path, panels | {"after": shown(at)}, "inferno")


if __name__ == "__main__":
    main()
