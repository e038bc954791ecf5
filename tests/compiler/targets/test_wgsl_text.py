"""The WGSL of each statement, of elements of each dtype and of each operation, as it is written down in ``shaders.txt``.

That drivers compute with it what the interpreter does is tested by the engine's tests, where there is a driver.
``PYTHONPATH=src:tests/shared python tests/compiler/targets/test_wgsl_text.py`` writes the file anew, where a change is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from firebrick.compiler.kernel.ir import (
    ATOMIC,
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
)
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import shader
from firebrick.scalar.capabilities import CONSERVATIVE_GPU
from firebrick.scalar.expr import (
    Expr,
    absolute,
    binary,
    bitcast,
    cast,
    const,
    copysign,
    eq,
    fma,
    local,
    maximum,
    minimum,
    muladd,
    ne,
    node,
    select,
    unary,
)

FILE = Path(__file__).parent / "shaders.txt"
I, J = local("i", "int64"), local("j", "int64")  # noqa: E741
INDEX = dict.fromkeys("hijn", (0, 99))


def array(dtype: str, access: str = "read_write", name: str = "") -> ArrayParameter:
    return ArrayParameter(name or dtype, dtype, access)


def statements() -> Function:
    x, y = array("float32", "read", "x"), array("float32", "write", "y")
    n, a, flag = ScalarParameter("n"), ScalarParameter("a", "float32"), ScalarParameter("flag", "bool")
    k, m, total = local("k", "int64"), local("m", "int64"), local("total", "float32")
    body: tuple[Statement, ...] = (
        Let("total", x[I]),
        For("k", I, n.value, 1, (Assign("total", total + x[k] * a.value),)),
        For("m", I, n.value, 7, (Assign("total", total - x[m]), If(total < 0.0, (), (Assign("total", x[I]),)))),
        While(total < a.value, (Assign("total", total + 1.0),)),
        If(flag.value, (Store("y", I, total),), (Store("y", J, total), If(total < 1.0, (Store("y", I, x[J]),)))),
        Check(n.value > I, 3, I + n.value),
    )
    return Function("statements", (x, y), (n, a, flag, ScalarParameter("u", "uint32")), "i", body, ("h", "j"))


def elements(dtype: str) -> Function:
    x, y = array(dtype, "read", "x"), array(dtype, "write", "y")
    return Function("elements", (x, y), (), "i", (Store("y", I, x[I + 1]),))


def group() -> Function:
    shared = (SharedArray("s", "float32", 64), SharedArray("t", "int32", 32))
    out = array("float32", "write", "out")
    body: tuple[Statement, ...] = (
        Store("s", I, cast(I, "float32")), Barrier(), Let("b", shared[0][I + 1]),
        Shuffle("c", local("b", "float32"), I ^ 1, 32), Shuffle("d", cast(I, "int32"), I + 1, 64),
        Atomic("add", "t", I & 31, const(1, "int32")), Barrier(),
        Store("out", J * 64 + I, local("c", "float32") + cast(local("d", "int32"), "float32")),
    )  # fmt: skip
    return Function("group", (out,), (), "i", body, ("j",), 64, shared)


def together() -> Function:
    """Shuffles that are moved together, and one of another dtype and one of a value before, which are not."""
    out, value = array("float32", "write", "out"), cast(I, "float32")
    sums = local("a", "float32") + local("b", "float32") + local("d", "float32")
    body = (
        Shuffle("a", value, J, 8), Shuffle("b", value + 1.0, J, 8), Shuffle("c", I > J, J, 8),
        Shuffle("d", local("a", "float32"), J, 8), Store("out", J * 64 + I, select(local("c", "bool"), sums, 0.0)),
    )  # fmt: skip
    return Function("together", (out,), (), "i", body, ("j",), 64)


def tiled_halves() -> Function:
    x, y, tile = array("float16", "read", "x"), array("float16", "write", "y"), SharedArray("tile", "float16", 64)
    body = (Store("tile", I, x[J * 64 + I]), Barrier(), Store("y", J * 64 + I, tile[I ^ 1] + x[I]))
    return Function("halves", (x, y), (), "i", body, ("j",), 64, (tile,))


def atomics(dtype: str) -> Function:
    one, counts = const(1, dtype), array(dtype, name="counts")
    ops = [op for op in ATOMIC if dtype != "float32" or op in ("add", "min", "max", "exchange")]
    body: list[Statement] = [
        s for op in ops for s in (Atomic(op, "counts", I, one), Atomic(op, "counts", I, one, f"{op}_before"))
    ]
    if dtype != "float32":
        body.append(CompareExchange("found", "counts", I, one, const(2, dtype)))
    return Function("atomics", (counts,), (), "i", tuple(body))


def operations(dtype: str) -> Iterator[Expr]:
    """An expression of each operation with operands of a dtype."""
    a, b, c = (ScalarParameter(name, dtype).value for name in "abc")
    yield from (eq(a, b), ne(a, b), *((minimum(a, b), maximum(a, b)) if dtype != "bool" else ()))
    yield from (a < b, a <= b, a > b, a >= b, select(a < b, b, a), a & b if dtype != "float32" else copysign(a, b))
    if dtype == "bool":
        yield from (
            a | b,
            a ^ b,
            ~a,
            cast(a, "int32"),
            cast(a, "uint32"),
            cast(a, "float32"),
            const(True, dtype),
            const(False, dtype),
        )
        return
    yield from (a + b, a - b, a * b, -a, const(1, dtype), const(0, dtype), cast(a, "bool"))
    if dtype == "float32":
        yield from (binary("div", a, b), fma(a, b, c), muladd(a, b, c), absolute(a), bitcast(a, "int32"), bitcast(a, "uint32"))
        yield from (unary(op, a) for op in ("sqrt", "floor", "ceil", "trunc", "rint"))
        yield from (const(x, dtype) for x in (float("inf"), float("-inf"), float("nan"), 1e-40, -0.0, 0.1))
        yield from (node("kept", dtype, (x,)) for x in (a, a * b, a * b + c))
        yield a * b - c
    else:
        other = "uint32" if dtype == "int32" else "int32"
        yield from (a | b, a ^ b, ~a, a << b, a >> b, cast(a, other), cast(a, "float32"), bitcast(a, "float32"))
        yield from (
            const(limit, dtype) for limit in ((-(2**31), -(2**31) + 1, 2**31 - 1) if dtype == "int32" else (2**32 - 1,))
        )
        if dtype == "int32":
            yield absolute(a)


def computing(dtype: str) -> Function:
    scalars = tuple(ScalarParameter(name, dtype) for name in "abc")
    body = tuple(Let(f"e{k}", e) for k, e in enumerate(operations(dtype)))
    return Function("operations", (), scalars, "i", body)


def shaders() -> Iterator[str]:
    def text(title: str, function: Function, **more: Any) -> str:
        return f"== {title}\n{shader(function, **more).text}"

    def legal(function: Function) -> Function:
        return prepared(function, CONSERVATIVE_GPU, INDEX | {a.name: (0, 100) for a in function.arrays})

    yield text("statements", legal(statements()))
    yield text("a group", legal(group()))
    yield text("shuffles from one item", legal(together()), subgroup=8)
    halves = {**INDEX, "x": (0, 100), "y": (0, 100)}
    yield text("memory of float16", prepared(tiled_halves(), replace(CONSERVATIVE_GPU, float16=True), halves))
    for dtype in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
    ):
        yield text(f"elements of {dtype}", legal(elements(dtype)))
    for dtype in ("int32", "uint32", "float32"):
        yield text(f"atomic operations of {dtype}", legal(atomics(dtype)))
    for dtype in ("bool", "int32", "uint32"):
        yield text(f"operations of {dtype}", computing(dtype))
    for fences, contracts in ((True, True), (True, False), (False, True)):
        title = f"operations of float32{', fenced' if fences else ''}{', contracted' if contracts else ''}"
        yield text(title, computing("float32"), fences=fences, contracts=contracts)


def test_shaders_are_as_they_are_written_down() -> None:
    wanted = re.split("(?m)^(?=== )", FILE.read_text(encoding="utf-8"))[1:]
    found = list(shaders())
    assert [text.splitlines()[0] for text in found] == [text.splitlines()[0] for text in wanted]
    for text, known in zip(found, wanted, strict=True):
        assert text == known


def test_shuffles_behind_branches_that_some_items_take_are_no_subgroup_operations() -> None:
    plain, out = together(), array("float32", "write", "out")
    n, counts = ScalarParameter("n"), array("int32", "read_write", "counts")
    store, atomic = Store("out", I, const(1.0, "float32")), Atomic("add", "counts", J, const(1, "int32"))
    apart: list[Statement] = [
        If(I < 3, (store,)), For("k", I - I, I, 1, (store,)), While(I < 0, (store,)), Check(I < 100, 0, I), atomic,
        For("k", J, J + 1, 1, (If(I < J, (store,)),)),
    ]  # fmt: skip
    same: list[Statement] = [If(J < 3, (store,)), For("k", J, n.value, 1, (store,)), Barrier(), store]

    def printed(*body: Statement) -> bool:
        made = replace(plain, body=body, arrays=(out, counts), scalars=(n,))
        legal = prepared(made, CONSERVATIVE_GPU, INDEX | {"out": (0, 10_000), "counts": (0, 100)})
        text = shader(legal, subgroup=8).text
        assert "exchange_" in text
        assert ("var<workgroup> agreed" in text) is ("subgroupShuffle" in text)
        return "subgroupShuffle" in text

    for s in apart:
        assert not printed(s, *plain.body)
        assert printed(*plain.body, s)
    for s in same:
        assert printed(s, *plain.body)


if __name__ == "__main__":
    FILE.write_text("".join(shaders()), encoding="utf-8")
