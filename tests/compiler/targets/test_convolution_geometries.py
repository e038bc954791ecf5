"""Convolutions of random geometry with few channels in a group, and their gradients, for vectors of each width."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError

SIZES = (1, 1, 2, 3, 4, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
CONV = {1: fb.conv1d, 2: fb.conv2d, 3: fb.conv3d}


def geometry(rng: Random) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """The shapes of images and weight, and the parameters, of a small convolution."""
    while True:
        axes = rng.choice((1, 2, 2, 3, 3))
        groups, channels, outputs = rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 3, 16, 17)), rng.choice((1, 1, 2, 5))
        sizes, kernel = ([rng.choice(of) for _ in range(axes)] for of in (SIZES, (1, 2, 3, 3, 5)))
        stride, padding, dilation = (
            tuple(rng.choice(of) for _ in range(axes)) for of in ((1, 1, 2, 3, 4), (0, 1, 1, 2, 3), (1, 1, 2))
        )
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        fits = all(s + 2 * p >= n for s, p, n in zip(sizes, padding, spans, strict=True))
        images = rng.choice((1, 2, 5)), groups * channels, *sizes
        if fits and prod(images) * prod(kernel) * outputs < 200_000:
            more = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
            return images, (groups * outputs, channels, *kernel), more


def differing(seed: int, width: int) -> list[str]:
    """What of a random convolution differs from the reference in float64."""
    rng = Random(seed)
    images, weight, more = geometry(rng)
    numbers = np.random.default_rng(seed)
    x, w = (numbers.uniform(-1, 1, shape).astype(np.float32) for shape in (images, weight))

    def all_of(x: fb.Tensor, w: fb.Tensor) -> tuple[fb.Tensor, ...]:
        y, pull = fb.vjp(lambda x, w: CONV[x.ndim - 2](x, w, **more), x, w)
        return y, *pull(fb.cos(y))

    with fb.config.scope(cpu_vector_bits=width, num_threads=rng.choice((1, 2, 3))):
        found = [a.numpy() for a in fb.jit(all_of)(fb.asarray(x), fb.asarray(w))]
    wanted = [a.numpy() for a in all_of(*(fb.asarray(a.astype(np.float64), device="numpy") for a in (x, w)))]
    names = ("result", "gradient of images", "gradient of weight")
    each = zip(names, found, wanted, strict=True)
    return [f"{n}: {images}, {weight}, {more}" for n, a, b in each if not np.abs(a - b).max() <= 1e-5 * (1 + np.abs(b).max())]


@pytest.mark.parametrize("width", [128, 256, 0])
def test_convolutions_of_any_geometry_are_right_for_vectors_of_any_width(width: int) -> None:
    try:
        Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")
    assert not [found for seed in range(50, 60) for found in differing(seed, width)]


@pytest.mark.soak
def test_many_convolutions_are_right() -> None:
    assert not [found for seed in range(60, 600) for found in differing(seed, 256)]
