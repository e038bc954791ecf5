"""Dtypes, and promotion against the tables of the Array API standard."""

from __future__ import annotations

import pickle
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import firebrick as fb
from firebrick.core.dtypes import ALL, complex_of, python_kind

# the standard's tables; rows and columns in this order
SIGNED = (
    "int8 int16 int32 int64",
    ["int8 int16 int32 int64", "int16 int16 int32 int64", "int32 int32 int32 int64", "int64 int64 int64 int64"],
)
UNSIGNED = (
    "uint8 uint16 uint32 uint64",
    [
        "uint8 uint16 uint32 uint64",
        "uint16 uint16 uint32 uint64",
        "uint32 uint32 uint32 uint64",
        "uint64 uint64 uint64 uint64",
    ],
)
MIXED = (
    "uint8 uint16 uint32",
    {
        "int8": "int16 int32 int64",
        "int16": "int16 int32 int64",
        "int32": "int32 int32 int64",
        "int64": "int64 int64 int64",
    },
)
FLOATING = (
    "float32 float64 complex64 complex128",
    [
        "float32 float64 complex64 complex128",
        "float64 float64 complex128 complex128",
        "complex64 complex128 complex64 complex128",
        "complex128 complex128 complex128 complex128",
    ],
)


def table() -> list[tuple[str, str, str]]:
    out = [("bool", "bool", "bool")]
    for header, rows in (SIGNED, UNSIGNED, FLOATING):
        names = header.split()
        out += [(a, b, c) for a, row in zip(names, rows, strict=True) for b, c in zip(names, row.split(), strict=True)]
    for a, row in MIXED[1].items():
        out += [(a, b, c) for b, c in zip(MIXED[0].split(), row.split(), strict=True)]
    return out


@pytest.mark.parametrize(("a", "b", "c"), table())
def test_promotion_is_the_standards(a: str, b: str, c: str) -> None:
    x, y = fb.ones((2,), dtype=a), fb.ones((2,), dtype=b)
    assert fb.result_type(a, b) is fb.result_type(b, a) is fb.dtype(c)
    if a != "bool":
        assert (x + y).dtype.name == c
        assert (y + x).dtype.name == c
    assert fb.equal(x, y).dtype is fb.bool


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("float16", "bfloat16", "float32"),
        ("bfloat16", "float32", "float32"),
        ("float16", "float64", "float64"),
        ("float16", "float16", "float16"),
    ],
)
def test_the_half_precisions_promote_to_what_holds_both(a: str, b: str, c: str) -> None:
    assert fb.result_type(a, b) is fb.result_type(b, a) is fb.dtype(c)


def test_all_other_pairs_are_an_error_that_names_the_cast() -> None:
    defined = {frozenset(t[:2]) for t in table()}
    halves = {"float16", "bfloat16"}
    names = [d.name for d in ALL if d.name not in halves and d.kind != "storage"]
    for a in names:
        for b in names:
            if frozenset((a, b)) not in defined:
                with pytest.raises(fb.DTypeError, match=r"astype"):
                    fb.result_type(a, b)
                x = {"x1": fb.ones(2, dtype=a), "x2": fb.ones(2, dtype=b)}
                with pytest.raises(fb.DTypeError, match=r"x1: .* x2: ") as caught:
                    fb.equal(*x.values())
                remedy = re.search(r"fb\.astype\((x\d), fb\.(\w+)\)", str(caught.value))
                assert remedy is not None
                name, goal = remedy.groups()
                x[name] = fb.astype(x[name], goal)
                assert fb.equal(*x.values()).shape == (2,), "the remedy must work"


def test_promotion_is_associative_where_it_is_defined() -> None:
    names = ["int8", "int16", "uint8", "uint16", "uint32", "int64"]
    for a in names:
        for b in names:
            for c in names:
                assert fb.result_type(fb.result_type(a, b), c) is fb.result_type(a, fb.result_type(b, c))


@pytest.mark.parametrize(
    ("dtype", "scalar", "ok"),
    [
        ("float32", 1, True),
        ("float32", 1.5, True),
        ("int32", 1, True),
        ("int32", 1.5, False),
        ("bool", True, True),
        ("bool", 1, False),
        ("int8", True, False),
        ("float16", True, False),
        ("complex64", 1j, True),
        ("float64", 1j, False),
        ("uint8", 300, False),
        ("int8", -128, True),
        ("int8", 128, False),
        ("uint64", -1, False),
    ],
)
def test_python_scalars_are_weak_and_must_fit(dtype: str, scalar: object, ok: bool) -> None:
    x = fb.ones(2, dtype=dtype)
    if ok:
        assert fb.equal(x, scalar).dtype is fb.bool
        assert fb.where(fb.asarray([True, False]), x, scalar).dtype is fb.dtype(dtype)
    else:
        with pytest.raises(fb.DTypeError):
            fb.equal(x, scalar)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_float_too_large_for_the_tensor_beside_it_is_infinite_without_a_warning(dtype: str, device: str) -> None:
    assert (fb.ones(1, dtype=dtype, device=device) * -1e39).tolist() == [float("-inf")]


@pytest.mark.parametrize(("goal", "want"), [("int8", [44, -44]), ("uint8", [44, 212]), ("int64", [300, -300])])
def test_an_integer_cast_to_a_narrower_one_wraps(goal: str, want: list[int], device: str) -> None:
    assert fb.astype(fb.asarray([300, -300], device=device), goal).tolist() == want


def test_numpy_arrays_do_not_mix_with_tensors() -> None:
    x = fb.ones(2)
    for other in (np.ones(2), np.array(1.0), np.ones((), np.int32)):
        for call in (lambda o=other: x + o, lambda o=other: o + x, lambda o=other: fb.multiply(x, o)):
            with pytest.raises(fb.OperandError, match=r"fb\.asarray"):
                call()


