"""Kernels of the torch engine that take a shorter way: draws in pieces, and choices against 0 by bits. Same bits always."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch, whose engine this is")

from firebrick.backends.torch import random as kernels  # noqa: E402 - needs torch
from firebrick.backends.torch.elementwise import where  # noqa: E402
from firebrick.core.dtypes import float32, float64  # noqa: E402
from firebrick.ops.bits import random_bits, random_uniform  # noqa: E402

KEY = np.array([1, 2**31 + 5, 2**32 - 1, 4], np.uint32)


@pytest.mark.parametrize("offset", [0, 1, 3, 2**34 + 3])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1001])
def test_a_draw_in_pieces_is_the_stream_of_the_reference(monkeypatch: pytest.MonkeyPatch, count: int, offset: int) -> None:
    monkeypatch.setattr(kernels, "_PIECE", 16)
    key, shape = torch.from_numpy(KEY), (count,)
    bits = kernels.random_bits(key, shape=shape, offset=offset).numpy()
    assert np.array_equal(bits, random_bits.reference(KEY, shape=shape, offset=offset))
    for dtype in (float32, float64):
        drawn = kernels.random_uniform(key, shape=shape, offset=offset, dtype=dtype).numpy()
        assert np.array_equal(drawn, random_uniform.reference(KEY, shape=shape, offset=offset, dtype=dtype))


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32])
def test_a_choice_against_zero_keeps_every_bit(dtype: object, zero: float) -> None:
    special = [1.0, -0.0, 0.0, float("nan"), float("inf"), -float("inf"), -2.0, 3.0]
    values = torch.tensor([1, -2, 0, 7, 5, -1, 2, 3] if dtype is torch.int32 else special, dtype=dtype)
    keep = torch.tensor([1, 0, 1, 0, 0, 1, 1, 0], dtype=torch.bool)
    nothing = torch.tensor(zero, dtype=dtype)
    rows = (slice(None), slice(None, None, 2), slice(0, 0))
    for part in rows:
        for x1, x2 in ((values[part], nothing), (nothing, values[part])):
            assert where(keep[part], x1, x2).numpy().tobytes() == torch.where(keep[part], x1, x2).numpy().tobytes()
    turned = torch.arange(12).to(dtype).reshape(3, 4).T
    mask = torch.arange(12).reshape(4, 3) % 2 == 0
    assert torch.equal(where(mask, turned, nothing), torch.where(mask, turned, nothing))
    assert torch.equal(where(mask, turned[:1], nothing), torch.where(mask, turned[:1], nothing))
