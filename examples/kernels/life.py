"""Conway's game of life on a torus: a stencil of integers, a hundred generations in one compiled program.

python examples/kernels/life.py --out life.png
"""

from __future__ import annotations

import numpy as np
from pictures import options, save

import firebrick as fb

K = fb.kernel


@K
def generation(cells: K.In[fb.uint8, "n, m"], out: K.Out[fb.uint8, "n, m"]):
    """A cell lives with three neighbours, or with two if it lived before."""
    i, j = K.index()
    n, m = cells.shape
    neighbours = 0
    for di in K.unrolled(-1, 2):
        for dj in K.unrolled(-1, 2):
            if di != 0 or dj != 0:
                neighbours += int(cells[(i + di + n) % n, (j + dj + m) % m])
    out[i, j] = fb.uint8(1 if neighbours == 3 or (neighbours == 2 and cells[i, j] == 1) else 0)


def main() -> None:
    path, short = options(__doc__ or "")
    size, steps = (64, 20) if short else (320, 400)
    start = (np.random.default_rng(7).random((size, size)) < 0.3).astype(np.uint8)

    @fb.jit
    def ten(cells):
        for _ in range(10):
            cells = generation(cells)
        return cells

    cells, age = fb.asarray(start), fb.zeros((size, size))
    for _ in range(steps // 10):
        cells = ten(cells)
        age = 0.8 * age + fb.astype(cells, fb.float32)
    glider = np.zeros((8, 8), np.uint8)
    glider[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    moved = fb.asarray(glider)
    for _ in range(4):
        moved = generation(moved)
    assert np.array_equal(moved.numpy(), np.roll(glider, (1, 1), (0, 1))), "a glider moves by one cell in four generations"
    save(path, {"the first generation": start, f"after {steps}, with traces": age.numpy()}, "viridis")


if __name__ == "__main__":
    main()
