"""Expressions rewritten for what a target lacks: held against the original by an interpreter that misbehaves as far as the
target's capabilities allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from loose import evaluate_loosely

from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.ops.accuracy import check_results, run_reference, scale_of
from firebrick.ops.table import OPS
from firebrick.scalar import evaluate, inverse, math, periodic, rows
from firebrick.scalar.capabilities import CONSERVATIVE_GPU, CPU, Capabilities
from firebrick.scalar.elements import random_bits, random_uniform
from firebrick.scalar.expr import (
    COMPARISONS,
    Expr,
    binary,
    bounded,
    cast,
    const,
    eq,
    gather,
    index,
    load,
    local,
    maximum,
    ne,
    node,
    position,
    select,
    sqrt,
    unary,
    walk,
)
from firebrick.scalar.interpret import apply
from firebrick.scalar.legalize import legalize, missing
from firebrick.scalar.remainder import remainder
from firebrick.scalar.storage import STORAGE, computed, decode, encode
from firebrick.scalar.wide import bounds_of

Array = np.ndarray[Any, Any]
FLAGS = [f.name for f in fields(Capabilities) if isinstance(getattr(CPU, f.name), bool)]
ALONE = {name: replace(CPU, **{name: getattr(CONSERVATIVE_GPU, name)}) for name in FLAGS if name != "float16"}
RESTORED = {f"all but {name}": replace(CONSERVATIVE_GPU, **{name: getattr(CPU, name)}) for name in ALONE}
SETS = {"cpu": CPU, "gpu": CONSERVATIVE_GPU, **ALONE}
IN_WORDS = {
    f"float64 of a {name}": replace(CONSERVATIVE_GPU, float64=True, **dict.fromkeys(flags, True))
    for name, flags in {
        "conservative GPU": (), "GPU with denormals": ("denormals",),
        "software driver": ("denormals", "exact_division", "exact_sqrt"), "GPU with fma": ("denormals", "exact_fma"),
    }.items()
}  # fmt: skip
"""Targets whose float64 has two words for its bits."""
RULES = {name: op for name, op in OPS.items() if op.fusion == "map" and op.scalar is not None}
LIMIT = 4.0
"""Units of the table's scale by which a rewritten float expression may differ, if a target rounds otherwise."""


def differs(got: Array, want: Array, scale: Array, capabilities: Capabilities) -> str:
    """Where results are not as near as a target with these capabilities has to bring them."""
    if want.dtype.kind != "f":
        wrong = got.astype(want.dtype) != want
        error = np.where(wrong, np.inf, 0.0)
    else:
        info = np.finfo(want.dtype)
        with np.errstate(all="ignore"):
            unit = info.eps * np.maximum(np.maximum(np.abs(want), np.where(np.isfinite(scale), scale, 0)), info.smallest_normal)
            distance = np.abs(got.astype(np.longdouble) - want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        if not capabilities.denormals:
            same |= distance <= 2 * info.smallest_normal
        error = np.where(same, 0.0, np.where(np.isfinite(got) & np.isfinite(want), distance / unit, np.inf)).astype(float)
        exact = capabilities.exact_fma and capabilities.exact_division and capabilities.exact_sqrt and capabilities.denormals
        wrong = error > (0 if exact and not capabilities.reassociates else LIMIT)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, error, 0))), error.shape))
    return f"{error[at]:.3g} units at {at}: got {got[at]}, want {want[at]}"


def lacking(e: Expr, capabilities: Capabilities) -> bool:
    """Whether a refusal is right: the original has a dtype that is not there."""
    wanted = set() if capabilities.int64 else {"int64", "uint64"}
    if not capabilities.float64:
        wanted.add("float64")
    return any(n.dtype in wanted for n in walk([e]))


