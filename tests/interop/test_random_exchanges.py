"""Arrays of random shapes, strides and dtypes go to NumPy and PyTorch and back as they are, on every engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import firebrick as fb

torch = pytest.importorskip("torch")

ENGINES = ("cpu", "numpy", "torch:cpu")
DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "float16", "complex64")


def array(seed: int) -> Any:
    """An array of up to four axes, some of them empty, with strides of any sign and in any order, perhaps read-only."""
    r = random.Random(seed)
    shape = tuple(r.choice((0, 1, 2, 3, 5)) for _ in range(r.randint(0, 4)))
    dtype = r.choice(DTYPES)
    a: Any = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    if a.ndim and r.random() < 0.5:
        a = a[tuple(slice(None, None, r.choice((1, 2, -1))) for _ in shape)]
    if r.random() < 0.3:
        a = a.transpose()
    if r.random() < 0.2:
        a = a.copy()
        a.flags.writeable = False
    return a


def same(found: Any, a: Any) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (a.dtype, a.shape)
    assert np.array_equal(found, a)


def exchange(seed: int, device: str) -> None:
    a = array(seed)
    t = fb.asarray(a, device=device)
    same(t.numpy(), a)
    same(np.from_dlpack(t), a)
    same(torch.from_dlpack(t).numpy(), a)
    theirs = torch.from_numpy(a.copy())
    if theirs.ndim >= 2:
        theirs = theirs.transpose(0, 1)
    same(fb.from_dlpack(theirs, device=device).numpy(), theirs.numpy())
    same(fb.asarray(theirs, device=device).numpy(), theirs.numpy())
    if a.flags.writeable:
        same(fb.from_dlpack(a, device=device).numpy(), a)


def exchange_all(seeds: range, device: str) -> None:
    for seed in seeds:
        exchange(seed, device)


@pytest.mark.parametrize("device", ENGINES)
def test_arrays_of_any_shape_strides_and_dtype_are_exchanged_as_they_are(device: str) -> None:
    exchange_all(range(100), device)


@pytest.mark.soak
@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("block", range(10))
def test_many_arrays_are_exchanged_as_they_are(block: int, device: str) -> None:
    exchange_all(range(100 + 1000 * block, 1100 + 1000 * block), device)


@pytest.mark.parametrize("device", ENGINES)
def test_bfloat16_is_exchanged_with_pytorch_whatever_its_strides(device: str) -> None:
    for theirs in (
        torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t(),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3, dtype=torch.bfloat16),
    ):
        ours = fb.from_dlpack(theirs, device=device)
        same(fb.astype(ours, fb.float32).numpy(), theirs.float().numpy())
        assert torch.equal(torch.from_dlpack(ours), theirs)


@pytest.mark.parametrize("device", ENGINES)
def test_indices_and_sorts_of_conditions_are_numpys(device: str) -> None:
    r = random.Random(0)
    for seed in range(100):
        shape = tuple(r.choice((0, 1, 2, 3)) for _ in range(r.randint(1, 3)))
        c = np.random.default_rng(seed).random(shape) > 0.5
        t = fb.asarray(c, device=device)
        for found, expected in zip(fb.where(t), np.where(c), strict=True):
            assert np.array_equal(found.numpy(), expected)
        same(fb.sort(t, axis=-1).numpy(), np.sort(c, axis=-1))
        assert np.array_equal(fb.argsort(t, axis=0).numpy(), np.argsort(c, axis=0, kind="stable"))


def test_an_array_whose_strides_are_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.core.tensor import Tensor

    contents = Tensor.numpy
    monkeypatch.setattr(Tensor, "numpy", lambda self: contents(self).reshape(-1, order="F").reshape(self.shape))
    with pytest.raises(AssertionError):
        exchange_all(range(100), "numpy")


MARKUP = "<script>alert(1)</script>\"'&"


def test_names_with_markup_are_escaped_in_notebooks() -> None:
    class Layer(fb.nn.Module):
        def __init__(self) -> None:
            setattr(self, MARKUP, fb.nn.Linear(2, 2))
            self.w = fb.nn.Parameter(fb.ones(2))

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return x

    Layer.__name__ = Layer.__qualname__ = MARKUP
    layer, labelled = Layer(), fb.ones(2)
    labelled.label = MARKUP
    shown = [s._repr_html_() for s in (layer, layer.w, labelled, fb.ones((2, 2)))]
    assert any("&lt;script&gt;" in html for html in shown)
    assert not any("<script" in html for html in shown)
