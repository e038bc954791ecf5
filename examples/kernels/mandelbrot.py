"""The Mandelbrot set, and where its border is close: one work item a pixel, each with a loop of its own length.

python examples/kernels/mandelbrot.py --out mandelbrot.png
"""

from __future__ import annotations

from pictures import options, save

import firebrick as fb

K = fb.kernel


@K(grid="height, width")
def escape(
    centre_x: float, centre_y: float, zoom: float, limit: int, height: int, width: int, out: K.Out[fb.float32, "height, width"]
):
    """How soon z² + c leaves the disc of radius 256, smoothed; 0 if it does not."""
    i, j = K.index()
    scale = 3.0 / (zoom * float(height))
    cx = centre_x + (float(j) - 0.5 * float(width)) * scale
    cy = centre_y + (float(i) - 0.5 * float(height)) * scale
    x, y, count = 0.0, 0.0, 0
    while count < limit and x * x + y * y < 65536.0:
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
        count += 1
    if count < limit:
        out[i, j] = float(count) + 1.0 - fb.log2(0.5 * fb.log2(x * x + y * y))
    else:
        out[i, j] = 0.0


def main() -> None:
    path, short = options(__doc__ or "")
    size, limit = (96, 100) if short else (900, 1500)
    whole = escape(-0.6, 0.0, 1.2, limit, size, size)
    valley = escape(-0.7436, 0.1318, 220.0, limit, size, size)
    assert float(fb.min(whole).item()) == 0.0, "the set itself is in the picture"
    save(path, {"the set": fb.log1p(whole).numpy(), "a valley, 220 times as near": fb.log1p(valley).numpy()})


if __name__ == "__main__":
    main()
