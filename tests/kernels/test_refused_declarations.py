"""What the declaration of a kernel is refused for: its types, its sizes and its grid. The error says what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_sources import kernel_of

import firebrick as fb

OUT = 'out: K.Out[F, "n"]'
X = 'x: K.In[F, "n"]'
DECLARATIONS = {
    'x: K.In[F], out: K.Out["x", "n"]': "fb.kernel.In[…]: a dtype and the sizes\nReceived: firebrick.float32.",
    f'{X}, out: K.Out[None, "n"]': "a result has a dtype, or the name of the parameter that has the same\nReceived: None.",
    f'x: K.In[fb.complex64, "n"], {OUT}': "the elements of an array are bool, int8, ",
    f'x: K.In[F, "n-+"], {OUT}': "sizes are names, or integer expressions of names, separated by commas\nReceived: 'n-+'.",
    f"x: K.In[F, 1.5], {OUT}": "sizes are text, or the number of axes\nReceived: 1.5.",
    f'{X}, out: K.Out[F, "n", "a"]': "fb.kernel.Out[…]: a first value is a Python number\nReceived: 'a'.",
    f'{X}, out: K.Out["y", "n"]': "a dtype is one of Firebrick's, or the name of an argument that has it\nReceived: out: 'y',",
    f"x: \"K.In[Missing, 'n']\", {OUT}": "annotations can be evaluated\nReceived: x: K.In[Missing, 'n'] (NameError: name",
    X: "a kernel has a result\nReceived: neither Out nor InOut,",
    f"x, {OUT}": "each parameter has a type\nReceived: x without one,",
    f'x: K.In[F, "n + 1"], {OUT}': "the sizes of an argument are names or integers\nReceived: 'n + 1'.",
    f"x: K.In[F, -1], {OUT}": "sizes are text, or the number of axes\nReceived: -1.",
    f'x: K.In[F, "n", 0], {OUT}': "fb.kernel.In[…]: a dtype and the sizes\nReceived: (firebrick.float32, 'n', 0).",
    f"{X}, out: K.Out[F, 1]": "sizes are text\nReceived: 1.",
    f'{X}, out: K.Out[F, "n", 0, 1]': "the sizes, and for some a first value\nReceived: (firebrick.float32, 'n', 0, 1).",
    f"{X}, c: K.Constant[str], {OUT}": "fb.kernel.Constant[…]: bool, int, float or DType\nReceived: <class 'str'>.",
    f'{X}, out: K.Out[F, "n / 2"]': "integer expressions of names, separated by commas\nReceived: 'n / 2'.",
    f'{X}, out: K.Out[F, "n + 1.5"]': "integer expressions of names, separated by commas\nReceived: 'n + 1.5'.",
    f'{X}, out: K.Out[F, "-n"]': "integer expressions of names, separated by commas\nReceived: '-n'.",
    f'{X}, out: K.Out[F, "m + n * m"]': "of arguments, and integer parameters: n\nReceived: m in m + n * m,",
    'x: K.In[F, "4"], out: K.Out[F, "m"]': "and integer parameters: 4\nReceived: m,",
    f'{X}, c: K.Constant[float], d: float, e: int, g: K.Constant[int], out: K.Out[F, "c"]': "parameters: e, g, n\nReceived: c,",
    f'{X}, out: K.Out["out", "n"]': "or the name of an argument that has it\nReceived: out: 'out',",
    f"*{X}, {OUT}": "a kernel has a fixed number of parameters\nReceived: *x,",
    f"{X} = 1, *, {OUT}": "arrays have no default\nReceived: x=1,",
    f'{X}, out: K.Out[F, "m"]': "a size is made of the sizes of arguments, and integer parameters: n\nReceived: m,",
    f'n: K.In[F, "n"], {OUT}': "has a name of its own, or that of an integer parameter\nReceived: a size and a parameter n,",
    f"{X}, n: float, {OUT}": "has a name of its own, or that of an integer parameter\nReceived: a size and a parameter n,",
    f"{X}, n: K.Constant[float], {OUT}": "or that of an integer parameter\nReceived: a size and a parameter n,",
    f"x: list, {OUT}": "a parameter is an array, a number or a constant\nReceived: x: <class 'list'>,",
}


def declared(parameters: str, folder: Path, decorator: str = "@K") -> fb.KernelCompileError:
    """The error of a declaration."""
    text = f"import firebrick as fb\nK, F = fb.kernel, fb.float32\n{decorator}\n"
    text += f"def kernel({parameters}):\n    out[K.index()] = 1.0\n"
    with pytest.raises(fb.KernelCompileError) as caught:
        kernel_of(text, folder / "declared.py")
    return caught.value


@pytest.mark.parametrize("parameters", DECLARATIONS)
def test_a_declaration_is_refused(parameters: str, tmp_path: Path) -> None:
    assert DECLARATIONS[parameters] in str(declared(parameters, tmp_path))


def test_a_grid_is_sizes(tmp_path: Path) -> None:
    error = declared(f"{X}, {OUT}", tmp_path, '@K(grid="n,,m")')
    assert "the grid is sizes, separated by commas\nReceived: 'n,,m'," in str(error)
    assert "declared.py:" in error.context["line"]
