"""Snapshots of each public function with another value for one argument: the result, or the error.

``PYTHONPATH=src:tests/shared python tests/functions/test_snapshots.py`` writes
``snapshots.txt`` anew, where a change is meant; it first compares the results with those of the engine ``torch``.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_arguments
from snapshots import Call, alike, differences, snapshots, write

import firebrick as fb

FILE = Path(__file__).with_name("snapshots.txt")


def of(name: str, call: sample_arguments.Call, device: str) -> Call:
    given = call.on(device)

    def run(arguments: dict[str, Any]) -> Any:
        return call({k: arguments[k] for k in given}, **{k: v for k, v in arguments.items() if k not in given})

    return Call(name, run, given, call.function, not name.startswith("linalg"))  # of which each LAPACK makes something else


def calls(device: str) -> list[Call]:
    return [of(c.name, c, device) for c in (*sample_arguments.calls(), *sample_arguments.chapters())]


def test_calls_have_the_outcomes_of_their_snapshots() -> None:
    assert differences(FILE, calls("numpy")) == [], f"if this is meant: {__doc__}"


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "argmax"])
def test_a_method_has_the_outcomes_of_the_function_of_its_name(name: str) -> None:
    x = fb.asarray(sample_arguments.F, device="numpy")
    method, function = getattr(fb.Tensor, name), getattr(fb, name)
    by_method, by_function = (
        [a.lines for a in snapshots([Call(name, lambda given, f=f: f(x, **given), {}, method)])] for f in (method, function)
    )
    assert by_method == by_function
    assert len(by_method) == 2


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"]
)
def test_an_operator_that_updates_gives_what_the_operator_gives(name: str) -> None:
    kind = np.int32 if name in ("and_", "or_", "xor", "lshift", "rshift") else np.float32
    x, y = (fb.asarray(np.asarray(v, kind), device="numpy") for v in ([[5, 2], [7, 3]], [[2, 1], [3, 2]]))
    want, kept = getattr(operator, name)(x, y), x.tolist()
    other = x
    found = getattr(operator, f"i{name.rstrip('_')}")(other, y)
    assert (found.tolist(), found.dtype) == (want.tolist(), want.dtype) == (other.tolist(), other.dtype)
    assert want.tolist() != kept


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("2: float32[2] 1.5", "2: float32[2] 1.50001", True),
        ("2: float32[2] 1.5", "2: float32[2] 1.6", False),
        ("2: float32[2] 1.5", "2: float32[3] 1.5", False),
        ("2: float32[2] 1.5", "2: float32[2] 1.5 and 1 not finite", False),
    ],
)
def test_lines_are_alike_but_for_rounding(a: str, b: str, same: bool) -> None:
    assert alike(a, b) is same


if __name__ == "__main__":
    write(FILE, calls("numpy"), calls("torch:cpu"))
