"""Every variant of every kind of kernel, forced, computes what the default computes: the same bits, where it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.tune import choice
from firebrick.testing import conformance

Program = Callable[..., Any]


def _gradient_of(f: Program) -> Program:
    return lambda *xs: fb.grad(lambda *ys: fb.sum(f(*ys) * fb.sin(f(*ys))))(*xs)


def _conv(**options: Any) -> Program:
    return lambda x, w: (fb.conv2d if x.ndim == 4 else fb.conv1d)(x, w, **options)


def _weight_gradient(**options: Any) -> Program:
    return lambda x, w: fb.grad(lambda w: fb.sum(fb.sin(fb.conv2d(x, w, **options))))(w)


PROGRAMS: dict[str, tuple[Program, list[tuple[int, ...]], str]] = {
    "product": (lambda a, b: a @ b, [(65, 129), (129, 97)], "float32"),
    "square product": (lambda a, b: a @ b, [(64, 64), (64, 64)], "float32"),
    "product with an epilogue": (lambda a, b, c: fb.gelu(a @ b + c), [(70, 300), (300, 33), (33,)], "float32"),
    "product of a transposed matrix": (lambda a, b: a.T @ b, [(301, 40), (301, 64)], "float32"),
    "product with a transposed result": (lambda a, b: (a @ b.T).T, [(40, 301), (64, 301)], "float32"),
    "batch of products": (lambda a, b: a @ b, [(3, 2, 33, 50), (1, 2, 50, 47)], "float64"),
    "one row": (lambda a, b: a @ b.T, [(1, 700), (300, 700)], "float32"),
    "three rows": (lambda a, b: a @ b.T + 1, [(3, 1100), (129, 1100)], "float32"),
    "one column": (lambda a, b: a @ b, [(700, 300), (300, 1)], "float32"),
    "long sums": (lambda a, b: a @ b, [(20, 3000), (3000, 24)], "float32"),
    "very long sums": (lambda a, b: a @ b, [(20, 40000), (40000, 24)], "float32"),
    "large product": (lambda a, b: a @ b, [(40, 800), (800, 701)], "float32"),
    "half precision": (lambda a, b: a @ b * 2, [(48, 520), (520, 80)], "bfloat16"),
    "float16": (lambda a, b: a @ b, [(33, 400), (400, 31)], "float16"),
    "convolution": (_conv(padding=1), [(4, 16, 15, 17), (24, 16, 3, 3)], "float32"),
    "convolution of many channels": (_conv(padding=1), [(2, 64, 28, 28), (64, 64, 3, 3)], "float32"),
    "strided convolution": (_conv(stride=2, padding=1), [(3, 8, 14, 14), (20, 8, 3, 3)], "float32"),
    "grouped convolution": (_conv(groups=2, padding=1), [(2, 8, 9, 9), (12, 4, 3, 3)], "float32"),
    "depthwise convolution": (_conv(groups=16, padding=1), [(2, 16, 16, 16), (16, 1, 3, 3)], "float32"),
    "convolution in one dimension": (_conv(dilation=2), [(3, 8, 40), (16, 8, 3)], "float64"),
    "gradient of a convolution by the image": (_gradient_of(_conv(padding=1)), [(4, 16, 12, 12), (16, 16, 3, 3)], "float32"),
    "gradient of a strided convolution": (_gradient_of(_conv(stride=2)), [(2, 12, 13, 13), (8, 12, 3, 3)], "float32"),
    "gradient of a large image": (_gradient_of(_conv(padding=1)), [(2, 3, 40, 40), (32, 3, 3, 3)], "float32"),
    "gradient by the weight": (_weight_gradient(padding=1), [(4, 16, 12, 12), (16, 16, 3, 3)], "float32"),
    "depthwise gradient by the weight": (_weight_gradient(padding=1, groups=16), [(2, 16, 16, 16), (16, 1, 3, 3)], "float32"),
    "elementwise": (lambda a, b: fb.tanh(a) * b + fb.exp(-a), [(300, 200), (200,)], "float32"),
    "rows": (lambda a: fb.softmax(a, axis=-1), [(257, 130)], "float32"),
    "columns": (lambda a: fb.mean(a * a, axis=0), [(513, 70)], "float32"),
    "sum of everything": (lambda a: fb.sum(a), [(511, 253)], "float32"),
    "running sum": (lambda a: fb.cumulative_sum(a, axis=0), [(200, 130)], "float32"),
    "windows": (lambda a: fb.max_pool2d(a, 2), [(4, 16, 32, 32)], "float32"),
    "attention": (lambda q, k, v: fb.scaled_dot_product_attention(q, k, v), [(2, 4, 70, 32)] * 3, "float32"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _several_threads() -> Iterator[None]:
    with fb.config.scope(num_threads=2, tune="off", deterministic=False):
        yield


def _candidates(run: Callable[[], Any]) -> list[str]:
    """The names of the variants of all kernels of a program."""
    choice.forget()
    with fb.force_variant(choice.DEFAULT):
        run()
    return sorted({name for d in choice.choices() for name in d.candidates})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forced_variant_computes_what_the_default_computes(name: str) -> None:
    function, shapes, dtype = PROGRAMS[name]
    rng = np.random.default_rng(len(name))
    arrays = [fb.asarray(rng.standard_normal(s), dtype=dtype) for s in shapes]
    assert _check_all_variants(function, arrays) > 0, "no variants"


def _check_all_variants(function: Program, arrays: list[fb.Tensor]) -> int:
    """Compare each variant with the default: bits, where its order is the default's; returns the number of variants."""
    jitted = fb.jit(function)
    expected = jitted(*arrays).numpy()
    found = _candidates(lambda: jitted(*arrays))
    assert choice.DEFAULT in found
    tried = 0
    for variant in found:
        choice.forget()
        with fb.force_variant(variant):
            result = jitted(*arrays).numpy()
        decided = [d for d in choice.choices() if d.variant == variant]
        assert decided, f"{variant} was not used"
        tried += variant != choice.DEFAULT
        if any(d.reordered for d in decided):
            scale = np.abs(expected.astype(np.float64)).max()
            far = np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()
            assert far <= 64 * float(fb.finfo(arrays[0].dtype).eps) * scale, variant
        else:
            assert result.tobytes() == expected.tobytes(), variant
    return tried


