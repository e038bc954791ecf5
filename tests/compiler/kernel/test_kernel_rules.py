"""What kernel IR refuses: each rule with its error, which shows the statement and what to do."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from written_kernels import ITEM, WRITTEN

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Check,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    Store,
    While,
    verify,
)
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import DTYPES, bounded, cast, const, element, gather, index, load, local, reduce
from firebrick.scalar.storage import STORAGE

X, Y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
H = ArrayParameter("h", "bfloat16", "read_write", extent=8)
ONE, YES = const(1.0, "float32"), const(True, "bool")
T = local("t", "float32")
ZERO = const(0, "int64")
OPEN = While(YES, ())
ELSEWHERE = "which has no value here, but is defined in another place"


def kernel(*body: Any, **changes: Any) -> Function:
    fields = {"name": "k", "arrays": (X, Y, H), "scalars": (ScalarParameter("n"),), "item": "i", "body": body} | changes
    return Function(**fields)


J = local("j", "int64")


def counted(start: Any = ZERO, stop: Any = ZERO, step: Any = 1, body: Any = ()) -> For:
    return For("j", start, stop, step, body)


IN_USE = "choose another name, or Assign to the one there is"
BEFORE = "define it with Let before, outside of the loop or branch if it is used after it"
UNDEFINED = "a name is defined before it is read, in this block or around it"
KEPT = "arguments, counters, indices and results of atomics and shuffles keep their values"
OWN = "define a local with Let and assign to that"
POSITION = "replace what depends on a position by index arithmetic, and bounded by a Check"
MADE_OF = "is made of letters, digits and underscores"

# what is expected, what to do, and kernels that break the rule with what their errors say was received
RULES: list[tuple[str, str, list[tuple[Function, str]]]] = [
    # names
    (f"a kernel's name {MADE_OF}", "rename the kernel", [(kernel(name="a kernel"), "'a kernel'")]),
    (f"the parameter {MADE_OF}", "choose another name", [(kernel(arrays=(ArrayParameter("1x", "int8"),)), "'1x'")]),
    (f"the item's index {MADE_OF}", "choose another name", [(kernel(item=""), "''")]),
    ("indices are int64, or int32", "take one of these", [(kernel(index="uint32"), "'uint32'")]),
    ("widened is a bool", "pass True or False", [(kernel(widened=1), "1")]),
    (f"the name {MADE_OF}", "choose another name", [(kernel(Let("é", ONE)), "'é' in `let é: float32 = 1.0`")]),
    ("the item's index is not in use already", IN_USE, [(kernel(item="x"), "x"), (kernel(item="n"), "n")]),
    ("the parameter is not in use already", IN_USE, [(kernel(scalars=(ScalarParameter("y"),)), "y")]),
    (
        "the name is not in use already",
        IN_USE,
        [
            (kernel(Let("n", ONE)), "n in `let n: float32 = 1.0`"),
            (kernel(Let("y", ONE)), "y in `let y: float32 = 1.0`"),
            (kernel(Let("t", ONE), Let("t", YES)), "t in `let t: bool = True`"),
            (kernel(Let("t", ONE), If(YES, (Let("t", YES),))), "t in `let t: bool = True`"),
            (kernel(Let("t", ONE), If(YES, (), (Let("t", YES),))), "t in `let t: bool = True`"),
            (kernel(Let("j", ONE), counted()), "j in `for j in range(0, 0, 1):`"),
            (kernel(counted(body=(Let("j", ONE),))), "j in `let j: float32 = 1.0`"),
        ],
    ),
    # parameters
    (
        f"the elements of an array are {', '.join(STORAGE)}",
        "take another dtype",
        [(kernel(arrays=(ArrayParameter("x", "int4"),)), "x: read int4[]")],
    ),
    (
        "the access of an array is read, write, read_write",
        "take one of these",
        [(kernel(arrays=(ArrayParameter("x", "int8", "both"),)), "x: 'both'")],
    ),
    (
        "the extent of an array is a number of elements, or None",
        "pass an int of at least 0",
        [(kernel(arrays=(ArrayParameter("x", "int8", extent=-1),)), "x: read int8[-1]")],
    ),
    (
        f"a scalar argument is {', '.join(DTYPES)}",
        "take another dtype",
        [(kernel(scalars=(ScalarParameter("s", "float16"),)), "s: float16")],
    ),
    # definite assignment
    (
        UNDEFINED,
        BEFORE,
        [
            (kernel(Store("y", ITEM, T)), "t, which has no value here in `y[i] = t`"),
            (kernel(Let("t", T)), f"t, {ELSEWHERE} in `let t: float32 = t`"),
            (kernel(If(YES, (Let("t", ONE),), (Let("t", ONE),)), Store("y", ITEM, T)), f"t, {ELSEWHERE} in `y[i] = t`"),
            (kernel(If(YES, (Let("t", ONE),), (Store("y", ITEM, T),))), f"t, {ELSEWHERE} in `y[i] = t`"),
            (kernel(While(YES, (Let("t", ONE),)), Store("y", ITEM, T)), f"t, {ELSEWHERE} in `y[i] = t`"),
            (kernel(While(YES, (Store("y", ITEM, T), Let("t", ONE)))), f"t, {ELSEWHERE} in `y[i] = t`"),
            (kernel(counted(), Store("y", J, ONE)), f"j, {ELSEWHERE} in `y[j] = 1.0`"),
            (kernel(counted(stop=J)), f"j, {ELSEWHERE} in `for j in range(0, j, 1):`"),
        ],
    ),
    (
        "what is assigned to was defined before, in this block or around it",
        BEFORE,
        [
            (kernel(Assign("t", ONE)), "t, which has no value here in `t = 1.0`"),
            (kernel(If(YES, (Let("t", ONE),)), Assign("t", ONE)), f"t, {ELSEWHERE} in `t = 1.0`"),
        ],
    ),
    (
        KEPT,
        OWN,
        [
            (kernel(Assign("n", ZERO)), "an assignment to n in `n = 0`"),
            (kernel(Assign("i", ZERO)), "an assignment to i in `i = 0`"),
            (kernel(counted(body=(Assign("j", ZERO),))), "an assignment to j in `j = 0`"),
            (kernel(If(YES, (Let("j", ONE),)), counted(body=(Assign("j", ZERO),))), "an assignment to j in `j = 0`"),
        ],
    ),
    # dtypes
    ("t is float32", "cast the value", [(kernel(Let("t", ONE), Assign("t", ZERO)), "int64 in `t = 0`")]),
    (
        "t is float32",
        "read it in its dtype and cast that",
        [(kernel(Let("t", ONE), Let("u", local("t", "int64"))), "a read as int64 in `let u: int64 = t`")],
    ),
    (
        "an element of h: read_write bfloat16[8] is stored from float32",
        "cast the value to float32",
        [(kernel(Store("h", ITEM, ZERO)), "int64 in `h[i] = 0`")],
    ),
    (
        "an element of h: read_write bfloat16[8] is read as float32",
        "read it as float32 and cast that",
        [(kernel(Let("t", element("h", "float64", ITEM))), "float64 in `let t: float64 = h[i]`")],
    ),
    (
        "the index of Store is int64",
        "cast it to int64",
        [(kernel(Store("y", const(1, "int32"), ONE)), "int32 in `y[1] = 1.0`")],
    ),
    ("the condition of While is bool", "cast it to bool", [(kernel(While(ITEM, ())), "int64 in `while i:`")]),
    ("the condition of If is bool", "cast it to bool", [(kernel(If(ITEM, ())), "int64 in `if i:`")]),
    ("the start of For is int64", "cast it to int64", [(kernel(counted(ONE)), "float32 in `for j in range(1.0, 0, 1):`")]),
    ("the stop of For is int64", "cast it to int64", [(kernel(counted(stop=ONE)), "float32 in `for j in range(0, 1.0, 1):`")]),
    (
        "the condition of Check is bool",
        "cast it to bool",
        [(kernel(Check(ITEM, 0, ITEM)), "int64 in `check i else fault 0 with i`")],
    ),
    (
        "the payload of Check is int64",
        "cast it to int64",
        [(kernel(Check(YES, 0, ONE)), "float32 in `check True else fault 0 with 1.0`")],
    ),
    # access
    (
        "an array that is written has access write or read_write",
        "declare x as read_write",
        [(kernel(Store("x", ITEM, ONE)), "x: read float32[] in `x[i] = 1.0`")],
    ),
    (
        "an array that is read has access read or read_write",
        "declare y as read_write",
        [(kernel(Let("t", Y[ITEM])), "y: write float32[] in `let t: float32 = y[i]`")],
    ),
    (
        "arrays are parameters of the kernel: x, y, h",
        "add it to the parameters",
        [
            (kernel(Store("z", ITEM, ONE)), "z in `z[i] = 1.0`"),
            (kernel(Let("t", element("n", "int64", ITEM))), "n in `let t: int64 = n[i]`"),
        ],
    ),
    # constants
    (
        "an index of y is at least 0 and below its number of elements",
        "correct the index",
        [(kernel(Store("y", const(-1, "int64"), ONE)), "-1 in `y[-1] = 1.0`")],
    ),
    (
        "an index of h is at least 0 and below 8",
        "correct the index",
        [
            (kernel(Store("h", const(8, "int64"), ONE)), "8 in `h[8] = 1.0`"),
            (kernel(Let("t", H[const(9, "int64")])), "9 in `let t: float32 = h[9]`"),
        ],
    ),
    (
        "the step of For is a positive constant",
        "count upwards, and compute a falling index from the counter",
        [
            (kernel(counted(step=-1)), "-1 in `for j in range(0, 0, -1):`"),
            (kernel(counted(step=0)), "0 in `for j in range(0, 0, 0):`"),
        ],
    ),
    (
        "the site of Check is a number of at least 0",
        "number the sites from 0",
        [(kernel(Check(YES, -1, ITEM)), "-1 in `check True else fault -1 with i`")],
    ),
    # what a kernel is made of
    (
        "kernel IR reads local(name) and element(array, index)",
        POSITION,
        [
            (kernel(Let("t", load(0, "float32"))), "load[0] in `let t: float32 = operand0`"),
            (kernel(Let("t", index(1) + 1)), "index[1] in `let t: int64 = index(1) + 1`"),
            (kernel(Let("t", gather(0, "int8", ITEM))), "gather[0] in `let t: int8 = gather[0](i)`"),
            (kernel(Let("t", bounded(ITEM, 4, 1))), "bounded[4:1] in `let t: int64 = bounded[4:1](i)`"),
            (kernel(Let("t", reduce("sum", X[ITEM]))), "reduce[sum] in `let t: f"),
        ],
    ),
    ("Let is made of expressions", "make one with const(…)", [(kernel(Let("t", 1.0)), "1.0")]),
    (
        "a statement is Let, Assign, For, While, If, Store, Check, Atomic, CompareExchange, Barrier, Shuffle",
        "use one of these",
        [(kernel("t = 1"), "'t = 1'")],
    ),
    (
        "a block is a tuple of statements",
        "pass a tuple",
        [(kernel(body=[OPEN]), "list"), (kernel(If(YES, [OPEN])), "list"), (kernel(counted(body=None)), "NoneType")],
    ),
]


@pytest.mark.parametrize(
    ("expected", "remedy", "function", "received"),
    [(expected, remedy, *case) for expected, remedy, cases in RULES for case in cases],
    ids=[f"{expected[:40]} {i}" for expected, _, cases in RULES for i in range(len(cases))],
)
def test_a_wrong_kernel_is_refused(expected: str, remedy: str, function: Function, received: str) -> None:
    with pytest.raises(KernelCompileError) as caught:
        verify(function)
    error = caught.value
    assert error.expected == f"kernel {function.name}: {expected}"
    assert error.received.startswith(received)
    assert error.remedy.startswith(remedy)
    assert error.context["kernel"] == function.name
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_right_kernel_is_accepted(name: str) -> None:
    verify(WRITTEN[name]().function)


def test_a_name_is_free_again_after_its_block() -> None:
    loop = counted(body=(Let("t", cast(J, "float32")), Store("y", J, T)))
    verify(kernel(loop, loop, If(YES, (Let("t", ITEM),), (Let("t", YES),)), Let("t", ONE), Assign("t", T + 1.0)))


def test_an_error_shows_shared_parts_of_its_statement() -> None:
    shared = ITEM * 3
    with pytest.raises(KernelCompileError) as caught:
        verify(kernel(Store("y", shared, cast(shared, "float64"))))
    assert caught.value.context["statement"] == "y[%1] = cast(%1, float64); %1 = i * 3"
