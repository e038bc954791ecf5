"""Philox4x32-10 in int64 tensor arithmetic, bit for bit the stream of ``firebrick.ops.bits.philox``.

A 32-bit word times a 32-bit constant needs 64 bits without sign, one more than int64 has; so the constant is taken
in two halves of 16 bits, and no product reaches 2^49.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from firebrick.backends.torch.precision import Kernel
from firebrick.core.dtypes import float32

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def _product(word: Any, constant: int) -> tuple[Any, Any]:
    """High and low 32 bits of word · constant."""
    low = word * (constant & 0xFFFF)
    high = word * (constant >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def words(key: Any, first: int, count: int) -> Any:
    """``count`` words, as int64 in [0, 2^32), of the stream of ``key`` from word ``first`` on."""
    block = torch.arange(first // 4, (first + count + 3) // 4, dtype=torch.int64, device=key.device)
    k0, k1, s0, s1 = (key.view(torch.int32).to(torch.int64) & _LOW).unbind()
    c0, c1, c2, c3 = block & _LOW, block >> 32, s0.expand(block.shape), s1.expand(block.shape)
    for _ in range(10):
        h0, l0 = _product(c0, _M0)
        h1, l1 = _product(c2, _M1)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return torch.stack([c0, c1, c2, c3], -1).reshape(-1)[first % 4 : first % 4 + count]


def random_bits(key: Any, *, shape: tuple[int, ...], offset: int) -> Any:
    """Uniform 32-bit words."""
    return words(key, offset, prod(shape)).to(torch.int32).view(torch.uint32).reshape(shape)


def random_uniform(key: Any, *, shape: tuple[int, ...], offset: int, dtype: Any) -> Any:
    """Uniform numbers in [0, 1) of 24 bits (float32) or 53 bits (float64)."""
    n = prod(shape)
    if dtype is float32:
        return ((words(key, offset, n) >> 8).to(torch.float32) * 2.0**-24).reshape(shape)
    pairs = words(key, 2 * offset, 2 * n).reshape(-1, 2)
    whole = ((pairs[:, 0] >> 5) << 26) + (pairs[:, 1] >> 6)
    return (whole.to(torch.float64) * 2.0**-53).reshape(shape)


KERNELS: dict[str, Kernel] = {"random_bits": random_bits, "random_uniform": random_uniform}