OF_PRODUCTS = (
    "chunks=2", "chunks=8", "mr=*", "a=direct", "a=phase", "a=unit", "b=phase", "b=unit", "mc*", "nc*", "kc=*", "blocked",
    "library",
)  # fmt: skip
OTHERS = (("b=direct", "large product"), ("splits=*", "very long sums"), ("threads=1", "large product"),
          ("winograd", "convolution of many channels"))  # fmt: skip
"""Variants that samples of conformance are too small to have, or whose error is beyond its bounds: programs that have them."""


@pytest.mark.parametrize(("op", "pattern"), [*(("matmul", p) for p in OF_PRODUCTS), ("conv", "patches")])
def test_products_conform_with_each_variant(op: str, pattern: str) -> None:
    """The thin product of conformance, under ``jit``, with a variant wherever there is one of this name, and there is one."""
    with fb.force_variant(pattern):
        report = conformance("cpu", ops=[op], dtypes=["float32", "bfloat16"], subset="thin", modes=["jit"])
    assert report.ok, report


@pytest.mark.parametrize(("pattern", "program"), OTHERS)
def test_programs_above_have_the_other_variants(pattern: str, program: str) -> None:
    function, shapes, dtype = PROGRAMS[program]
    found = _candidates(lambda: fb.jit(function)(*(fb.ones(s, dtype=dtype) for s in shapes)))
    assert any(fnmatchcase(name, pattern) for name in found), found


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_variants_of_products_and_convolutions_of_random_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k, b = (int(rng.choice([1, 3, 17, 64, 97, 150, 600])) for _ in range(4))
    c, o, side, taps = (int(rng.choice(x)) for x in ([1, 3, 16, 40, 64], [2, 8, 24, 64], [7, 12, 28], [1, 3, 5]))
    products = [((lambda x, y: x @ y), (m, k), (k, n)), ((lambda x, y: x.T @ y.T), (k, m), (n, k))]
    options = {"padding": taps // 2, "stride": int(rng.integers(1, 3))}
    for function, *shapes in [*products, (_conv(**options), (1 + b % 4, c, side, side), (o, c, taps, taps))]:
        _check_all_variants(function, [fb.asarray(rng.standard_normal(s), dtype="float32") for s in shapes])


@pytest.mark.soak
@pytest.mark.parametrize("pattern", [*OF_PRODUCTS, "patches"])
def test_everything_conforms_with_each_variant(pattern: str) -> None:
    with fb.force_variant(pattern):
        report = conformance("cpu", subset="pairwise", modes=["eager", "jit"])
    assert report.ok, report
