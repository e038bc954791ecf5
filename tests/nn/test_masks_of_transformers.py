"""What a mask hides has no influence: the result is that of a call without the hidden places."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn

EMBED, HEADS, MEMORY = 8, 2, 6
ENCODERS = {
    "layer": lambda **k: nn.TransformerEncoderLayer(EMBED, HEADS, **k),
    "stack": lambda **k: nn.TransformerEncoder(EMBED, HEADS, 2, **k),
}
DECODERS = {
    "layer": lambda **k: nn.TransformerDecoderLayer(EMBED, HEADS, memory_features=MEMORY, **k),
    "stack": lambda **k: nn.TransformerDecoder(EMBED, HEADS, 2, memory_features=MEMORY, **k),
}


def normal(seed: int, *shape: int) -> Any:
    return fb.random.Generator(seed).normal(shape, dtype=fb.float64)


def first(shown: int, places: int) -> Any:
    """A mask of the first places, for two examples."""
    return fb.asarray(np.arange(places)[None] < np.full((2, 1), shown))


def lower(n: int) -> Any:
    return fb.asarray(np.tri(n, dtype=bool))


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_of_an_encoder(make: Callable[..., Any], causal: bool) -> None:
    model, x = make(generator=fb.random.Generator(0), dtype=fb.float64), normal(1, 2, 5, EMBED)
    short = model(x[:, :3], causal=causal).numpy()
    hidden = model(x, key_mask=first(3, 5), causal=causal).numpy()[:, :3]
    np.testing.assert_allclose(hidden, short, rtol=1e-10)
    columns = fb.asarray(np.tile(np.arange(5) < 3, (5, 1)))
    np.testing.assert_allclose(model(x, mask=columns, causal=causal).numpy()[:, :3], short, rtol=1e-10)
    np.testing.assert_allclose(model(x, mask=lower(5)).numpy(), model(x, causal=True).numpy(), rtol=1e-10)


@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_of_a_decoder(make: Callable[..., Any], causal: bool) -> None:
    model, x, memory = make(generator=fb.random.Generator(0), dtype=fb.float64), normal(1, 2, 5, EMBED), normal(2, 2, 7, MEMORY)
    short = model(x[:, :3], memory, causal=causal).numpy()
    np.testing.assert_allclose(model(x, memory, key_mask=first(3, 5), causal=causal).numpy()[:, :3], short, rtol=1e-10)
    columns = fb.asarray(np.tile(np.arange(5) < 3, (5, 1)))
    np.testing.assert_allclose(model(x, memory, mask=columns, causal=causal).numpy()[:, :3], short, rtol=1e-10)
    less = model(x, memory[:, :4], causal=causal).numpy()
    np.testing.assert_allclose(model(x, memory, memory_key_mask=first(4, 7), causal=causal).numpy(), less, rtol=1e-10)
    columns = fb.asarray(np.tile(np.arange(7) < 4, (5, 1)))
    np.testing.assert_allclose(model(x, memory, memory_mask=columns, causal=causal).numpy(), less, rtol=1e-10)
    np.testing.assert_allclose(model(x, memory, mask=lower(5), causal=False).numpy(), model(x, memory).numpy(), rtol=1e-10)
