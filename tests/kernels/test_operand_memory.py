"""Kernels of operands that share memory, have other strides or are not aligned: the results are those of separate arrays."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

K = fb.kernel
N = 300


@K
def mirrored(a: K.In[fb.float32, "n"], b: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = a[i] + 2 * b[a.shape[0] - 1 - i]


@K
def doubled(x: K.InOut[fb.float32, "n"], y: K.In[fb.float32, "n"]):
    i = K.index()
    x[i] = x[i] * 2 + y[i]


BASE = np.random.default_rng(0).random(3 * N).astype(np.float32)
UNALIGNED = np.zeros(4 * 2 * N + 1, np.uint8)[1:].view(np.float32)
UNALIGNED[:] = BASE[: 2 * N]
OPERANDS = {
    "overlapping": (BASE[:N], BASE[100 : 100 + N]),
    "one array twice": (BASE[:N], BASE[:N]),
    "reversed": (BASE[:N], BASE[N - 1 :: -1]),
    "every other element": (BASE[: 2 * N : 2], BASE[1 : 2 * N : 2]),
    "at an odd address": (UNALIGNED[:N], UNALIGNED[100 : 100 + N]),
}


@pytest.mark.parametrize("imported", [fb.asarray, fb.from_dlpack], ids=["copied", "shared"])
@pytest.mark.parametrize("memory", OPERANDS)
def test_results_do_not_depend_on_where_operands_are(memory: str, imported) -> None:
    p, q = OPERANDS[memory]
    before = BASE.copy(), UNALIGNED.copy()
    a, b = imported(p), imported(q)
    want = p + 2 * q[::-1]
    assert np.array_equal(mirrored(a, b).numpy(), want)
    assert np.array_equal(doubled(a, b).numpy(), p * 2 + q)
    assert np.array_equal(fb.jit(lambda a, b: doubled(mirrored(a, b), b))(a, b).numpy(), want * 2 + q)
    assert np.array_equal(BASE, before[0]), "a changed argument reached its source"
    assert np.array_equal(UNALIGNED, before[1]), "a changed argument reached its source"
    assert np.array_equal(a.numpy(), p)


def test_views_of_one_tensor_are_separate_operands() -> None:
    x = fb.asarray(BASE)
    found = doubled(x[:N], x[100 : 100 + N])
    assert np.array_equal(found.numpy(), BASE[:N] * 2 + BASE[100 : 100 + N])
    assert np.array_equal(x.numpy(), BASE)