def tried(name: str, sets: dict[str, Capabilities], dtypes: tuple[str, ...], samples: tuple[str, ...]) -> int:
    """Compare an op under capability sets, and say how often it was not refused."""
    op, count = RULES[name], 0
    for dtype in op.dtypes:
        for sample in op.samples(np.random.default_rng(3), dtype):
            arrays = [np.asarray(a) for a in sample.inputs]
            chosen = dtype in dtypes and sample.name.startswith(samples)
            params = {v.name for v in sample.params.values() if hasattr(v, "itemsize")}
            if not chosen or not {a.dtype.name for a in arrays} | params <= set(STORAGE):
                continue
            assert op.scalar is not None
            e = op.scalar(*(load(i, computed(a.dtype.name)) for i, a in enumerate(arrays)), **sample.params)
            want = np.asarray(evaluate([e], arrays)[0])
            found = scale_of(op, tuple(arrays), sample.params, want)
            scale = np.zeros(()) if found is None else np.nan_to_num(np.asarray(found, np.float64), posinf=0, neginf=0)
            for label, capabilities in sets.items():
                try:
                    made = legalize([e], capabilities, want.shape)
                except (DTypeError, UnsupportedError):
                    assert lacking(e, capabilities), (name, dtype, label)
                    continue
                for cancels in (True, False)[: 1 + capabilities.reassociates]:
                    got = np.asarray(evaluate_loosely(made, arrays, capabilities, cancels=cancels)[0])
                    wrong = differs(got, want, scale, capabilities)
                    assert not wrong, f"{name}, {dtype}, {sample.name}, {label}: {wrong}"
                count += 1
    return count


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_elementwise_entry_keeps_its_values_under_every_capability(name: str) -> None:
    dtypes = ("bool", "int8", "int32", "uint8", "uint32", "float16", "float32", "float64", "int64", "uint64")
    assert tried(name, {"gpu": CONSERVATIVE_GPU}, dtypes, ("special values", "equal shapes", "long", "((3"))
    turn = crc32(name.encode()) % 2  # each target lacks something in every other op, in turn; soak takes all
    some = {"cpu": CPU} | dict(list(ALONE.items())[turn::2])
    assert tried(name, some, ("int8", "int32", "uint32", "float32", "bool"), ("special values", "equal shapes", "((3"))
    if "float64" in RULES[name].dtypes:
        label = list(IN_WORDS)[crc32(name.encode()) % len(IN_WORDS)]  # in turn as well
        assert tried(name, {label: IN_WORDS[label]}, ("float64",), ("special values", "equal shapes", "long", "((3"))


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(RULES))
def test_every_elementwise_entry_keeps_its_values_under_every_combination(name: str) -> None:
    assert tried(name, SETS | RESTORED | IN_WORDS, STORAGE, ("",))


