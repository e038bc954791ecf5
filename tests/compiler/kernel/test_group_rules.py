"""What kernel IR refuses of groups, shared arrays, atomics, barriers and shuffles: each rule with its error."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from written_kernels import ITEM, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
    verify,
)
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import Expr, cast, const, local, ne, select
from firebrick.scalar.storage import STORAGE

X, COUNTS = ArrayParameter("x", "int32"), ArrayParameter("counts", "int32", "read_write")
W, H = ArrayParameter("w", "int32", "write"), ArrayParameter("h", "float16", "read_write")
S, F = SharedArray("s", "uint32", 16), SharedArray("f", "float64", 8)
N, ROW = ScalarParameter("n"), local("r", "int64")
ONE, BIG, REAL, YES = const(1, "int32"), const(1, "uint32"), const(1.0, "float64"), const(True, "bool")
MEET = Barrier()


def kernel(*body: Any, **changes: Any) -> Function:
    fields = {
        "name": "k", "arrays": (X, COUNTS, W, H), "scalars": (N,), "item": "i", "body": body, "outer": ("r",), "group": 8,
        "shared": (S, F),
    } | changes  # fmt: skip
    return Function(**fields)


def shuffle(value: Expr = ONE, source: Expr = ITEM, width: Any = 4, name: str = "t") -> Shuffle:
    return Shuffle(name, value, source, width)


IN_USE = "choose another name, or Assign to the one there is"
ANOTHER, CAST = "take another dtype", "cast the value to "
WORDS = "int32, int64, uint32, uint64"
NUMBERS = f"{WORDS}, float32, float64"
OPERANDS = "the operands of an atomic operation have the dtype of "
MIXED = "an array is accessed either by atomics or plainly between two barriers"
APART = "put a Barrier between the accesses, or let two kernels do it, or access it by atomics only"
KEPT = "arguments, counters, indices and results of atomics and shuffles keep their values"
WIDTH = "the width of Shuffle is a power of two that divides the group of 8"
LESS = If(ITEM < 3, (MEET,))
OUT = "move it out of the block, or make the block depend on arguments, outer indices and uniform elements of arrays"
INSIDE = "one inside `"
VARIES = "`, where its condition varies between items of a group, in `"
flag = Let("flag", YES)
Rules = list[tuple[str, str, list[tuple[Function, str]]]]

# what is expected, what to do, and kernels that break the rule with what their errors say was received
RULES: Rules = [
    ("a group is a number of items, or 0 for none", "pass an int of at least 1", [
        (kernel(group=-1), "-1"), (kernel(group=True), "True"), (kernel(group=8.0), "8.0"),
    ]),
    ("arrays are shared by the items of a group", "give the kernel a group", [
        (kernel(group=0), "s: shared uint32[16], f: shared float64[8], and no group"),
    ]),
    ("the shared array is not in use already", IN_USE, [
        (kernel(shared=(S, S)), "s"), (kernel(shared=(SharedArray("x", "int8", 1),)), "x"),
        (kernel(shared=(SharedArray("i", "int8", 1),)), "i"), (kernel(shared=(SharedArray("r", "int8", 1),)), "r"),
    ]),
    ("the shared array is made of letters, digits and underscores", "choose another name", [
        (kernel(shared=(SharedArray("s t", "int8", 1),)), "'s t'"),
    ]),
    (f"the elements of an array are {', '.join(STORAGE)}", ANOTHER, [
        (kernel(shared=(SharedArray("s", "int4", 1),)), "s: shared int4[1]"),
    ]),
    ("the extent of a shared array is a number of elements", "pass an int of at least 1", [
        (kernel(shared=(SharedArray("s", "int8", 0),)), "s: shared int8[0]"),
        (kernel(shared=(SharedArray("s", "int8", None),)), "s: shared int8[None]"),
    ]),
    ("outer indices are a tuple of names", "pass a tuple", [(kernel(outer="r"), "'r'")]),
    ("an outer index is not in use already", IN_USE, [(kernel(outer=("r", "r")), "r"), (kernel(outer=("n",)), "n")]),
    ("an outer index is made of letters, digits and underscores", "choose another name", [(kernel(outer=("",)), "''")]),
    ("the item's index is not in use already", IN_USE, [(kernel(outer=("r", "i")), "i")]),
    (KEPT, "define a local with Let and assign to that", [
        (kernel(Assign("r", ITEM)), "an assignment to r in `r = i`"),
        (kernel(shuffle(), Assign("t", ONE)), "an assignment to t in `t = 1`"),
        (kernel(Atomic("add", "s", ITEM, BIG, "t"), Assign("t", BIG)), "an assignment to t in `t = 1`"),
    ]),
    ("the name is not in use already", IN_USE, [
        (kernel(flag, shuffle(name="flag")), "flag in `let flag: int32 = shuffle(1, i) among 4`"),
        (kernel(Atomic("add", "s", ITEM, BIG, "n")), "n in `let n = atomic add s[i], 1`"),
        (kernel(CompareExchange("s", "s", ITEM, BIG, BIG)), "s in `let s = atomic exchange s[i], 1 -> 1`"),
        (kernel(Let("f", ONE)), "f in `let f: int32 = 1`"),
    ]),
    ("the name is made of letters, digits and underscores", "choose another name", [
        (kernel(CompareExchange("", "s", ITEM, BIG, BIG)), "'' in `let  = atomic exchange s[i], 1 -> 1`"),
    ]),
    ("a name is defined before it is read, in this block or around it", "define it with Let before", [
        (kernel(Store("w", local("t", "int64"), ONE), shuffle()),
         "t, which has no value here, but is defined in another place in `w[t] = 1`"),
        (kernel(Atomic("add", "s", ITEM, BIG), Let("u", local("t", "uint32"))), "t, which has no value here in `let u"),
    ]),
    # atomics
    ("an atomic operation is add, min, max, and, or, xor, exchange", "take one of these", [
        (kernel(Atomic("sub", "s", ITEM, BIG)), "'sub' in `atomic sub s[i], 1`"),
        (kernel(Atomic([], "s", ITEM, BIG)), "[] in `atomic [] s[i], 1`"),
    ]),
    ("arrays are parameters of the kernel or shared: x, counts, w, h, s, f", "add it to the parameters", [
        (kernel(Atomic("add", "z", ITEM, ONE)), "z in `atomic add z[i], 1`"),
    ]),
    ("an array that is accessed by atomics has access read_write", "declare w as read_write", [
        (kernel(Atomic("add", "w", ITEM, ONE)), "w: write int32[] in `atomic add w[i], 1`"),
    ]),
    ("an array that is accessed by atomics has access write or read_write", "declare x as read_write", [
        (kernel(Atomic("add", "x", ITEM, ONE)), "x: read int32[] in `atomic add x[i], 1`"),
        (kernel(CompareExchange("t", "x", ITEM, ONE, ONE)), "x: read int32[] in `let t = atomic exchange x[i], 1 -> 1`"),
    ]),
    (f"the elements of atomic add are {NUMBERS}", ANOTHER, [
        (kernel(Atomic("add", "h", ITEM, const(1.0, "float32"))), "h: read_write float16[] in `atomic add h[i], 1.0`"),
    ]),
    (f"the elements of atomic xor are {WORDS}", ANOTHER, [
        (kernel(Atomic("xor", "f", ITEM, REAL)), "f: shared float64[8] in `atomic xor f[i], 1.0`"),
    ]),
    (f"the elements of CompareExchange are {WORDS}", ANOTHER, [
        (kernel(CompareExchange("t", "f", ITEM, REAL, REAL)),
         "f: shared float64[8] in `let t = atomic exchange f[i], 1.0 -> 1.0`"),
    ]),
    (f"{OPERANDS}s: shared uint32[16]", CAST + "uint32", [
        (kernel(Atomic("add", "s", ITEM, ONE)), "int32 in `atomic add s[i], 1`"),
        (kernel(CompareExchange("t", "s", ITEM, ONE, BIG)), "int32 in `let t"),
        (kernel(CompareExchange("t", "s", ITEM, BIG, ONE)), "int32 in `let t"),
    ]),
    ("the index of Atomic is int64", "cast it to int64", [(kernel(Atomic("add", "s", ONE, BIG)), "int32 in `atomic add")]),
    ("the index of CompareExchange is int64", "cast it to int64", [
        (kernel(CompareExchange("t", "s", ONE, BIG, BIG)), "int32 in `let t"),
    ]),
    ("an index of s is at least 0 and below 16", "correct the index", [
        (kernel(Atomic("add", "s", whole(16), BIG)), "16 in `atomic add s[16], 1`"),
        (kernel(CompareExchange("t", "s", whole(-1), BIG, BIG)), "-1 in `let t = atomic exchange s[-1], 1 -> 1`"),
        (kernel(Store("s", whole(16), BIG)), "16 in `s[16] = 1`"),
        (kernel(Let("t", S[whole(20)])), "20 in `let t: uint32 = s[20]`"),
    ]),
    ("an element of s: shared uint32[16] is stored from uint32", CAST + "uint32", [
        (kernel(Store("s", ITEM, ONE)), "int32 in `s[i] = 1`"),
    ]),
    # atomics beside other accesses
    (MIXED, APART, [
        (kernel(Store("s", ITEM, BIG), Atomic("add", "s", ITEM, BIG)), "both, of s, in `atomic add s[i], 1`"),
        (kernel(Atomic("add", "s", ITEM, S[ITEM])), "both, of s, in `atomic add s[i], s[i]`"),
        (kernel(Atomic("add", "s", ITEM, BIG), Let("t", S[ITEM])), "both, of s, in `let t: uint32 = s[i]`"),
        (kernel(CompareExchange("t", "counts", ITEM, ONE, ONE), Store("counts", ITEM, ONE)), "both, of counts, in"),
        (kernel(If(YES, (Store("s", ITEM, BIG), MEET), (Store("s", ITEM, BIG),)), Atomic("add", "s", ITEM, BIG)), "both, of s"),
        (kernel(For("j", whole(0), N.value, 1, (Store("s", ITEM, BIG), MEET, Atomic("add", "s", ITEM, BIG)))),
         "both, of s, in `s[i] = 1`"),
        (kernel(While(N.value < 3, (Atomic("add", "s", ITEM, BIG), MEET)), Store("s", ITEM, BIG), Atomic("or", "s", ITEM, BIG)),
         "both, of s, in `atomic or"),
        (kernel(Atomic("or", "s", ITEM, BIG), While(N.value < 3, (MEET,)), Store("s", ITEM, BIG)), "both, of s, in `s[i] = 1`"),
        (kernel(While(YES, (Check(ne(COUNTS[ITEM], 0), 0, ITEM), Atomic("add", "counts", ITEM, ONE))), group=0, shared=()),
         "both, of counts, in `atomic add counts[i], 1`"),
    ]),
    # groups
    ("Barrier is between the items of a group", "give the kernel a group", [
        (kernel(MEET, group=0, shared=()), "no group in `barrier`"),
    ]),
    ("Shuffle is between the items of a group", "give the kernel a group", [
        (kernel(shuffle(), group=0, shared=()), "no group in `let t: int32 = shuffle(1, i) among 4`"),
    ]),
    (WIDTH, "take another width, or another group", [
        (kernel(shuffle(width=w)), f"{w} in `let t: int32 = shuffle(1, i) among {w}`") for w in (0, -1, 3, 16, True, 2.0)
    ]),
    ("the source of Shuffle is int64", "cast it to int64", [(kernel(shuffle(source=ONE)), "int32 in `let t: int32 = shuffle")]),
    # uniform control flow
    ("all items of a group execute a Barrier, or none", OUT, [
        (kernel(LESS), f"{INSIDE}if i < 3:{VARIES}barrier`"),
        (kernel(If(ITEM < 3, (), (MEET,))), f"{INSIDE}if i < 3:{VARIES}barrier`"),
        (kernel(If(N.value < 3, (LESS,))), f"{INSIDE}if i < 3:{VARIES}barrier`"),
        (kernel(If(ITEM < 3, (If(N.value < 3, (MEET,)),))), f"{INSIDE}if i < 3:{VARIES}barrier`"),
        (kernel(If(ne(X[ITEM], 0), (MEET,))), f"{INSIDE}if x[i] != 0:{VARIES}barrier`"),
        (kernel(If(ne(COUNTS[whole(0)], 0), (MEET,))), f"{INSIDE}if counts[0] != 0:{VARIES}barrier`"),
        (kernel(If(ne(S[whole(0)], 0), (MEET,))), f"{INSIDE}if s[0] != 0:{VARIES}barrier`"),
        (kernel(flag, If(ITEM < 3, (Assign("flag", const(False, "bool")),)), If(flag.local, (MEET,))),
         f"{INSIDE}if flag:{VARIES}barrier`"),
        (kernel(flag, While(flag.local, (MEET, Assign("flag", ITEM < 0)))), f"{INSIDE}while flag:{VARIES}barrier`"),
        (kernel(For("j", whole(0), ITEM, 1, (MEET,))),
         "one inside `for j in range(0, i, 1):`, where its bounds vary between items of a group, in `barrier`"),
        (kernel(For("j", ITEM, N.value, 1, (MEET,))), "one inside `for j in range(i, n, 1):`, where its bounds vary"),
        (kernel(For("j", whole(0), ITEM, 1, (Let("k", local("j", "int64")),)), Atomic("add", "s", whole(0), BIG, "t"),
                If(local("t", "uint32") < 1, (MEET,))), f"{INSIDE}if t < 1:{VARIES}barrier`"),
    ]),
    ("all items of a group execute a Shuffle, or none", OUT, [
        (kernel(If(ITEM < 4, (shuffle(),))), f"{INSIDE}if i < 4:{VARIES}let t: int32 = shuffle(1, i) among 4`"),
        (kernel(shuffle(), If(local("t", "int32") < 4, (shuffle(name="u"),))), f"{INSIDE}if t < 4:{VARIES}let u"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "remedy", "function", "received"),
    [(expected, remedy, *case) for expected, remedy, cases in RULES for case in cases],
    ids=[f"{expected[:40]} {i}" for expected, _, cases in RULES for i in range(len(cases))],
)
def test_a_wrong_kernel_of_groups_is_refused(expected: str, remedy: str, function: Function, received: str) -> None:
    with pytest.raises(KernelCompileError) as caught:
        verify(function)
    error = caught.value
    assert error.expected == f"kernel k: {expected}"
    assert error.received.startswith(received)
    assert error.remedy.startswith(remedy)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_shows_the_line_that_a_statement_comes_from() -> None:
    one = Let("t", local("u", "int64"), line="model.py:12")
    around = If(ITEM < 3, (replace(MEET, line="model.py:31"),), line="model.py:30")
    for s, received in (
        (one, "u, which has no value here in `let t: int64 = u` at model.py:12"),
        (around, "one inside `if i < 3:` at model.py:30, where its condition varies between items of a group, in `barrier` at"
         " model.py:31"),
    ):  # fmt: skip
        with pytest.raises(KernelCompileError) as caught:
            verify(kernel(s))
        assert caught.value.received == received
        assert caught.value.context["line"] == received[-11:]


RIGHT: dict[str, tuple[Statement, ...]] = {
    "barriers in uniform control flow": (
        If(N.value < 3, (MEET,), (MEET, MEET)), For("j", ROW, N.value, 2, (MEET,)), If(X[ROW] < 3, (MEET,)),
        Let("going", whole(0)), While(local("going", "int64") < N.value, (MEET, Assign("going", local("going", "int64") + 1))),
    ),
    "atomics between barriers": (
        Store("s", ITEM, BIG), MEET,
        Atomic("add", "s", whole(0), BIG, "t"), Atomic("max", "s", ITEM, local("t", "uint32")), MEET,
        Let("u", S[ITEM]), For("j", whole(0), N.value, 1, (MEET, Atomic("min", "s", ITEM, BIG), MEET, Store("s", ITEM, BIG))),
    ),
    "atomics of floats": tuple(Atomic(op, "f", ITEM, REAL) for op in ("add", "min", "max", "exchange")),
    "results of atomics in a branch": (
        If(ITEM < 3, (CompareExchange("t", "counts", ITEM, ONE, ONE), Atomic("or", "counts", ITEM, local("t", "int32"), "u"))),
        Let("t", YES),
    ),
    "shuffles of all widths": tuple(shuffle(cast(ITEM, "float32"), -ITEM, w, f"t{w}") for w in (1, 2, 4, 8)),
    "a choice instead of a branch": (
        Let("t", select(ITEM < 3, X[ITEM], ONE)), If(N.value < 2, (shuffle(local("t", "int32"), name="u"),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_of_groups_is_accepted(name: str) -> None:
    verify(kernel(*RIGHT[name]))


def test_a_kernel_may_have_axes_without_groups() -> None:
    verify(kernel(Store("w", ROW * N.value + ITEM, ONE), outer=("q", "r"), group=0, shared=()))
