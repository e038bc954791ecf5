"""Every elementwise entry of the op table, as a scalar expression: interpreted and compiled, against the entry's reference."""

from __future__ import annotations

import numpy as np
import pytest
from native_kernels import loads, run_map, widths

from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.op import Sample
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.table import OPS
from firebrick.scalar import evaluate
from firebrick.scalar.elements import random_bits, random_uniform
from firebrick.scalar.expr import index, load
from firebrick.scalar.storage import STORAGE
from firebrick.testing.cases import thinned

RULES = {name: op.scalar for name, op in OPS.items() if op.fusion == "map" and op.scalar is not None}

# complex parts (see test_complex_numbers), positions in other tensors, and the draws that have functions of their own
WITHOUT = {"complex", "conj", "imag", "real", "take", "gather", "ravel_index", "random_bits", "random_uniform"}


def test_every_elementwise_entry_has_a_rule_or_a_reason() -> None:
    elementwise = {name for name, op in OPS.items() if op.fusion == "map"}
    assert elementwise == set(RULES) | WITHOUT
    assert not set(RULES) & WITHOUT


def rows_of(name: str, narrow: bool) -> list[tuple[str, int, Sample]]:
    """Dtype, number and sample of what an op computes; of narrow vectors the long ones: shapes are the same code for all."""
    op, found = OPS[name], []
    for dtype in op.dtypes:
        for number, sample in enumerate(op.samples(np.random.default_rng(3), dtype)):
            dtypes = [np.asarray(a).dtype.name for a in sample.inputs]
            dtypes += [v.name for v in sample.params.values() if hasattr(v, "itemsize")]
            long = sample.name.split(",")[0] in ("long", "special values")
            if set(dtypes) <= set(STORAGE) and (long or not narrow):
                found.append((dtype, number, sample))
    return found


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every dtype"])
@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("name", sorted(RULES))
def test_results_are_within_the_tables_tolerance(name: str, target: Target, every: bool) -> None:
    op, narrow = OPS[name], target is not widths()[-1]
    rows = rows_of(name, narrow)
    for dtype, _, sample in rows if every else thinned(rows):
        arrays = [np.asarray(a) for a in sample.inputs]
        want = run_reference(op, tuple(arrays), sample.params)
        aval = op.infer(*_avals(arrays), **sample.params)
        e = RULES[name](*loads(arrays), **sample.params)
        got = run_map(e, arrays, aval.shape, aval.dtype.np, target)
        found = check_results(op, tuple(arrays), sample.params, (got,), want)
        assert found.ok, f"{dtype}, {sample.name}: {found}"
        if narrow:
            continue  # the interpreter has no width
        with np.errstate(all="ignore"):
            same = np.broadcast_to(evaluate([e], arrays)[0], aval.shape).astype(aval.dtype.np)
        found = check_results(op, tuple(arrays), sample.params, (np.asarray(same),), want)
        assert found.ok, f"interpreted, {dtype}, {sample.name}: {found}"
    assert rows or (narrow and name in ("where", "clip", "cast"))


def _avals(arrays: list[np.ndarray]) -> list[object]:
    from firebrick.core.aval import Aval
    from firebrick.core.dtypes import dtype

    return [Aval(a.shape, dtype(a.dtype)) for a in arrays]


@pytest.mark.parametrize("offset", [0, 3, 2**34 + 1])
def test_random_words_and_numbers_are_the_references_bits(offset: int) -> None:
    key = np.array([1, 2**31 + 5, 77, 2**32 - 1], np.uint32)
    words = [load(i, "uint32") for i in range(4)]
    parts = [key[i : i + 1] for i in range(4)]
    target = widths()[-1]
    want = OPS["random_bits"].reference(key, shape=(3, 111), offset=offset)
    # the index along one merged axis: a matrix is drawn as the row it is in memory
    got = run_map(random_bits(words, index(0) + offset), parts, (333,), np.uint32, target)
    assert np.array_equal(got.reshape(3, 111), want)
    matrix = run_map(random_bits(words, index(0) * 111 + index(1) + offset), parts, (3, 111), np.uint32, target)
    assert np.array_equal(matrix, want)
    from firebrick.core.dtypes import float32, float64

    for dtype in (float32, float64):
        want = OPS["random_uniform"].reference(key, shape=(333,), offset=offset, dtype=dtype)
        got = run_map(random_uniform(words, index(0) + offset, dtype.name), parts, (333,), dtype.np, target)
        assert np.array_equal(got, want)
