"""einsum against NumPy's, on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firebrick as fb
from firebrick.functions import contraction

CASES: list[tuple[Any, ...]] = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ba,bc->ac", (3, 2), (3, 4)),
    ("ij,kj->ik", (2, 3), (4, 3)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bhqk,bkhd->bqhd", (2, 3, 4, 6), (2, 6, 3, 5)),
    ("ii", (4, 4)),
    ("ii->i", (4, 4)),
    ("iij->ji", (3, 3, 2)),
    ("iji->j", (3, 2, 3)),
    ("iiii->i", (2, 2, 2, 2)),
    ("ijk->", (2, 3, 4)),
    ("ijk->ki", (2, 3, 4)),
    ("ba", (2, 3)),
    ("i...->...i", (2, 3, 4)),
    ("...", (2, 3)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->ji", (3,), (4,)),
    ("i,->i", (3,), ()),
    (",,->", (), (), ()),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("ij,ji->i", (3, 4), (4, 3)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("ij,k->ij", (2, 3), (4,)),
    ("...i,...i->...", (2, 1, 4), (3, 4)),
    ("...,...", (3,), (3,)),
    ("ij...,jk->ik...", (2, 3, 4), (3, 5)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ijkl,klmn->ijmn", (2, 3, 2, 2), (2, 2, 3, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ab,bc,cd,de->ea", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("ab,cd,ef->bdf", (2, 3), (4, 5), (2, 2)),
    ("ij,jk,ik->", (2, 3), (3, 4), (2, 4)),
    (" i j , j k -> i k ", (2, 3), (3, 0)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("Ab,bC", (2, 3), (3, 4)),
]


def operands(shapes: Any, dtype: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for shape in shapes:
        a = rng.normal(size=shape) * 4
        found.append(np.asarray(a + 1j * rng.normal(size=shape) if dtype is np.complex128 else a).astype(dtype))
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int32, np.int8])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_einsum_is_numpys(case: tuple[Any, ...], dtype: Any, device: str) -> None:
    arrays = operands(case[1:], dtype)
    want = np.einsum(case[0], *arrays)
    got = fb.einsum(case[0], *(fb.asarray(a, device=device) for a in arrays))
    assert got.dtype.name == want.dtype.name
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@given(data=st.data())
def test_any_product_of_named_axes_is_numpys(device: str, data: st.DataObject) -> None:
    sizes = {c: data.draw(st.integers(0, 3)) for c in "abcd"}
    terms = data.draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    output = data.draw(st.permutations(used)) if used else []
    output = output[: data.draw(st.integers(0, len(output)))]
    subscripts = f"{','.join(terms)}->{''.join(output)}"
    arrays = operands([tuple(sizes[c] for c in term) for term in terms], np.float64)
    got = fb.einsum(subscripts, *(fb.asarray(a, device=device) for a in arrays))
    np.testing.assert_allclose(got.numpy(), np.einsum(subscripts, *arrays), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", [c for c in CASES if c[0] not in (",,->",) and 0 not in sum(c[1:], ())], ids=str)
def test_gradients_flow_through_einsum(case: tuple[Any, ...]) -> None:
    arrays = [fb.asarray(a / 4, device="numpy") for a in operands(case[1:], np.float64)]
    fb.gradcheck(lambda *xs: fb.einsum(case[0], *xs), arrays)


def test_operands_promote(device: str) -> None:
    x = fb.ones((2, 3), dtype=fb.float32, device=device)
    assert fb.einsum("ij,kj->ik", x, fb.ones((4, 3), dtype=fb.float64, device=device)).dtype is fb.float64
    with pytest.raises(fb.DTypeError):
        fb.einsum("ij,kj->ik", x, fb.ones((4, 3), dtype=fb.int64, device=device))


def test_a_chain_is_contracted_in_the_cheaper_order() -> None:
    # (long vector) times (matrix) times (matrix): from the vector on, never the two matrices first
    plan = contraction._plan("ij,jk,k->i", ((50, 50), (50, 50), (50,)))
    assert [set(s.places) for s in plan.steps] == [{1, 2}, {0, 1}]
    plan = contraction._plan("i,ij,jk->k", ((50,), (50, 50), (50, 50)))
    assert set(plan.steps[0].places) == {0, 1}


def test_a_plan_is_made_once_for_subscripts_and_shapes() -> None:
    x = fb.ones((2, 3))
    fb.einsum("xy,zy->xz", x, x)
    before = contraction._plan.cache_info()
    fb.einsum("xy,zy->xz", x, x)
    after = contraction._plan.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_products_of_laid_out_operands_need_no_transposition() -> None:
    plan = contraction._plan("bhqd,bhdk->bhqk", ((2, 3, 4, 5), (2, 3, 5, 6)))
    step = plan.steps[0]
    assert step.left.order == step.right.order == plan.order == (0, 1, 2, 3)
    swapped = contraction._plan("jk,ij->ik", ((3, 4), (2, 3)))
    assert swapped.order == (0, 1)
    assert swapped.steps[0].left.order == swapped.steps[0].right.order == (0, 1)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "error", "text"),
    [
        ("ij,jk->ik", [(2, 3)], fb.ShapeError, "names 2 operands"),
        ("ij->ij", [(2, 3), (3, 4)], fb.ShapeError, "names 1 operands"),
        (
            "ij,jk->ik",
            [(2, 3), (4, 5)],
            fb.ShapeError,
            r"'j' of 'ij,jk->ik' must have one size\nReceived: 3 and 4 \(operands\[1\] of shape \(4, 5\)",
        ),
        ("ii->i", [(2, 3)], fb.ShapeError, r"'i' of 'ii->i' must have one size\nReceived: 2 and 3 \(operands\[0\] of"),
        ("ijk->i", [(2, 3)], fb.ShapeError, "needs 3 axes"),
        ("i->i", [(2, 3)], fb.ShapeError, "needs 1 axes"),
        ("...ijk->i...", [(2, 3)], fb.ShapeError, "needs at least 3 axes"),
        ("...i,...j->...ij", [(2, 3), (3, 4)], fb.ShapeError, "an axis of"),
        ("ij->ii", [(2, 3)], fb.ConfigError, "stands there once"),
        ("ij->k", [(2, 3)], fb.ConfigError, "stands there once"),
        ("i1->i", [(2, 3)], fb.ConfigError, "subscripts are letters"),
        ("i->j->k", [(2,)], fb.ConfigError, "subscripts are letters"),
        ("i..j->ij", [(2, 3)], fb.ConfigError, "subscripts are letters"),
        ("...i->i", [(2, 3)], fb.ConfigError, "must have the axes of"),
        ("i->i", [], fb.ShapeError, "names 1 operands"),
    ],
)
def test_bad_subscripts_say_what_was_expected(
    subscripts: str, shapes: Any, error: type[Exception], text: str, device: str
) -> None:
    with pytest.raises(error, match=text):
        fb.einsum(subscripts, *(fb.ones(s, device=device) for s in shapes))


def test_operands_that_are_none_are_refused(device: str) -> None:
    with pytest.raises(fb.OperandError, match=r"operands\[1\] must be a Firebrick tensor"):
        fb.einsum("i,i", fb.ones(2, device=device), np.ones(2))
    with pytest.raises(fb.DTypeError, match=r"operands\[0\]"):
        fb.einsum("i->", fb.asarray([True], device=device))
    with pytest.raises(fb.OperandError, match="subscripts is a string"):
        fb.einsum(fb.ones(2), "i")  # type: ignore[arg-type]


def test_outer(device: str) -> None:
    for dtype in (np.float64, np.int16, np.complex64):
        a, b = (v.astype(dtype) for v in operands([(2, 3), (4,)], np.float64))
        np.testing.assert_array_equal(
            fb.outer(fb.asarray(a, device=device), fb.asarray(b, device=device)).numpy(), np.outer(a, b)
        )
