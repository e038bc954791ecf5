"""Operands of trials: of each kind, dtype and shape, those without elements too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from firebrick.compiler.tune.trial_values import DRAWS, drawn

DTYPES = [
    np.dtype(d) for d in ("bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64", ml_dtypes.bfloat16)
]


@pytest.mark.parametrize("how", DRAWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operands_of_every_shape_are_drawn(how: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(0)
    for shape in ((), (1,), (7, 3), (0,), (3, 0, 2), (40, 10)):
        x = drawn(rng, how, shape, dtype)
        assert (x.shape, x.dtype) == (shape, dtype)
        if dtype.kind in "iu":
            assert ((x >= 0) & (x < 4)).all()
    reals = np.asarray(drawn(rng, how, (4000,), dtype)).astype(np.complex128).real
    if dtype.kind in "fV" or dtype.name == "bfloat16":
        assert np.isnan(reals).any() == np.isinf(reals).any() == (how == "special")
        assert (how == "exact") == bool(np.all(reals == np.rint(reals)) and np.abs(reals).max() <= 3)