X, Y = load(0, "float32"), load(1, "float32")
BOTH = np.array([0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 0.1], np.float32)
PAIR = [np.ascontiguousarray(v.ravel()) for v in np.meshgrid(BOTH, BOTH)]
M, N = load(0, "int32"), load(1, "int32")
WHOLE = np.array([0, 1, -1, 2, 7, 31, 32, 33, -5, 2**31 - 1, -(2**31)], np.int32)
PLACES = [np.ascontiguousarray(v.ravel()) for v in np.meshgrid(WHOLE, WHOLE)]
FAULTS: dict[str, tuple[Expr, list[Array]]] = {
    "exact_fma": (periodic.sin(X), [np.linspace(1, 3000, 999, dtype=np.float32)]),
    "exact_division": (X / Y, PAIR),
    "exact_sqrt": (sqrt(X), [np.linspace(0.1, 9, 99, dtype=np.float32)]),
    "denormals": (decode(cast(load(0, "uint32"), "uint16"), "float16"), [np.arange(1, 65536, 7, dtype=np.uint32)]),
    "reassociates": (inverse.acosh(X), [np.linspace(1, 2, 999, dtype=np.float32)]),
    "nan_min_max": (maximum(X, Y), PAIR),
    "nan_comparisons": (ne(X, Y), PAIR),
    "total_integers": (M >> N, PLACES),
    "saturating_casts": (cast(X, "int32"), PAIR),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_misbehaving_interpreter_shows_what_is_not_rewritten(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e, arrays = FAULTS[name]
    capabilities = ALONE[name]
    want = np.asarray(evaluate([e], arrays)[0])
    got = np.asarray(evaluate_loosely(legalize([e], capabilities), arrays, capabilities)[0])
    assert not differs(got, want, np.zeros(()), capabilities)
    monkeypatch.setattr("loose.missing", lambda *_: "")
    got = np.asarray(evaluate_loosely(legalize([e], CPU), arrays, capabilities)[0])
    bad = (got != want) & ~((got != got) & (want != want))
    assert bad.any()


@pytest.mark.parametrize("function", [math.log, math.log1p, math.expm1, inverse.asinh])
def test_terms_that_nearly_cancel_are_kept_from_being_reordered(function: Callable[[Expr], Expr]) -> None:
    e = function(X)
    size = 0.03 if function is inverse.asinh else 1e-4
    x = np.linspace(size, 2 * size, 99, dtype=np.float32) + np.float32(function is math.log)
    capabilities = replace(ALONE["reassociates"], exact_fma=False)
    want = evaluate([e], [x])[0]
    got = evaluate_loosely(legalize([e], capabilities), [x], capabilities, cancels=False)[0]
    assert not differs(got, want, np.zeros(()), capabilities)
    careless = legalize([e], replace(capabilities, reassociates=False))
    got = evaluate_loosely(careless, [x], capabilities, cancels=False)[0]
    assert differs(got, want, np.zeros(()), capabilities)


def test_half_precision_is_read_and_written_without_denormal_numbers() -> None:
    bits = np.arange(65536, dtype=np.uint32)
    for dtype in ("float16", "bfloat16"):
        e = decode(cast(load(0, "uint32"), "uint16"), dtype)
        want = evaluate([e], [bits])[0]
        got = evaluate_loosely(legalize([e], CONSERVATIVE_GPU), [bits], CONSERVATIVE_GPU)[0]
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
        e = encode(load(0, "float32"), dtype)
        x = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
        x = np.concatenate([x, want[np.isfinite(want)], want[np.isfinite(want)] * np.float32(1 + 2**-12)])
        want = evaluate([e], [x])[0]
        got = evaluate_loosely(legalize([e], CONSERVATIVE_GPU), [x], CONSERVATIVE_GPU)[0]
        assert got.dtype == np.uint32
        assert np.array_equal(got, want)


@pytest.mark.parametrize("offset", [0, 5, 2**31 - 3, 2**34 + 1, 2**63 - 400])
def test_random_words_are_the_same_bits_by_32_bit_halves(offset: int) -> None:
    key = [np.array([k], np.uint32) for k in (1, 2**31 + 5, 77, 2**32 - 1)]
    words = [load(i, "uint32") for i in range(4)]
    at = {0: np.arange(333, dtype=np.int64)}
    for e in (random_bits(words, index(0) + offset), random_uniform(words, index(0) + offset, "float32")):
        want = evaluate([e], key, at)[0]
        made = legalize([e], CONSERVATIVE_GPU, (333,))
        assert np.array_equal(evaluate_loosely(made, key, CONSERVATIVE_GPU, at)[0], want)


WIDE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum": lambda a, b: a + b, "difference": lambda a, b: a - b, "product": lambda a, b: a * b, "negative": lambda a, b: -a,
    "left": lambda a, b: a << (b & 127), "right": lambda a, b: a >> (b & 127), "left by 40": lambda a, b: a << 40,
    "right by 31": lambda a, b: a >> 31, "right by 32": lambda a, b: a >> 32,
    "and": lambda a, b: a & b, "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a, "maximum": maximum, "chosen": lambda a, b: select(a < b, a + b, b),
    "quotient": lambda a, b: a / b, "remainder": lambda a, b: binary("rem", a, b),
    "small quotient": lambda a, b: a / (b >> 40), "small remainder": lambda a, b: binary("rem", a, b >> 40),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("name", sorted(WIDE))
def test_64_bit_arithmetic_by_two_words(name: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    edges = np.array([0, 1, 2, 31, 32, 33, 63, 64, 2**31, 2**32 - 1], np.uint32)
    parts = [
        np.concatenate([rng.integers(0, 2**32, 300, dtype=np.uint64).astype(np.uint32), rng.choice(edges, 300)])
        for _ in range(4)
    ]
    rng.shuffle(parts[0])
    low = [cast(load(i, "uint32"), dtype) for i in (0, 2)]
    a, b = ((cast(load(i + 1, "uint32"), dtype) << 32) | x for i, x in zip((0, 2), low, strict=True))
    if name in ("left", "right"):
        b = low[1]
    out = WIDE[name](a, b)
    for e in (cast(out, "uint32"), cast(out >> 32, "int32"), out < a, eq(out, b), out >= b, cast(out, "float32")):
        want = evaluate([e], parts)[0]
        made = legalize([e], ALONE["int64"])
        got = evaluate_loosely(made, parts, ALONE["int64"])[0]
        assert np.array_equal(np.broadcast_to(got, want.shape), want), e


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_a_float_as_a_64_bit_integer_in_two_words(dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = [0.0, -0.0, 0.99, -0.99, 1.0, 2.0**23, 2.0**24, 2.0**62, 2.0**63, 2.0**64, -(2.0**63), np.inf, -np.inf, np.nan]
    x = np.concatenate([x, (rng.normal(size=5_000) * 2.0 ** rng.integers(0, 66, 5_000)).astype(np.float32), np.float32(edges)])
    out = cast(load(0, "float32"), dtype)
    for e in (cast(out, "uint32"), cast(out >> 32, "uint32")):
        want = evaluate([e], [x])[0]
        got = evaluate_loosely(legalize([e], ALONE["int64"]), [x], ALONE["int64"])[0]
        assert np.array_equal(got, want)


def test_index_arithmetic_that_fits_is_one_int32_a_node() -> None:
    shape = (3, 5, 7)
    at = {a: np.arange(n, dtype=np.int64).reshape([-1 if b == a else 1 for b in range(3)]) for a, n in enumerate(shape)}
    table, rows_ = np.arange(400, dtype=np.float32), np.array([-1, 4, 9], np.int32).reshape(3, 1, 1)
    chosen = bounded(cast(load(1, "int32"), "int64"), 11, 1) * 35 + index(2)
    for e in (gather(0, "float32", position((35, 7, 1))), gather(0, "float32", chosen), cast(index(1) - 2, "float32")):
        want = evaluate([e], [table, rows_], at)[0]
        made = legalize([e], CONSERVATIVE_GPU, shape)
        assert np.array_equal(evaluate_loosely(made, [table, rows_], CONSERVATIVE_GPU, at)[0], want)
        assert not [n for n in walk(made) if n.dtype == "uint32"]
    assert bounds_of([position((35, -7, 1))], shape)[position((35, -7, 1))] == (-28, 76)


@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr", "div", "rem", "neg", "abs", "not"]
)
def test_bounds_of_integers_hold_all_values(op: str) -> None:
    a, b = local("a", "int64"), local("b", "int64")
    e = unary(op, a) if op in ("neg", "abs", "not") else binary(op, a, b)
    ends = (-9, -4, -1, 0, 1, 3, 8)
    for low, high, least, most in product(ends, ends, ends, ends):
        if low <= high and least <= most:
            found = bounds_of([e], (), {"a": (low, high), "b": (least, most)})[e]
            x, y = (v.ravel() for v in np.meshgrid(np.arange(low, high + 1), np.arange(least, most + 1)))
            values = apply(op, "int64", [x, y][: len(e.args)], None)
            assert found[0] <= values.min(), (low, high, least, most)
            assert values.max() <= found[1], (low, high, least, most)


def test_an_index_beyond_its_axis_is_clamped_from_every_integer() -> None:
    at = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    e = gather(1, "float32", bounded(cast(load(0, "uint32"), "int64"), 3, 1))
    table = np.array([1, 2, 3], np.float32)
    made = legalize([e], CONSERVATIVE_GPU)
    assert evaluate_loosely(made, [at, table], CONSERVATIVE_GPU)[0].tolist() == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    "e",
    [
        rows.softmax(X), rows.log_softmax(X), rows.layer_norm(X, Y, Y, 65, 1e-5), rows.average(X, 65),
        rows.any_true(load(0, "bool")),
        cast(rows.first_extreme("max", X, index(1)), "int32"), rows.rms_norm(X, Y, 65, 1e-5),
    ],
    ids=["softmax", "log_softmax", "layer_norm", "mean", "any", "argmax", "rms_norm"],
)  # fmt: skip
def test_row_expressions_keep_their_values(e: Expr) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(9, 65)).astype(np.float32), rng.normal(size=(9, 65)).astype(np.float32)]
    at = {0: np.arange(9, dtype=np.int64)[:, None], 1: np.arange(65, dtype=np.int64)[None]}
    want = evaluate([e], arrays, at)[0]
    for label, capabilities in SETS.items():
        if label in ("int64", "gpu") or label in ALONE:
            got = evaluate_loosely(legalize([e], capabilities, (9, 65)), arrays, capabilities, at)[0]
            wrong = differs(np.asarray(got), np.asarray(want), np.full((), 4.0), capabilities)
            assert not wrong, (label, wrong)


