"""Random bits: Philox4x32-10, a counter-based generator, hence equal on every engine and at any split of a batch.

Element i of a draw is word (offset + i) mod 4 of block (offset + i) div 4, so a shard that starts at ``offset`` draws just
what it would have drawn inside the whole.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import float32, float64, uint32
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.op import Cost, Nondifferentiable, Sample
from firebrick.ops import access
from firebrick.ops.declare import Array, size_of
from firebrick.ops.table import register

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_AT_ONCE = 1 << 14
"""Blocks whose words are computed together: what is between the rounds stays in the processor's cache."""


def philox(key: Array, first: int, count: int) -> Array:
    """``count`` words of the stream of ``key`` (uint32 [4]: two key words, two stream words) from word ``first`` on."""
    words = _blocks(key, np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)).reshape(-1)
    return words[first % 4 : first % 4 + count]


def philox_at(key: Array, at: Array) -> Array:
    """The words of the stream of ``key`` at any places, int64 of any shape from 0: uint32 of that shape."""
    blocks, which = np.unique(at >> 2, return_inverse=True)
    words: Array = _blocks(key, blocks.astype(np.uint64))[which.reshape(at.shape), at & 3]
    return words


def _blocks(key: Array, block: Array) -> Array:
    """Blocks of the stream by number, uint64 [n]: their four words each, as uint32 [n, 4]."""
    words = np.empty((len(block), 4), np.uint32)
    for at in range(0, len(block), _AT_ONCE):
        for i, word in enumerate(_rounds(key, block[at : at + _AT_ONCE])):
            words[at : at + _AT_ONCE, i] = word
    return words


def _rounds(key: Array, block: Array) -> tuple[Array, ...]:
    """The four words of each block, as uint64 [n]."""
    c0, c1 = block & _LOW, block >> _32
    c2, c3 = (np.full(block.shape, int(key[i]), np.uint64) for i in (2, 3))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _32) ^ c3 ^ np.uint64(k1), p0 & _LOW,
        )  # fmt: skip
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _check_key(key: Any, shape: Any) -> None:
    if key.dtype is not uint32:
        raise DTypeError("a random key has dtype uint32", str(key.dtype), "take it from fb.random.Generator.key()")
    if key.shape != (4,):
        raise ShapeError("a random key is uint32 [4]", f"shape {key.shape}", "take it from fb.random.Generator.key()")


def _infer_bits(key: Any, *, shape: tuple[int, ...], offset: int) -> Aval:
    _check_key(key, shape)
    return Aval(tuple(shape), uint32)


def _infer_uniform(key: Any, *, shape: tuple[int, ...], offset: int, dtype: Any) -> Aval:
    _check_key(key, shape)
    if dtype not in (float32, float64):
        raise DTypeError("uniform numbers are drawn as float32 or float64", str(dtype), "draw float32 and cast")
    return Aval(tuple(shape), dtype)


def _keys(rng: np.random.Generator) -> list[tuple[Array, tuple[int, ...], int]]:
    cases = [((5,), 0), ((3, 7), 2), ((), 9), ((0, 2), 0), ((2, 3), 2**34 + 3), ((1001,), 1)]
    return [(rng.integers(0, 2**32, 4, np.uint32), s, o) for s, o in cases]


def _cost(ins: Any, outs: Any, params: Any) -> Cost:
    return Cost(40.0 * outs[0].size, outs[0].nbytes)


_RANDOM = Nondifferentiable("random numbers depend on no tensor")


@register(
    operands="key:integer", infer=_infer_bits, vjp=_RANDOM, residuals=(),
    samples=lambda rng, name: [Sample((k,), {"shape": s, "offset": o}, False, f"{s} at {o}") for k, s, o in _keys(rng)],
    cost=_cost, bound="compute", fusion="map", tolerance=0, dtypes=("uint32",), index_map=None, access=access.RANDOM_BITS,
)  # fmt: skip
def random_bits(key: Array, *, shape: tuple[int, ...], offset: int) -> Array:
    """Uniform 32-bit words from the stream of a key, starting at element ``offset``."""
    return philox(key, offset, size_of(shape)).reshape(shape)


def _uniform_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    return [
        Sample((k,), {"shape": s, "offset": o, "dtype": d}, False, f"{d.name} {s} at {o}")
        for k, s, o in _keys(rng)
        for d in (float32, float64)
    ]


@register(
    operands="key:integer", infer=_infer_uniform, vjp=_RANDOM, residuals=(), samples=_uniform_samples, cost=_cost,
    bound="compute", fusion="map", tolerance=0, dtypes=("uint32",), index_map=None, access=access.RANDOM_UNIFORM,
)  # fmt: skip
def random_uniform(key: Array, *, shape: tuple[int, ...], offset: int, dtype: Any) -> Array:
    """Uniform numbers in [0, 1): the top 24 bits of one word (float32) or 53 bits of two words (float64)."""
    n = size_of(shape)
    if dtype is float32:
        return ((philox(key, offset, n) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)).reshape(shape)
    words = philox(key, 2 * offset, 2 * n).astype(np.uint64).reshape(-1, 2)
    whole = (words[:, 0] >> np.uint64(5)) * np.uint64(1 << 26) + (words[:, 1] >> np.uint64(6))
    return (whole.astype(np.float64) * 2.0**-53).reshape(shape)
