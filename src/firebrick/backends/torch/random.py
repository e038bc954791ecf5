"""Philox4x32-10 in int64 tensor arithmetic, bit for bit the stream of ``firebrick.ops.bits.philox``.

A 32-bit word times a 32-bit constant needs 64 bits without sign; int64 keeps the same bits, and a shift followed by a mask
gives the high half. On the CPU a draw runs in pieces that stay in the cache: ten rounds go over a piece before the next
one is begun.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from firebrick.backends.torch.precision import Kernel
from firebrick.core.dtypes import float32

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_PIECE = 1 << 16  # blocks of four words; 0.5 MiB for each of the few arrays of a round


def _words_of(key: Any, first: int, count: int) -> Any:
    """The words of blocks ``first`` to ``first + count``, as int64 in [0, 2^32)."""
    block = torch.arange(first, first + count, dtype=torch.int64, device=key.device)
    k0, k1, s0, s1 = (key.view(torch.int32).to(torch.int64) & _LOW).unbind()
    c0, c1, c2, c3 = block & _LOW, block >> 32, s0.expand(block.shape), s1.expand(block.shape)
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1  # the low 32 bits of p1 and p0 are the new c1 and c3; the rest is masked with c0 and c2
        c0 = (p1 >> 32).bitwise_xor_(c1).bitwise_xor_(k0).bitwise_and_(_LOW)
        c2 = (p0 >> 32).bitwise_xor_(c3).bitwise_xor_(k1).bitwise_and_(_LOW)
        c1, c3 = p1, p0
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return torch.stack([c0, c1, c2, c3], -1).bitwise_and_(_LOW).reshape(-1)


def _drawn(key: Any, first: int, count: int, per: int, dtype: Any, finish: Callable[[Any], Any]) -> Any:
    """``count`` numbers of ``per`` words each, beginning at word ``first``; ``finish`` converts words to numbers."""
    whole = per * count
    start, stop = first // 4, (first + whole + 3) // 4
    piece = _PIECE if key.device.type == "cpu" else max(stop - start, 1)
    if stop - start <= piece:
        return finish(_words_of(key, start, stop - start)[first % 4 : first % 4 + whole])
    out = torch.empty(count, dtype=dtype, device=key.device)
    at, word = 0, first
    for begin in range(start, stop, piece):
        end = min(4 * min(begin + piece, stop), first + whole)
        words = _words_of(key, begin, min(begin + piece, stop) - begin)[word - 4 * begin : end - 4 * begin]
        taken = len(words) // per
        out[at : at + taken] = finish(words)
        at, word = at + taken, end
    return out


def random_bits(key: Any, *, shape: tuple[int, ...], offset: int) -> Any:
    """Uniform 32-bit words."""
    drawn = _drawn(key, offset, prod(shape), 1, torch.int32, lambda words: words.to(torch.int32))
    return drawn.view(torch.uint32).reshape(shape)


def _single(words: Any) -> Any:
    return words.bitwise_right_shift_(8).to(torch.float32).mul_(2.0**-24)


def _double(words: Any) -> Any:
    pairs = words.reshape(-1, 2)
    return (((pairs[:, 0] >> 5) << 26) + (pairs[:, 1] >> 6)).to(torch.float64).mul_(2.0**-53)


def random_uniform(key: Any, *, shape: tuple[int, ...], offset: int, dtype: Any) -> Any:
    """Uniform numbers in [0, 1) of 24 bits (float32) or 53 bits (float64)."""
    n = prod(shape)
    if dtype is float32:
        return _drawn(key, offset, n, 1, torch.float32, _single).reshape(shape)
    return _drawn(key, 2 * offset, n, 2, torch.float64, _double).reshape(shape)


KERNELS: dict[str, Kernel] = {"random_bits": random_bits, "random_uniform": random_uniform}
