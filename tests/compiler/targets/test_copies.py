"""Copies of views, of any element size, shape and strides, for every width of vectors: the bytes that NumPy finds."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.targets.llvm.blocks import in_blocks
from firebrick.compiler.targets.llvm.copy_kernels import SIZES, WORD, copied
from firebrick.compiler.targets.llvm.host import compile_many
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.transpose import transposes
from firebrick.core.indexing import strides_of
from firebrick.core.views import strided

SHAPES = [
    (5, 7),
    (16, 16),
    (17, 33),
    (4, 4),
    (3, 40),
    (64, 100),
    (2, 5, 19, 3),
    (3, 4, 31, 17),
    (1, 20, 1, 20),
    (150, 9),
    (20, 600),
]


def steps(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def copy_of(x: np.ndarray[Any, Any], target: Target) -> np.ndarray[Any, Any]:
    """A view's copy by its kernel, between bytes that it must leave alone."""
    lowered = copied(strided(x.shape, steps(x)), x.itemsize, target)
    segment = Segment(lowered.launches([0, 1]), [compile_many([lowered.text], target)])
    room = np.full(x.nbytes + 128, 0xA5, np.uint8)
    out = room[64 : 64 + x.nbytes].view(x.dtype).reshape(x.shape)
    table = AddressTable(2)
    table.put(0, (x, out))
    segment(table.address)
    assert (room[:64] == 0xA5).all()
    assert (room[64 + x.nbytes :] == 0xA5).all()
    return out


@pytest.mark.parametrize("width", [128, 256, 512])
@pytest.mark.parametrize("itemsize", SIZES)
def test_copies_of_permuted_cut_and_turned_arrays(itemsize: int, width: int) -> None:
    if width > Target.host().width_bits:
        pytest.skip(f"a machine with vectors of {width} bits")
    target = Target.host(width)
    rng = np.random.default_rng(0)
    kinds = set()
    for shape in SHAPES[width // 128 :: 3] if itemsize != 4 else SHAPES[::2]:
        x = rng.integers(0, 250, shape).astype(f"u{itemsize}" if itemsize <= WORD else np.complex128)
        for axes in list(permutations(range(len(shape))))[-3:]:
            y = x.transpose(axes)
            for z in (y[::-1], y[..., 1::2], y[1:]):
                if z.size:
                    np.testing.assert_array_equal(copy_of(z, target), z)
                    if itemsize > WORD:
                        continue
                    views = (
                        BufferView(f"uint{8 * itemsize}", steps(z)),
                        BufferView(f"uint{8 * itemsize}", tuple(strides_of(z.shape))),
                    )
                    kinds.add((transposes(z.shape, *views, target), in_blocks(z.shape, *views)))
    assert (
        len(kinds) >= 2 or itemsize > WORD or (itemsize, width) == (8, 128)
    )  # two elements of a vector are too few for squares


def test_large_copies_on_several_threads() -> None:
    x = np.random.default_rng(0).normal(size=(700, 900, 3)).astype(np.float32)
    for axes in permutations(range(3)):
        for threads in (1, 3):
            with fb.config.scope(num_threads=threads):
                np.testing.assert_array_equal(copy_of(x.transpose(axes), Target.host()), x.transpose(axes))
