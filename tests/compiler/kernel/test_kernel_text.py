"""Kernels as text to read, and as JSON that is read back exactly."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from drawn_kernels import draw
from written_kernels import ITEM, WRITTEN, collatz, gather, whole

from firebrick.compiler.kernel import ArrayParameter, Check, For, Function, Let, Store, from_json, to_json
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import const


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
    return [make().function for make in WRITTEN.values()] + [draw(seed).function for seed in range(30)]


def test_a_kernel_comes_back_from_json_equal() -> None:
    for f in all_kernels():
        again = from_json(to_json(f))
        assert again == f
        assert hash(again) == hash(f)
        assert str(again) == str(f)
        assert to_json(again) == to_json(f)


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


def damaged(change: Any) -> str:
    document = json.loads(to_json(gather().function))
    change(document)
    return json.dumps(document)


def node_of(document: dict[str, Any], op: str) -> list[Any]:
    return next(n for n in document["nodes"] if n[0] == op)


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda d: d.pop("format"), 'no "format": "firebrick kernel"'),
        (lambda d: d.update(version=2), "version 2, where this Firebrick reads version 1"),
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
