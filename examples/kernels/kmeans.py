"""The colours of a picture by k-means: the nearest centre of each pixel, and sums of integers by atomic operations.

python examples/kernels/kmeans.py --out kmeans.png
"""

from __future__ import annotations

import numpy as np
from pictures import options, save

import firebrick as fb

K = fb.kernel


@K(grid="n")
def assign(
    pixels: K.In[fb.int32, "n, 3"], centres: K.In[fb.int32, "k, 3"],
    nearest: K.Out[fb.int32, "n"], sums: K.Out[fb.int64, "k, 3", 0], counts: K.Out[fb.int64, "k", 0],
):  # fmt: skip
    """The nearest centre of each pixel, and the sum and number of the pixels of each centre."""
    i = K.index()
    best, chosen = 1 << 30, 0
    for c in range(centres.shape[0]):
        far = 0
        for part in K.unrolled(3):
            d = int(pixels[i, part]) - int(centres[c, part])
            far += d * d
        if far < best:
            best, chosen = far, c
    nearest[i] = fb.int32(chosen)
    K.atomic_add(counts, chosen, 1)
    for part in K.unrolled(3):
        K.atomic_add(sums, (chosen, part), int(pixels[i, part]))


def picture(size: int) -> np.ndarray:
    """A sunset, with some noise."""
    y, x = np.mgrid[0 : 1 : size * 1j, 0 : 1 : size * 1j]
    sun = np.exp(-((x - 0.6) ** 2 + (y - 0.55) ** 2) * 60)
    sky = np.stack([0.9 - 0.5 * y + sun, 0.45 - 0.25 * y + 0.8 * sun, 0.3 + 0.5 * y + 0.3 * sun], -1)
    hills = y < 0.3 + 0.06 * np.sin(9 * x) + 0.03 * np.sin(23 * x)
    sky[hills] = np.stack([0.1 + 0.2 * y, 0.15 + 0.3 * y, 0.12 + 0.1 * y], -1)[hills]
    noise = np.random.default_rng(0).normal(size=sky.shape) * 0.03
    return (255 * np.clip(sky + noise, 0, 1)).astype(np.int32)


def main() -> None:
    path, short = options(__doc__ or "")
    size, k = (64, 6) if short else (480, 8)
    image = picture(size)
    pixels = fb.asarray(image.reshape(-1, 3))
    centres = fb.asarray(image.reshape(-1, 3)[np.random.default_rng(1).choice(size * size, k, replace=False)])
    for _ in range(30):
        nearest, sums, counts = assign(pixels, centres)
        assert fb.sum(counts).item() == size * size
        means = sums.numpy() // np.maximum(counts.numpy(), 1)[:, None]
        centres = fb.asarray(np.where(counts.numpy()[:, None] > 0, means, centres.numpy()).astype(np.int32))
    reduced = centres.numpy()[nearest.numpy()].reshape(image.shape)
    save(path, {"a picture": image.astype(np.uint8), f"in {k} colours": reduced.astype(np.uint8)})


if __name__ == "__main__":
    main()