def test_a_dtype_is_one_object_and_stays_it_through_pickling() -> None:
    for d in ALL:
        assert fb.dtype(d.name) is d
        assert fb.dtype(d.np) is d
        assert pickle.loads(pickle.dumps(d)) is d
        assert repr(d) == f"firebrick.{d.name}"


def test_python_types_are_no_dtypes() -> None:
    with pytest.raises(fb.DTypeError, match=r"write fb\.float64"):
        fb.zeros(2, dtype=float)
    with pytest.raises(fb.DTypeError, match="must be one of bool, int8"):
        fb.dtype("float31")


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_are_numpys(name: str) -> None:
    ours, theirs = fb.finfo(name), np.finfo(name)
    assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
    assert ours.smallest_normal == theirs.smallest_normal
    assert fb.finfo(fb.zeros(2, dtype=name)).dtype is fb.dtype(name)


def test_limits_of_integers_and_of_bfloat16() -> None:
    assert (fb.iinfo("int16").min, fb.iinfo("int16").max, fb.iinfo("uint8").bits) == (-(2**15), 2**15 - 1, 8)
    assert fb.finfo(fb.bfloat16).eps == 2.0**-7
    assert fb.finfo(fb.complex64).bits == 32
    with pytest.raises(fb.DTypeError):
        fb.finfo("int8")
    with pytest.raises(fb.DTypeError):
        fb.iinfo("float32")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("bool", "bool"),
        ("signed integer", "int8 int64"),
        ("unsigned integer", "uint8 uint64"),
        ("integral", "int8 uint8"),
        ("real floating", "float32 bfloat16"),
        ("complex floating", "complex64"),
        ("numeric", "int8 float64 complex128"),
    ],
)
def test_isdtype_knows_the_standards_kinds(kind: str, names: str) -> None:
    for name in names.split():
        assert fb.isdtype(fb.dtype(name), kind)
        assert fb.isdtype(fb.dtype(name), ("bool", kind))
    assert not fb.isdtype(fb.bool, "numeric")
    with pytest.raises(fb.DTypeError):
        fb.isdtype(fb.bool, "integer")


def test_isdtype_takes_a_dtype_as_a_kind() -> None:
    assert fb.isdtype("int8", fb.int8) is True
    assert fb.isdtype("int8", fb.int16) is False
    assert fb.isdtype(fb.float32, (fb.float64, fb.float32)) is True


def test_creation_uses_the_devices_defaults(device: str) -> None:
    home = fb.device(device)
    assert fb.zeros(2, device=device).dtype.name == home.backend.default_float(home)
    assert fb.asarray([1, 2], device=device).dtype.name == home.backend.default_int(home)
    assert fb.asarray([1.0], device=device).dtype.name == home.backend.default_float(home)
    assert fb.asarray(True, device=device).dtype is fb.bool


def test_none_is_no_dtype() -> None:
    with pytest.raises(fb.DTypeError):
        fb.dtype(None)


def test_the_complex_dtype_of_each_floating_one_holds_its_numbers() -> None:
    wide = {d.name: complex_of(d).name for d in ALL if d.kind in ("float", "complex")}
    assert wide == {
        "float16": "complex64", "bfloat16": "complex64", "float32": "complex64", "float64": "complex128",
        "complex64": "complex64", "complex128": "complex128",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("scalar", [True, False, 3, 1.5, 2j])
def test_the_remedy_for_a_scalar_that_does_not_fit_is_another_program_that_works(dtype: str, scalar: Any) -> None:
    """It was fb.astype(x, fb.int64) for True beside an int64 tensor, and for a traced float beside one."""
    x = fb.asarray([1], dtype=dtype)

    def equals(x: Any, s: Any) -> Any:
        return fb.equal(x, s)

    for run in (equals, fb.jit(equals)):
        refused = None
        try:
            run(x, scalar)
        except fb.DTypeError as e:
            refused = e
        if refused is None:
            assert fb.result_type(x, scalar) is x.dtype
            continue
        assert "Weak" not in str(refused)
        assert re.fullmatch(rf"{type(scalar).__name__} .* with {dtype}", refused.received)
        words = re.fullmatch(r"cast the tensor .*fb.astype\(x, fb.(\w+)\)|write (\d) for (True|False)", refused.remedy)
        assert words, refused.remedy
        if words[1]:
            assert words[1] != dtype
            run(fb.astype(x, words[1]), scalar)
        else:
            assert words[3] == str(scalar)
            run(x, int(words[2]))


def test_a_traced_number_that_does_not_fit_is_called_by_its_name() -> None:
    for f in (
        lambda x, s: x * s,
        lambda x, s: fb.masked_fill(x, x == x, s),
        lambda x, s: fb.unique_values(x, size=2, fill_value=s),
    ):
        with pytest.raises(fb.DTypeError, match=r"Received: float s with int64\.\nRemedy: .*fb\.float32"):
            fb.jit(f)(fb.arange(2), 1.5)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_scalar_of_ml_dtypes_counts_as_a_python_float(name: str) -> None:
    scalar = getattr(ml_dtypes, name)(2.0)
    assert python_kind(type(scalar)) is float
    assert (fb.ones(2) * scalar).tolist() == [2.0, 2.0]
    assert (fb.ones(2) * scalar).dtype is fb.float32


def test_pythons_bool_is_a_dtype_since_it_has_one_width() -> None:
    assert fb.dtype(bool) is fb.bool
    assert fb.zeros(2, dtype=bool).dtype is fb.bool
