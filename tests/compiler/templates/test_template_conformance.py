"""GPU templates compute the conformance samples of the ops that they are for, within the ops' own tolerances.

The code is that for GPUs, executed by fibers of this machine (``fibers_on_cpu``); some launches of small samples are compared
with the interpreter too. How many samples of each op are computed, and why others are not, is a table, so the share cannot
shrink unnoticed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import template_ops
from template_launches import Launches
from template_ops import OPS_BY_TEMPLATES, smaller
from template_samples import drawn_samples, posed, share_of, size_classes

from firebrick.compiler import templates
from firebrick.compiler.kernel.language.intrinsics import group, lane
from firebrick.compiler.templates import row_reduction
from firebrick.compiler.templates.epilogues import add
from firebrick.compiler.templates.template import constant, operand, result, template
from firebrick.core.dtypes import float32

EVERY = pytest.mark.parametrize("name", OPS_BY_TEMPLATES)
COMPLEX, INTEGERS, THREE_AXES = "complex numbers", "integers", "images of three axes"
NOT_FINITE = "weights that are not finite"
SORT = ("digit_counts", "digit_scatter", "scan")
GRADIENTS = ("attention", "deltas", "key_gradients", "query_gradient")

# templates; samples computed, thinned and all; samples refused by reason, thinned and all
SHARES: dict[str, tuple[tuple[str, ...], int, int, dict[str, tuple[int, int]]]] = {
    "matmul": (("product",), 6, 72, {INTEGERS: (12, 90), COMPLEX: (6, 36)}),
    "conv": (("convolution",), 5, 64, {THREE_AXES: (1, 8)}),
    "conv_input": (("input_gradient",), 5, 64, {THREE_AXES: (1, 8), NOT_FINITE: (2, 24)}),
    "conv_weight": (("row_reduction", "weight_gradient"), 5, 64, {THREE_AXES: (1, 8)}),
    "attention": (("attention",), 7, 42, {}),
    "attention_gradient": (GRADIENTS, 6, 42, {}),
    "sum": (("row_reduction",), 18, 162, {COMPLEX: (6, 36)}),
    "mean": (("row_reduction",), 6, 68, {COMPLEX: (6, 34)}),
    "prod": (("row_reduction",), 19, 168, {COMPLEX: (7, 38)}),
    "max": (("row_reduction",), 21, 171, {}),
    "min": (("row_reduction",), 21, 171, {}),
    "any": (("row_reduction",), 6, 18, {}),
    "all": (("row_reduction",), 6, 18, {}),
    "cumulative_sum": (("scan",), 27, 233, {COMPLEX: (8, 46)}),
    "cumulative_prod": (("scan",), 19, 239, {COMPLEX: (0, 48)}),
    "cumulative_max": (("scan",), 27, 225, {}),
    "cumulative_min": (("scan",), 18, 225, {}),
    "sort": (SORT, 21, 171, {}),
    "top_k": (SORT, 18, 225, {}),
    "index_add": (("segmented_scatter",), 12, 99, {COMPLEX: (4, 22)}),
    "scatter_add": (("segmented_scatter",), 12, 90, {COMPLEX: (4, 20)}),
    "scatter_reduce": (("segmented_scatter",), 27, 225, {}),
    "max_pool": (("window",), 5, 64, {THREE_AXES: (1, 8)}),
    "avg_pool": (("window",), 4, 48, {THREE_AXES: (1, 8)}),
    "max_pool_gradient": (("segmented_scatter",), 6, 72, {}),
}  # fmt: skip


def check_share(name: str, thin: bool) -> None:
    """Compute samples of an op, and compare their numbers with the table."""
    launched, *computed, refused = SHARES[name]
    share = share_of(name, thin)
    assert share.templates == set(launched)
    assert share.computed == computed[not thin]
    assert share.refused == {reason: counts[not thin] for reason, counts in refused.items() if counts[not thin]}


@EVERY
def test_templates_compute_samples_of_an_op_within_its_tolerance(name: str) -> None:
    check_share(name, thin=True)


@pytest.mark.soak
@EVERY
def test_templates_compute_all_samples_of_an_op_within_its_tolerance(name: str) -> None:
    check_share(name, thin=False)


def test_every_template_computes_samples_of_an_op() -> None:
    assert set(SHARES) == set(OPS_BY_TEMPLATES)
    made = {n for n in templates.__all__ if hasattr(getattr(templates, n), "cache_info")}
    assert made == {t for launched, *_ in SHARES.values() for t in launched}


@EVERY
def test_samples_have_sizes_of_all_kinds(name: str) -> None:
    of = "bool" if name in ("any", "all") else "float32"
    drawn = size_classes(drawn_samples(name, of))
    every = size_classes(p.sample for p in posed(name, thin=False))
    assert set(drawn) >= {"1", "equal sizes", "an odd prime", "a multiple of 16", "no multiple of 16"} - (
        {"a multiple of 16", "no multiple of 16"} if "pool" in name else set()
    )
    assert every["0"]


@pytest.mark.parametrize(
    ("name", "function", "wrong"),
    [
        ("max", "larger", smaller),
        ("scatter_add", "add", smaller),
        ("avg_pool", "divided", lambda of, count: templates.epilogues.same),
        ("cumulative_sum", "lines", lambda x, vector: np.flip(x, -1).reshape(*x.shape[:-1], -1, vector)),
        ("sort", "ordered", lambda x, descending: (x.view(f"u{x.itemsize}"), 8 * x.itemsize)),
    ],
)
def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch, name: str, function: str, wrong: Any) -> None:
    monkeypatch.setattr(template_ops, function, wrong)
    with pytest.raises(AssertionError, match=" is off by "):
        share_of(name, thin=True)


def test_elements_that_no_thread_stores_are_not_zeros() -> None:
    @template(
        {"x": operand(None, "n"), "out": result("x", "n"), "group_size": constant(int)},
        "(n + group_size - 1) // group_size", "group_size", lambda launch: True,
    )  # fmt: skip
    def every_other(x: Any, out: Any, group_size: int) -> None:
        at = group() * group_size + lane()
        if at < x.shape[0] and at % 2 == 0:
            out[at] = x[at]

    x = np.zeros(37, np.float32)
    (found,) = Launches().launch(every_other, {"x": x}, {"out": (x.shape, x.dtype)}, group_size=32)
    assert not found[::2].any()
    assert found[1::2].all()


def test_only_dtypes_are_a_reason_to_refuse_a_sample() -> None:
    x = np.ones((3, 5, 1), np.float32)
    with pytest.raises(AssertionError, match="row_reduction is not valid for "):
        Launches().launch(
            row_reduction(add, 0), {"x": x}, {"out": ((3,), x.dtype)}, group_size=32, lanes=3, vector=1, of=float32
        )
