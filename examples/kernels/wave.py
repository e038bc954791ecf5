"""The wave equation behind a wall with two slits, and which depth of a lens focuses it best: gradients through a kernel.

python examples/kernels/wave.py --out wave.png
"""

from __future__ import annotations

import numpy as np
from pictures import options, save

import firebrick as fb

K = fb.kernel


@K
def step(
    now: K.In[fb.float32, "n, m"], before: K.In[fb.float32, "n, m"], speed: K.In[fb.float32, "n, m"],
    out: K.Out[fb.float32, "n, m"],
):  # fmt: skip
    """One time step; speed is (velocity · step / spacing)², at most 1/2, and 0 in a wall. The border absorbs."""
    i, j = K.index()
    if 0 < i < now.shape[0] - 1 and 0 < j < now.shape[1] - 1:
        bend = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1] - 4.0 * now[i, j]
        out[i, j] = 2.0 * now[i, j] - before[i, j] + speed[i, j] * bend
    else:
        out[i, j] = 0.0


def run(speed, steps, source):
    """The field after some steps, with a line of sources, and the energy that has passed each place."""
    now = before = energy = fb.zeros(speed.shape)
    for k in range(steps):
        now, before = step(now, before, speed) + source * float(np.sin(0.35 * k)), now
        energy = energy + now * now
    return now, energy


def main() -> None:
    path, short = options(__doc__ or "")
    n, steps = (64, 60) if short else (360, 700)
    speed = np.full((n, n), 0.25, np.float32)
    wall, middle, gap = n // 4, n // 2, n // 10
    speed[wall : wall + 3] = 0.0
    for slit in (middle - gap, middle + gap):
        speed[wall : wall + 3, slit - n // 60 - 1 : slit + n // 60 + 2] = 0.25
    source = np.zeros((n, n), np.float32)
    source[3, 2:-2] = 0.3
    speed, source = fb.asarray(speed), fb.asarray(source)
    field, energy = fb.jit(run, static_argnames=("steps",))(speed, steps, source)

    # which cells should slow the wave down for more energy at one place: one backward pass through all steps
    few = min(steps, 80)
    small = fb.asarray(np.full((48, 48), 0.25, np.float32))
    line = np.zeros((48, 48), np.float32)
    line[3, 2:-2] = 0.3
    pull = fb.grad(lambda speed: run(speed, few, fb.asarray(line))[1][40, 24])(small)
    assert fb.all(fb.isfinite(pull)).item()
    panels = {
        "two slits": field.numpy(),
        "energy": np.log1p(energy.numpy()),
        "its gradient at one place": pull.numpy(),
    }
    save(path, panels, "RdBu")


if __name__ == "__main__":
    main()
