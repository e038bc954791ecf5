"""Random walks that stick: particles walk until they touch what has grown, with random numbers by counter.

python examples/kernels/walk.py --out walk.png
"""

from __future__ import annotations

import numpy as np
from pictures import options, save

import firebrick as fb

K = fb.kernel


@K(grid="walkers")
def walk(
    grown: K.In[fb.uint8, "n, n"], key: K.In[fb.uint32, "4"], walkers: int, steps: int, out: K.Out[fb.int64, "walkers, 2", -1]
):
    """Where each particle, from a random border cell, first stands next to what has grown; -1 for nowhere."""
    w = K.index()
    n = grown.shape[0]
    i = int(K.random_uniform(key, 2 * w) * float(n - 2)) + 1
    j = n - 2 if K.random_bits(key, 2 * w + 1) & 1 == 1 else 1
    if K.random_bits(key, 2 * w + 1) & 2 == 2:
        i, j = j, i
    for k in range(steps):
        if grown[i - 1, j] + grown[i + 1, j] + grown[i, j - 1] + grown[i, j + 1] > 0:
            out[w, 0] = i
            out[w, 1] = j
            break
        turn = K.random_bits(key, 2 * walkers + w * steps + k) & 3
        i += 1 if turn == 0 else -1 if turn == 1 else 0
        j += 1 if turn == 2 else -1 if turn == 3 else 0
        i = min(max(i, 1), n - 2)
        j = min(max(j, 1), n - 2)


def main() -> None:
    path, short = options(__doc__ or "")
    n, rounds, walkers = (41, 12, 200) if short else (181, 260, 600)
    generator = fb.random.Generator(3)
    grown, age = np.zeros((n, n), np.uint8), np.zeros((n, n))
    grown[n // 2, n // 2] = 1
    for _ in range(rounds):
        found = walk(fb.asarray(grown), generator.key(), walkers, n * n // 2).numpy()
        found = found[found[:, 0] >= 0][: 1 + int(grown.sum()) // 40]  # more at once would grow next to each other
        grown[found[:, 0], found[:, 1]] = 1
        age += grown
    assert grown.sum() > 10, "something has grown"
    save(path, {f"{int(grown.sum())} particles, the oldest brightest": age})


if __name__ == "__main__":
    main()
