"""Sizes of calls of kernels: every size that an annotation gives is compared with the shapes of the arguments."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.compiler.kernel.language.annotations import Size

TEXT = """import firebrick as fb
K, F = fb.kernel, fb.float32

@K{grid}
def kernel({parameters}):
    i = K.index()
    out[i] = x[0{more}] * 2.0
"""

# parameters, grid, shapes of the arguments (numbers as they are); of a call that is right and of wrong ones, with the error
CASES: dict[str, tuple[str, str, list[object], list[tuple[list[object], str]]]] = {
    "a number": ('x: K.In[F, "3"], out: K.Out[F, "3"]', "", [(3,)], [
        ([(4,)], "axis 0 of x has size 3, as the annotation of x"), ([(2,)], "axis 0 of x has size 3"),
    ]),
    "a number of the second operand": ('x: K.In[F, "n"], y: K.In[F, "2"], out: K.Out[F, "n"]', "", [(3,), (2,)], [
        ([(3,), (3,)], "axis 0 of y has size 2, as the annotation of y"),
        ([(2,), (1,)], "axis 0 of y has size 2, as the annotation of y"),
    ]),
    "one name for two operands": ('x: K.In[F, "n"], y: K.In[F, "n"], out: K.Out[F, "n"]', "", [(3,), (3,)], [
        ([(3,), (4,)], "axis 0 of y has size 3, as axis 0 of x"), ([(4,), (3,)], "axis 0 of y has size 4, as axis 0 of x"),
    ]),
    "one name for two axes": ('x: K.In[F, "n, n"], out: K.Out[F, "n"]', "", [(3, 3)], [
        ([(3, 4)], "axis 1 of x has size 3, as axis 0 of x"), ([(3,)], "x has 2 axes"), ([(3, 3, 3)], "x has 2 axes"),
    ]),
    "an argument": ('x: K.In[F, "n"], n: K.Constant[int], out: K.Out[F, "n"]', "", [(3,), 3], [
        ([(3,), 4], "axis 0 of x has size 4, as n=4"), ([(3,), 2], "axis 0 of x has size 2, as n=2"),
    ]),
    "a result that is shorter": ('x: K.In[F, "n"], out: K.Out[F, "n - 2"]', "", [(3,)], [
        ([(1,)], "axis 0 of the result out has a size of at least 0, n - 2"),
    ]),
    "a grid that is shorter": ('x: K.In[F, "n"], out: K.Out[F, "n"]', '(grid="n - 2")', [(3,)], [
        ([(1,)], "sizes of the grid are not negative"),
    ]),
}  # fmt: skip


def arguments(shapes: list[object], device: str) -> list[object]:
    return [fb.ones(s, device=device) if isinstance(s, tuple) else s for s in shapes]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", CASES)
def test_each_size_is_compared(name: str, device: str, tmp_path: Path) -> None:
    parameters, grid, right, wrong = CASES[name]
    more = ", 0" if "n, n" in parameters else ""
    kernel = kernel_of(TEXT.format(parameters=parameters, grid=grid, more=more), tmp_path / "sized.py")
    for shapes, message in wrong:
        assert np.isin(kernel(*arguments(right, device)).numpy(), (0.0, 2.0)).all()
        with pytest.raises(fb.ShapeError, match=message):
            kernel(*arguments(shapes, device))


@pytest.mark.parametrize("size", ["n //", "n / 2", "n ** 2", "-n", "n.real", "f(n)", "2.0", "n if n else 1"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match=re.escape(size)):
        Size.of(size)
    with pytest.raises(fb.KernelCompileError, match="size"):
        fb.kernel.Out[fb.float32, size]


@pytest.mark.parametrize("operation", ["//", "%"])
def test_a_size_is_not_divided_by_0(operation: str) -> None:
    size = Size.of(f"n {operation} m")
    assert size.value({"n": 7, "m": 3}) == {"//": 2, "%": 1}[operation]
    with pytest.raises(fb.ShapeError, match="a size is not divided by 0"):
        size.value({"n": 7, "m": 0})


@pytest.mark.parametrize(("text", "value"), [("n + m", 10), ("n - m", 4), ("n * m", 21), ("(n + 1) * m - 2 * m", 18), ("5", 5)])
def test_a_size_is_computed_from_those_of_its_names(text: str, value: int) -> None:
    assert Size.of(text).value({"n": 7, "m": 3}) == value


@pytest.mark.parametrize("kind", [str, complex, list, 3, None, np.float32])
def test_constants_are_numbers_or_dtypes(kind: object) -> None:
    with pytest.raises(fb.KernelCompileError, match=r"fb\.kernel\.Constant\[…\]: bool, int, float or DType"):
        fb.kernel.Constant[kind]  # type: ignore[misc]
