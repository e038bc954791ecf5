"""Kernels as text to read, and as JSON that is read back exactly."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from drawn_groups import draw_group
from drawn_kernels import draw
from written_kernels import ITEM, WRITTEN, collatz, gather, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Store,
    from_json,
    to_json,
)
from firebrick.compiler.kernel.ir import statements
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import const, local


def test_a_kernel_reads_like_the_program_it_is() -> None:
    assert str(collatz().function) == "\n".join([
        "kernel collatz(x: read uint32[], y: write uint8[]) for item i:",
        "    let n: uint32 = x[i]",
        "    let steps: uint8 = 0",
        "    while n > 1:",
        "        if (n & 1) == 0:",
        "            n = n >> 1",
        "        else:",
        "            n = (n * 3) + 1",
        "            steps = steps + 1",
        "        steps = steps + 1",
        "    y[i] = steps",
    ])  # fmt: skip
    assert str(gather().function) == "\n".join([
        "kernel gather(x: read float32[], at: read int16[], y: write float32[], n: int64) for item i:",
        "    let given: int64 = cast(at[i], int64)",
        "    let front: int64 = select(given < 0, given + n, given)",
        "    check (front >= 0) & (front < n) else fault 7 with given",
        "    y[i] = x[min(max(front, 0), n - 1)]",
    ])  # fmt: skip


def exchanging() -> Function:
    """Every statement of groups."""
    x, s = ArrayParameter("x", "uint32", "read_write"), SharedArray("s", "int32", 64)
    at, n = local("r", "int64") * 64 + ITEM, ScalarParameter("n")
    one = const(1, "int32")
    body = (
        Shuffle("t", ITEM, ITEM + 1, 32, line="model.py:3"),
        Store("s", ITEM, one),
        Barrier(line="model.py:5"),
        Atomic("add", "s", local("t", "int64"), one),
        Atomic("max", "s", ITEM, one, "before"),
        CompareExchange("u", "x", at, const(0, "uint32"), const(3, "uint32"), line="model.py:8"),
    )
    return Function("exchanging", (x,), (n,), "i", body, ("r",), 64, (s,))


def test_a_kernel_of_groups_reads_like_the_program_it_is() -> None:
    assert str(exchanging()) == "\n".join([
        "kernel exchanging(x: read_write uint32[], n: int64) for item r, i of a group of 64:",
        "    s: shared int32[64]",
        "    let t: int64 = shuffle(i, i + 1) among 32",
        "    s[i] = 1",
        "    barrier",
        "    atomic add s[t], 1",
        "    let before = atomic max s[i], 1",
        "    let u = atomic exchange x[(r * 64) + i], 0 -> 3",
    ])  # fmt: skip
    two = Function("k", (), (), "j", (), ("a", "b"))
    assert str(two) == "kernel k() for item a, b, j:\n    pass"


def test_what_a_statement_uses_twice_is_written_once() -> None:
    e = ITEM
    for _ in range(60):  # 2^60 leaves as a tree
        e = e + e
    f = Function("k", (ArrayParameter("y", "int64", "write", 4),), (), "i", (Store("y", whole(0), e), For("j", e, e, 2, ())))
    lines = str(f).splitlines()
    assert lines[0] == "kernel k(y: write int64[4]) for item i:"
    assert lines[1:3] == ["    %1 = i + i", "    %2 = %1 + %1"]
    assert lines[60] == "    y[0] = %59 + %59"
    assert lines[-2:] == ["    for j in range(%60, %60, 2):", "        pass"]


def all_kernels() -> list[Function]:
    drawn = [*map(draw, range(30)), *map(draw_group, range(30))]
    return [make().function for make in WRITTEN.values()] + [launch.function for launch in drawn] + [exchanging()]


def test_a_kernel_comes_back_from_json_equal() -> None:
    for f in all_kernels():
        again = from_json(to_json(f))
        assert again == f
        assert hash(again) == hash(f)
        assert str(again) == str(f)
        assert to_json(again) == to_json(f)


def test_lines_of_statements_come_back_from_json_and_make_no_difference() -> None:
    again = from_json(to_json(exchanging()))
    assert [s.line for s in statements(again.body)] == ["model.py:3", "", "model.py:5", "", "", "model.py:8"]
    elsewhere = json.loads(to_json(exchanging()))
    for s in elsewhere["body"]:
        s["line"] = "other.py:1"
    assert from_json(json.dumps(elsewhere)) == again


def test_json_of_the_version_before_legalized_kernels_is_read() -> None:
    for f in (gather().function, exchanging()):
        document = json.loads(to_json(f)) | {"version": 2}
        del document["index"], document["widened"]
        assert from_json(json.dumps(document)) == f


def test_json_of_the_version_before_groups_is_read() -> None:
    for f in (gather().function, collatz().function):
        document = json.loads(to_json(f)) | {"version": 1}
        for key in ("outer", "group", "shared"):
            del document[key]
        text = re.sub(r', "line": ""', "", json.dumps(document))
        assert "line" not in text
        assert from_json(text) == f


def test_numbers_keep_their_bits_in_json() -> None:
    y = ArrayParameter("y", "float64", "write", 8)
    values = [const(v, "float64") for v in (0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1)]
    body = tuple(Store("y", whole(k), v) for k, v in enumerate(values))
    assert from_json(to_json(Function("k", (y,), (), "i", body))).body == body


def test_kernels_that_differ_in_one_thing_are_not_equal() -> None:
    kernels = set(all_kernels())
    assert len(kernels) == len(all_kernels())
    y = ArrayParameter("y", "int64", "write")
    near = {
        Function("k", (y,), (), "i", (Store("y", whole(k), whole(0)), Check(ITEM < 3, site, ITEM)))
        for k in (0, 1)
        for site in (0, 1)
    }
    assert len(near) == 4


def damaged(change: Any, function: Function | None = None) -> str:
    document = json.loads(to_json(function or gather().function))
    change(document)
    return json.dumps(document)


def node_of(document: dict[str, Any], op: str) -> list[Any]:
    return next(n for n in document["nodes"] if n[0] == op)


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda d: d.pop("format"), 'no "format": "firebrick kernel"'),
        (lambda d: d.update(version=4), "version 4, where this Firebrick reads version 3 and those before"),
        (lambda d: d.pop("index"), "KeyError: 'index'"),
        (lambda d: d.update(index="int16"), "'int16'"),
        (lambda d: d.update(index="int32"), "int64 in `let given"),
        (lambda d: d.pop("widened"), "KeyError: 'widened'"),
        (lambda d: d.update(widened=1), "1"),
        (lambda d: d.update(version=True), "version True, where"),
        (lambda d: d.pop("group"), "KeyError: 'group'"),
        (lambda d: d.pop("item"), "KeyError: 'item'"),
        (lambda d: d.update(item=3), "3 instead of a name"),
        (lambda d: d["body"][0].update(kind="Jump"), "KeyError: 'Jump'"),
        (lambda d: d["body"][0].update(value=-1), "node -1 of"),
        (lambda d: d["body"][0].update(value=True), "node True of"),
        (lambda d: d["nodes"][0].__setitem__(2, [0]), "node 0 of 0"),
        (lambda d: node_of(d, "lt").__setitem__(0, "near"), "no expression is made of 'near'[None] and 2 operands"),
        (lambda d: node_of(d, "lt").__setitem__(1, "int64"), "lt of these operands has dtype bool. Received: int64"),
        (lambda d: node_of(d, "lt").__setitem__(3, 5), "lt of bool with 2 operands and 5"),
        (lambda d: node_of(d, "cast")[2].append(0), "cast of int64 with 2 operands and None"),
        (lambda d: node_of(d, "element").__setitem__(1, "float16"), "a scalar expression has one of the dtypes"),
        (lambda d: node_of(d, "const").__setitem__(3, "zero"), "no expression is made of 'const'['zero']"),
        (lambda d: d["arrays"][0].__setitem__(1, "complex64"), "x: read complex64[]"),
        (lambda d: d["body"].append(d["body"][0]), "given in `let given: int64 = cast(at[i], int64)`"),
    ],
)  # fmt: skip
def test_damaged_json_is_an_error(change: Any, received: str) -> None:
    assert from_json(damaged(lambda d: None)) == gather().function
    with pytest.raises(KernelCompileError) as caught:
        from_json(damaged(change))
    assert received in caught.value.received.replace("\\'", "'")


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda d: d.update(group=None), "None"),
        (lambda d: d.update(group=0), "s: shared int32[64], and no group"),
        (lambda d: d.update(group=16), "32 in `let t: int64 = shuffle(i, i + 1) among 32` at model.py:3"),
        (lambda d: d.update(outer=["r", 3]), "3 instead of a name"),
        (lambda d: d.update(outer=3), "TypeError"),
        (lambda d: d.update(outer=[]), "r, which has no value here"),
        (lambda d: d["shared"][0].append(1), "ValueError: too many values"),
        (lambda d: d["shared"][0].__setitem__(0, None), "None instead of a name"),
        (lambda d: d["shared"][0].__setitem__(1, "int4"), "s: shared int4[64]"),
        (lambda d: d["shared"][0].__setitem__(1, ["int4"]), "['int4'] instead of a name"),
        (lambda d: d["shared"][0].__setitem__(2, "64"), "s: shared int32[64]"),
        (lambda d: d["body"][0].pop("line"), "KeyError: 'line'"),
        (lambda d: d["body"][0].update(line=3), "3 instead of a name"),
        (lambda d: d["body"][0].update(width=None), "None in `let t"),
        (lambda d: d["body"][0].update(width="32"), "'32' in `let t"),
        (lambda d: d["body"][3].update(op="sub"), "'sub' in `atomic sub"),
        (lambda d: d["body"][3].update(op=["add"]), "['add'] instead of a name"),
        (lambda d: d["body"][3].pop("name"), "KeyError: 'name'"),
        (lambda d: d["body"][5].update(name=""), "'' in `let  = atomic"),
        (lambda d: d["body"][5].update(expected=10**6), "node 1000000 of"),
        (lambda d: d["body"].pop(2), "both, of s, in `atomic add s[t], 1`"),
    ],
)  # fmt: skip
def test_damaged_json_of_a_kernel_of_groups_is_an_error(change: Any, received: str) -> None:
    assert from_json(damaged(lambda d: None, exchanging())) == exchanging()
    with pytest.raises(KernelCompileError) as caught:
        from_json(damaged(change, exchanging()))
    assert received in caught.value.received.replace("\\'", "'")


def test_text_that_is_no_json_is_an_error() -> None:
    for text in ("", "{", "[]", "[" * 100_000, '{"format": NaN}', "3"):
        with pytest.raises(KernelCompileError, match="a kernel is read from the text that to_json writes"):
            from_json(text)


def test_text_of_expressions_that_kernels_do_not_have_is_readable_too() -> None:
    from firebrick.scalar.expr import cast, index, load, philox, reduce
    from firebrick.scalar.text import shown

    x = load(0, "float64")
    key = [load(k, "uint32") for k in range(4)]
    assert shown([reduce("sum", cast(index(1), "float64") * x)])[1] == ["reduce[sum](cast(index(1), float64) * operand0)"]
    assert shown([philox(key, index(0))])[1] == ["philox(operand0, operand1, operand2, operand3, index(0))"]
    assert shown([x + math.inf, ~(x < math.nan)])[1] == ["operand0 + float('inf')", "~(operand0 < float('nan'))"]


def test_a_statement_of_its_own_has_no_value_yet() -> None:
    assert str(Function("k", (), (), "i", (Let("t", ITEM),))).endswith("let t: int64 = i")
    assert str(Function("k", (), (), "i", ())).endswith("for item i:\n    pass")