def test_what_cannot_be_had_is_refused_by_name() -> None:
    with pytest.raises(DTypeError, match=r'no float64.*\n.*load of float64.*\n.*astype\("float32"\)'):
        legalize([load(0, "float64") + 1.0], CONSERVATIVE_GPU)
    with pytest.raises(DTypeError, match=r"no 64-bit integers.*\n.*load of int64.*\n.*int32"):
        legalize([cast(load(0, "int64"), "float32")], CONSERVATIVE_GPU)
    with pytest.raises(DTypeError, match="a result of int64"):
        legalize([index(0) + 1], CONSERVATIVE_GPU, (5,))
    with pytest.raises(UnsupportedError, match="2³¹ elements"):
        legalize([gather(0, "float32", index(0))], CONSERVATIVE_GPU, (2**31 + 1,))
    with pytest.raises(UnsupportedError, match="positions of operand 0"):
        legalize([gather(0, "float32", cast(load(1, "uint32"), "int64") * 8)], CONSERVATIVE_GPU)


def test_a_target_that_has_everything_gets_what_it_gave() -> None:
    kept = {"nearest", "nearest_bits", "muladd", "fma", "scale", "philox"}
    for e in (
        math.exp(X),
        periodic.sin(X),
        inverse.asinh(X),
        remainder(X, Y),
        random_bits([load(i, "uint32") for i in range(4)], index(0)),
    ):
        made = legalize([e], CPU, (7,))
        assert {n.op for n in walk(made)} & kept == {n.op for n in walk([e])} & kept
        assert not missing(made, CPU)
    assert legalize([math.exp(X)], CPU)[0] is math.exp(X)
    assert missing([periodic.sin(X)], CONSERVATIVE_GPU)
    assert missing([const(1, "int64") + load(0, "int64")], CONSERVATIVE_GPU)


