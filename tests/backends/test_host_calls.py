"""What programs on NumPy arrays settle when they are compiled, which products stay on one thread, and how work is estimated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from firebrick.backends.cpu import eager
from firebrick.backends.cpu.explained import _counted, _flops, explained
from firebrick.backends.numpy import blas, selection
from firebrick.backends.numpy.calls import settle
from firebrick.backends.registry import find_device
from firebrick.core.aval import Aval
from firebrick.core.dtypes import bool_, complex64, float16, float32, float64, int32
from firebrick.core.sharing import cores_of, part_of_cores, sharing_cores
from firebrick.ops import OPS
from firebrick.ops.reduction import PAIRWISE


def settled(name: str, *operands: Any, known: Any = None, **params: Any) -> Any:
    op, avals = OPS[name], tuple(Aval(shape, dtype) for shape, dtype in operands)
    inferred = op.infer(*avals, **params)
    results = (inferred,) if type(inferred) is Aval else inferred
    return settle(op, avals, params, results, known or (None,) * len(avals))


R, SMALL, LARGE = (2, 3), (255, 256), (256, 256)  # of float32, LARGE is what a destination is worth for maximum and minimum
LONG = PAIRWISE + 1


@pytest.mark.parametrize(
    ("name", "operands", "params", "expr", "into", "layout"),
    [
        ("add", [(R, float32)] * 2, {}, "{f}({0}, {1})", "{f}({0}, {1}, {out})", "kept"),
        ("exp", [(R, float32)], {}, "{f}({0})", "{f}({0}, {out})", "kept"),
        ("maximum", [(SMALL, float32)] * 2, {}, "{f}({0}, {1})", None, "kept"),
        ("maximum", [(LARGE, float32)] * 2, {}, "{f}({0}, {1})", "{f}({0}, {1}, out={out})", "kept"),
        ("relu", [(SMALL, float32)], {}, "{f}({0}, {zero})", None, "kept"),
        ("relu", [(LARGE, float32)], {}, "{f}({0}, {zero})", "{f}({0}, {zero}, out={out})", "kept"),
        ("isnan", [(R, float32)], {}, "{f}({0})", "{f}({0}, {out})", "kept"),
        ("floor", [(R, float32)], {}, "{f}({0})", "{f}({0}, {out})", "kept"),
        ("sum", [(R, float32)], {"axes": (0,), "keepdims": False},
         "{reduce}({0}, {axes}, {dtype}, None, {keepdims})", None, "kept"),
        ("sum", [((LONG, 2), int32)], {"axes": (0,), "keepdims": False},
         "{reduce}({0}, {axes}, {dtype}, None, {keepdims})", None, "kept"),
        ("sum", [((PAIRWISE, 2), float32)], {"axes": (0,), "keepdims": False},
         "{reduce}({0}, {axes}, {dtype}, None, {keepdims})", None, "kept"),
        ("sum", [((2, LONG), float32)], {"axes": (1,), "keepdims": False},
         "{reduce}({contiguous}({0}), -1, {dtype})", None, "rows"),
        ("sum", [((2, LONG), complex64)], {"axes": (1,), "keepdims": True},
         "{reduce}({contiguous}({0}), -1, {dtype}).reshape({shape})", None, "rows"),
        ("sum", [((LONG, 2), float32)], {"axes": (0,), "keepdims": False},
         "{reduce}({contiguous}({0}.transpose({order}).reshape({rows})), -1, {dtype})", None, "rows"),
        ("sum", [((2, 3, LONG), float32)], {"axes": (1, 2), "keepdims": False},
         "{reduce}({contiguous}({0}.reshape({rows})), -1, {dtype})", None, "rows"),
        ("mean", [(R, float32)], {"axes": (0,), "keepdims": True},
         "{divide}({reduce}({0}, {axes}, {dtype}, None, {keepdims}), {count})", None, "kept"),
        ("matmul", [(R, float32), ((3, 4), float32)], {}, "{matmul}({0}, {1})", "{matmul}({0}, {1}, {out})", "rows"),
        ("matmul", [((2, 40_000), float32), ((40_000, 2), float32)], {}, "{matmul}({0}, {1})", None, "rows"),
        ("matmul", [((2, 40_000), int32), ((40_000, 2), int32)], {}, "{matmul}({0}, {1})", "{matmul}({0}, {1}, {out})", "rows"),
        ("matmul", [((2, 2, 3), float32), ((3, 4), float32)], {}, "{matmul}({0}, {1})", None, "rows"),
        ("cast", [(R, float32)], {"dtype": int32}, "{f}({0}, dtype={p_dtype})", None, "any"),
        ("cast", [(R, float64)], {"dtype": float16}, "{f}({0}, dtype={p_dtype})", None, "any"),
        ("cast", [(R, float32)], {"dtype": float16}, "{0}.astype({dtype})", None, "kept"),
        ("cast", [(R, int32)], {"dtype": float64}, "{0}.astype({dtype})", None, "kept"),
        ("clip", [(SMALL, float32), ((), float32), ((), float32)], {}, "{minimum}({maximum}({0}, {1}), {2})", None, "kept"),
        ("clip", [(LARGE, float32), ((), float32), ((), float32)], {}, "{minimum}({maximum}({0}, {1}), {2})",
         "{minimum}({maximum}({0}, {1}), {2}, out={out})", "kept"),
        ("permute", [(R, float32)], {"axes": (0, 1)}, "{0}.transpose({axes})", None, "kept"),
        ("permute", [(R, float32)], {"axes": (1, 0)}, "{0}.transpose({axes})", None, "any"),
        ("slice", [(R, float32)], {"starts": (0, 0), "stops": (2, 3), "steps": (1, 2)}, "{0}[{key}]", None, "kept"),
        ("slice", [(R, float32)], {"starts": (0, 2), "stops": (2, -1), "steps": (1, -1)}, "{0}[{key}]", None, "any"),
        ("softmax", [(R, float32)], {"axis": 1}, "{f}({0})", None, "rows"),
        ("softmax", [(R, float32)], {"axis": 0}, "{f}({0}, axis={p_axis})", None, "any"),
        ("split", [(R, float32)], {"sizes": (1, 1), "axis": 0}, "{f}({0}, sizes={p_sizes}, axis={p_axis})", None, "kept"),
        ("take", [(R, float32), ((2,), int32)], {"axis": 0}, "{f}({0}, {1}, axis={p_axis})", None, "rows"),
        ("exp", [((), float32)], {}, "{asarray}({f}({0}))", "{f}({0}, {out})", "kept"),
    ],
)  # fmt: skip
def test_a_program_settles_its_calls_when_it_is_compiled(
    name: str, operands: Any, params: Any, expr: str, into: str | None, layout: str
) -> None:
    kernel = settled(name, *operands, **params)
    assert (kernel.expr, kernel.into, kernel.layout) == (expr, into, layout)
    assert kernel.outs is None


FEW = selection.FEW


@pytest.mark.parametrize(
    ("shapes", "dtype", "zero", "expr", "function"),
    [
        (((FEW,), (FEW,), ()), float32, 0.0, "{f}({0}, {1}, {2})", np.where),
        (((FEW + 1,), (FEW + 1,), ()), int32, 0, "{f}({0}, {1}, {2})", np.where),
        (((FEW + 1,), (1,), ()), float32, 0.0, "{f}({0}, {1}, {2})", np.where),
        (((FEW + 1,), (FEW + 1,), ()), float32, None, "{f}({0}, {1}, {2})", selection.where),
        (((FEW + 1,), (FEW + 1,), ()), float32, -0.0, "{f}({0}, {1}, {2})", np.where),
        (((FEW + 1,), (FEW + 1,), ()), float32, 0.0, "{f}({1}, {0})", selection.masked),
        (((FEW + 1,), (), (FEW + 1,)), float64, 0.0, "{f}({2}, ~{0})", selection.masked),
    ],
)
def test_a_program_settles_how_it_chooses_when_it_is_compiled(
    shapes: Any, dtype: Any, zero: float | None, expr: str, function: Any
) -> None:
    constant = None if zero is None else np.asarray(zero, dtype.np)
    known = tuple(None if i == 0 or shape else constant for i, shape in enumerate(shapes))
    kernel = settled("where", *zip(shapes, (bool_, dtype, dtype), strict=True), known=known)
    assert (kernel.expr, kernel.layout) == (expr, "kept")
    assert kernel.names["f"] is function


def test_a_product_is_one_call_of_the_blas_up_to_a_length_and_on_one_thread_up_to_a_size() -> None:
    assert [blas.is_one_product((m, k), (k, n)) for m, k, n in (
        (1, 1024, 5), (1, 1025, 5), (5, 1024, 1), (5, 1025, 1), (1, 32768, 1), (1, 32769, 1), (2, 32768, 2), (2, 32769, 2),
    )] == [True, False] * 4  # fmt: skip
    sizes = ((64, 64, 64), (64, 65, 64), (1, 2, 3), (3, 2, 1), (2, 1, 3), (320, 1000, 100), (320, 1000, 101))
    assert [blas.keeps_alone(*size) for size in sizes] == [False, True, True, True, False, True, False]


def test_parts_of_the_cores_add_up_and_none_is_empty() -> None:
    assert [[cores_of((i, n), cores) for i in range(n)] for n, cores in ((3, 8), (4, 8), (3, 2), (1, 5))] == [
        [2, 3, 3], [2, 2, 2, 2], [1, 1, 1], [5],
    ]  # fmt: skip
    with sharing_cores(1, 2):
        assert part_of_cores.get() == (1, 2)
        with sharing_cores(0, 1):
            assert part_of_cores.get() is None
        assert part_of_cores.get() == (1, 2)
    assert part_of_cores.get() is None


def test_work_of_eager_operations_is_estimated_from_shapes() -> None:
    def us(name: str, *shapes: tuple[int, ...], **params: Any) -> float:
        return eager.ESTIMATES[name](tuple(np.empty(s) for s in shapes), params)

    x, weight, g = (2, 6, 8, 9), (4, 3, 5, 7), (2, 4, 4, 3)
    assert us("conv", x, weight, stride=(2, 1), groups=2) == pytest.approx(40 + 6e-5 * (2 * 8 * 9) * (4 * 3 * 5 * 7) / 2)
    assert us("conv_input", g, weight, stride=(2, 1), groups=2) == pytest.approx(40 + 6e-5 * (2 * 4 * 4 * 3) * (3 * 5 * 7))
    assert us("conv_weight", x, g, kernel=(5, 7), groups=2) == pytest.approx(40 + 6e-5 * (2 * 4 * 4 * 3) * 3 * (5 * 7))
    assert us("conv", (2, 0, 8, 9), (4, 0, 5, 7), stride=(1, 1)) == us("conv_input", (2, 0, 4, 3), (0, 3, 5, 7)) == 40.0
    assert us("max_pool", (2, 3, 10, 10)) == pytest.approx(45 + 600 * 4.2e-3)
    assert us("attention", (2, 3, 5), (2, 7, 5)) == pytest.approx(40 + 1.6e-4 * 30 * 7)
    assert us("attention_gradient", (2, 3, 5), (2, 3, 5), (2, 7, 5)) == pytest.approx(40 + 3.2e-4 * 30 * 7)
    assert us("random_uniform", (4,), shape=(10, 20)) == pytest.approx(1.2)
    assert us("sigmoid", (100, 10)) == pytest.approx(10.0)


def test_figures_of_explained_programs_have_units() -> None:
    assert [_flops(n) for n in (0, 999, 1000, 999_900, 1e6, 2.5e9, 3e12)] == [
        "0 FLOP", "999 FLOP", "1.0 kFLOP", "999.9 kFLOP", "1.0 MFLOP", "2.50 GFLOP", "3000.00 GFLOP",
    ]  # fmt: skip
    assert _counted({"exp": 2, "add": 1}) == "exp × 2, add"  # type: ignore[arg-type]
    assert _counted({}) == "nothing"  # type: ignore[arg-type]


def test_a_long_product_is_cut_into_blocks_that_hold_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_longest", lambda m, n: 7)
    rng = np.random.default_rng(0)
    for k in (6, 7, 8, 14, 20):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((3, k), (k, 2)))
        assert (blas.matmul(a, b) == a.astype(np.int64) @ b.astype(np.int64)).all()


@pytest.mark.parametrize("reasons", [12, 13, 15])
def test_reasons_beyond_the_twelve_most_common_are_counted(reasons: int) -> None:
    kinds: Any = SimpleNamespace(graph=SimpleNamespace(nodes=[]), of=[])
    segments: Any = SimpleNamespace(arena=0, segments=[])
    lines = explained(kinds, [], segments, [f"reason {i}" for i in range(reasons)] + ["reason 0"] * 2, [])
    at = lines.index(f"operations without a kernel: {reasons + 2}")
    assert lines[at + 1] == "  reason 0 × 3"
    assert lines[at + 13 :] == ([f"  and {reasons - 12} more"] if reasons > 12 else [])


@pytest.mark.parametrize("refused", [[], ["one: why"], ["one: why", "other: why"]])
def test_groups_without_a_proof_are_listed_where_there_are_any(refused: list[str]) -> None:
    kinds: Any = SimpleNamespace(graph=SimpleNamespace(nodes=[]), of=[])
    lines = explained(kinds, [], SimpleNamespace(arena=0, segments=[]), [], refused)  # type: ignore[arg-type]
    listed = [f"groups not fused, without a proof: {len(refused)}", *(f"  {text}" for text in refused)] if refused else []
    assert lines[2:] == listed


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "argmax", "all", "any"])
def test_results_without_axes_are_arrays_of_numpy_and_no_scalars(name: str) -> None:
    device = find_device("numpy")
    op = OPS.get(name)
    if op is None:
        pytest.skip("a composition")
    x = np.ones(3, bool if name in ("all", "any") else np.float32)
    params = {"axis": 0, "keepdims": False} if name == "argmax" else {"axes": (0,), "keepdims": False}
    found = device.backend.execute(op, (x,), params)
    assert type(found[0] if isinstance(found, tuple) else found) is np.ndarray
