"""What parts of the compiler refuse when they are used in another way than the compiler does, each with its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from drawn_segments import DrawnSegments

import firebrick as fb
from firebrick.compiler.kernel.language.values import Misfit, as_dtype, shown
from firebrick.compiler.naive.building import INPUT, Buffer, Builder
from firebrick.compiler.program.expression import ROWS, Kernel
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.compiler.program.python import Executable, SegmentFunctions, build
from firebrick.compiler.spec.elements import element
from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.ir import Graph, Node
from firebrick.ops import OPS
from firebrick.scalar.expr import const, load


class Refusing(DrawnSegments):
    """A program whose error is translated to one of the contract, or is passed on."""

    error: Exception | None = None

    def translated(self, error: Exception) -> Exception:
        return self.error or error

    def kernel(self, *args: Any) -> Kernel:
        return Kernel("{run}({0})", {"run": lambda x: -x}, into="{run}({0})", layout=ROWS)


def program() -> tuple[Refusing, Executable, list[np.ndarray[Any, Any]]]:
    drawn = Refusing(Random(0))
    arrays = [np.ones(a.shape, a.dtype.np) for a in drawn.graph.inputs]
    return drawn, drawn.executable(), arrays


def test_a_program_is_called_with_as_many_arrays_as_its_graph_has_inputs() -> None:
    _, found, arrays = program()
    for given in (arrays[1:], [*arrays, arrays[0]]):
        text = f"a program takes the inputs of its graph\nReceived: {len(given)} of {len(arrays)}.\nRemedy: pass each one."
        with pytest.raises(ShapeError, match=f"^{re.escape(text)}$") as caught:
            found(given)
        assert caught.value.__suppress_context__


def test_an_error_of_a_program_is_that_of_the_contract_with_its_node() -> None:
    class Failed(Exception):
        pass

    def fails(*args: Any) -> Any:
        raise ValueError("of a library")

    graph = Graph([Aval((3,), fb.float32)])
    graph.add(OPS["negative"], 0)
    graph.nodes[0].line = "file.py:3"
    graph.outputs = (1,)
    engine = Refusing(Random(0))
    engine.kernel = lambda *args: Kernel("{run}({0})", {"run": fails})  # type: ignore[method-assign, misc]
    found = build(engine, graph)
    with pytest.raises(ValueError, match="of a library") as same:
        found([np.ones(3, np.float32)])
    engine.error = Failed()
    with pytest.raises(Failed) as other:
        found([np.ones(3, np.float32)])
    assert isinstance(other.value.__cause__, ValueError)
    for e in (same.value, other.value):
        assert e.__notes__ == ["in a compiled program, at negative, file.py:3"]


def test_a_program_is_built_with_segments_and_a_plan_of_its_own() -> None:
    graph = Graph([Aval((3,), fb.float32)])
    graph.add(OPS["negative"], 0)
    graph.outputs = (1,)
    seen: list[Any] = []

    def planned(g: Graph, kernels: Any, plan: Plan) -> tuple[Plan, SegmentFunctions]:
        seen.extend((g, len(kernels), plan.writes))
        return plan_memory(g, kernels), SegmentFunctions((), frozenset(), None)

    engine = Refusing(Random(0))
    assert build(engine, graph, donate=(0,)).writes == {0}
    assert build(engine, graph, donate=(0,), segments=planned).writes == set()
    assert seen == [graph, 1, {0}]
    for wrong in (-1, 1):
        with pytest.raises(ShapeError, match=rf"donated inputs are numbers below 1\nReceived: \({wrong},\)"):
            build(engine, graph, donate=(wrong,))


COMPLEX = Aval((3,), fb.complex64)
INPUT_0 = Buffer(INPUT, 0)


def _of_two_dtypes() -> None:
    b = Builder("naive", (3,))
    b.read(INPUT_0, "float32", const(0, "int64"))
    b.read(INPUT_0, "int32", const(0, "int64"))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an element without an expression": (
        lambda: element(Node(OPS["floor"], (0,), {}, 1, (COMPLEX,)), [load(0, "complex64")], [COMPLEX]),
        "floor of complex64 has no scalar expression",
    ),
    "a buffer of two dtypes": (_of_two_dtypes, f"{INPUT_0} has elements of one dtype. Received: float32 and int32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_part_is_refused_with_its_reason(what: str) -> None:
    call, text = REFUSED[what]
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        call()


def test_what_is_no_number_has_no_dtype() -> None:
    with pytest.raises(Misfit) as caught:
        as_dtype((const(1, "int64"), const(2, "int64")), fb.float32)  # type: ignore[arg-type]
    assert caught.value.texts == ("a number", "a tuple of 2", "cast numbers only")
    assert shown(slice(1, 2)) == "slice(1, 2, None)"  # type: ignore[arg-type]


def test_a_number_on_the_left_of_an_expression_is_an_operand() -> None:
    x = load(0, "float32")
    product, total, rest = 2.0 * x, 2.0 + x, 2.0 - x
    assert [e.op for e in (product, total, rest)] == ["mul", "add", "sub"]
    assert all({*e.args} == {x, const(2.0, "float32")} for e in (product, total))
    assert rest.args == (const(2.0, "float32"), x)