@pytest.mark.parametrize("op", sorted(COMPARISONS))
def test_denormal_numbers_are_compared_where_arithmetic_takes_them_for_zeros(op: str) -> None:
    target = replace(CONSERVATIVE_GPU, reassociates=False)
    tiny = float(np.finfo(np.float32).tiny)
    values = np.array([0.0, tiny / 2, tiny / 4, 1e-45, tiny, 1.0, np.inf, np.nan], np.float32)
    values = np.concatenate([values, -values])
    x, y = (a.reshape(-1).copy() for a in np.meshgrid(values, values))
    wanted = {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[op]
    (made,) = legalize([binary(op, load(0, "float32"), load(1, "float32"))], target)
    (found,) = evaluate_loosely([made], [x, y], target)
    np.testing.assert_array_equal(found, wanted)
    for number in (0.0, tiny / 2, -tiny / 4, 1.0, float("nan")):
        exact = binary(op, load(0, "float32"), const(number, "float32"))
        (found,) = evaluate_loosely(legalize([exact], target), [values], target)
        (want,) = evaluate([exact], [values])
        np.testing.assert_array_equal(found, want)


def test_a_minimum_of_denormal_numbers_is_the_smaller_one() -> None:
    target = replace(CONSERVATIVE_GPU, reassociates=False)
    x = np.array([1e-40, -1e-40, 0.0, 2e-39], np.float32)
    y = np.array([2e-40, 1e-41, 1e-45, np.nan], np.float32)
    for op, want in (("min", np.minimum(x, y)), ("max", np.maximum(x, y))):
        (found,) = evaluate_loosely(legalize([binary(op, load(0, "float32"), load(1, "float32"))], target), [x, y], target)
        np.testing.assert_array_equal(found, want)


HARD = np.array([0.0, 2**-126, 2**-127, 1e-40, 1e-45, 1.5 * 2**-126, 2**-125, 1e-31, 1e-20, 0.5, 1.0, 1.5, 2**24, 1e20, 2**126,
                 3e38, np.inf], np.float32)  # fmt: skip
HARD = np.concatenate([HARD, -HARD, np.array([np.nan], np.float32)])
SUMS_AND_PRODUCTS = {"add", "subtract", "multiply"}
"""Operations that may take denormal operands for zeros, as docs/webgpu.md says."""


def hard(name: str, target: Capabilities) -> Any:
    """The worst result of an op of hard operands on a target, by the rule for flushed numbers."""
    op = RULES[name]
    sample = next(iter(op.samples(np.random.default_rng(3), "float32")))
    grid = np.meshgrid(*[HARD] * len(op.operands)) if len(op.operands) < 3 else np.random.default_rng(0).choice(HARD, (3, 2000))
    arrays = tuple(np.ascontiguousarray(a.reshape(-1)).astype(np.asarray(x).dtype)
                   for a, x in zip(grid, sample.inputs, strict=True))  # fmt: skip
    assert op.scalar is not None
    e = op.scalar(*(load(i, computed(a.dtype.name)) for i, a in enumerate(arrays)), **sample.params)
    (made,) = legalize([e], target, arrays[0].shape)
    (found,) = evaluate_loosely([made], arrays, target, cancels=False)
    want = run_reference(op, arrays, sample.params)
    got = np.broadcast_to(np.asarray(found), want[0].shape)
    with np.errstate(all="ignore"):
        return check_results(op, arrays, sample.params, (got.astype(want[0].dtype if got.dtype.kind != "f" else got.dtype),),
                             want, flushes=True)  # fmt: skip


FLOAT_RULES = sorted(n for n, op in RULES.items() if "float32" in op.dtypes and n not in SUMS_AND_PRODUCTS | {"cast"})


@pytest.mark.parametrize(
    "target", [replace(CPU, denormals=False), replace(CONSERVATIVE_GPU, reassociates=False)], ids=["cpu", "gpu"]
)
@pytest.mark.parametrize("name", FLOAT_RULES)
def test_where_denormal_numbers_are_flushed_every_normal_result_is_right(name: str, target: Capabilities) -> None:
    worst = hard(name, target)
    assert worst.ok, worst


def test_a_sum_of_denormal_numbers_may_be_lost() -> None:
    """The test above can fail."""
    for name in SUMS_AND_PRODUCTS:
        assert not hard(name, replace(CPU, denormals=False)).ok
        assert hard(name, CPU).ok


@pytest.mark.parametrize("lacks", ["nan_comparisons", "denormals"])
@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_with_itself_and_with_constants_are_those_of_ieee(op: str, lacks: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 2.0**-126]
    x = np.array(values, np.float32)
    compared = {
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
    }
    capabilities = replace(CPU, **{lacks: False})
    for other in (None, *values):
        e = X if other is None else const(other, "float32")
        for a, b in ((X, e), (e, X)):
            made = legalize([binary(op, a, b)], capabilities)
            found = evaluate(made, [x])[0]
            want = compared[op](*(x if y is X else np.float32(other) for y in (a, b)))
            assert np.broadcast_to(found, x.shape).tolist() == want.tolist(), (other, a is X)


@pytest.mark.parametrize("fused", [True, False], ids=["fma", "no fma"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_and_roots_of_inexact_drivers_are_correctly_rounded(dtype: str, fused: bool) -> None:
    """Also those next to the middle of two floats, which a correction that is rounded itself misses."""
    capabilities = replace(CPU, exact_division=False, exact_sqrt=False, exact_fma=fused)
    rng, unit = np.random.default_rng(0), np.finfo(dtype).eps
    near_one = np.concatenate([1 + unit * np.arange(200), 2 - unit * np.arange(1, 200), 4 - 2 * unit * np.arange(1, 200)])
    drawn = rng.uniform(1, 2, 20_000)
    x = np.concatenate([np.repeat(near_one, 20), drawn]).astype(dtype)
    y = np.concatenate([rng.choice(near_one, 20 * near_one.size), rng.permutation(drawn)]).astype(dtype)
    for e, want in ((load(0, dtype) / load(1, dtype), x / y), (sqrt(load(0, dtype)), np.sqrt(x))):
        (got,) = evaluate_loosely(legalize([e], capabilities), [x, y], capabilities)
        np.testing.assert_array_equal(got, want)


def test_a_fused_product_and_sum_of_values_that_are_not_finite_is_that_of_ieee() -> None:
    values = np.array([0.0, 1.0, -2.5, 3e38, np.inf, -np.inf, np.nan], np.float32)
    arrays = [np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values, values)]
    e = node("fma", "float32", tuple(load(i, "float32") for i in range(3)))
    capabilities = replace(CPU, exact_fma=False)
    made = legalize([e], capabilities)
    assert not any(x.op == "fma" for x in walk(made))
    found, want = evaluate_loosely(made, arrays, capabilities)[0], evaluate([e], arrays)[0]
    with np.errstate(all="ignore"):
        product_of = arrays[0] * arrays[1]
    # a product that overflows where the sum does not is one of ``VAST``
    away = np.isfinite(product_of) | ~np.isfinite(arrays[0]) | ~np.isfinite(arrays[1])
    assert away.sum() > 250
    np.testing.assert_array_equal(found[away], want[away])
