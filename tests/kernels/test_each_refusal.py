"""What the kernel language refuses, a line of a kernel each: the error says what was expected, and names the line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.compiler.kernel.language import intrinsics

HEAD = """import math
import firebrick as fb
K = fb.kernel
F, I = fb.float32, fb.int32

@K.function
def nothing(v):
    w = v

@K.function
def doubled(v):
    return v * 2.0

class Holder:
    number = 2.0

LIST = [1]

@K{decorator}
def kernel(x: K.In[F, "n"], k: K.In[I, "n"], key: K.In[fb.uint32, "m"], out: K.Out[F, "n", 0], ints: K.Out[I, "n", 0]):
    i = K.lane() if {grouped} else K.index()
    out[i] = x[i]
"""

# the last line of each is the one at fault, or the one that ends with `# here`
ALONE = {
    "v = K.shared(F, 4)": "shared(…) is in kernels of groups",
    "K.barrier()": "barrier() is in kernels of groups",
    "v = K.group()": "group() is in kernels of groups",
    "v = K.lane()": "lane() is in kernels of groups",
    "v = K.shuffle(x[i], 0, 2)": "shuffle(…) is in kernels of groups",
    "v = K.registers(0.0, 0)": "sizes of at least 1",
    "v = K.registers(0.0, (2, 0))": "sizes of at least 1",
    "v = K.registers(0.0, 2)\nout[i] = v[2]": "registers of shape (2,) have this element",
    "v = K.registers(0.0, 2)\nout[i] = v[-1]": "registers of shape (2,) have this element",
    "v = K.registers(0.0, (2, 3))\nout[i] = v[1]": "registers of shape (2, 3) have this element",
    "v = K.registers(0.0, (2, 3))\nv[1, 3] = 1.0": "registers of shape (2, 3) have this element",
    "v = K.index(1)": "the grid has 1 axis",
    "v = K.index(-1)": "the grid has 1 axis",
    "v = K.unrolled(4)": "unrolled(…) is what a loop is over",
    "K.atomic_add(x[i], 0, 1.0)": "an atomic operation changes an element of an array",
    "K.atomic_add(x, 0, 1.0)": "an atomic operation changes an array that is read and written",
    "v = K.random_bits(x, 0)": "the key of random numbers is four uint32 words",
    "v = K.random_bits(key, 0)": "the key of random numbers is four uint32 words",
    "v = K.random_uniform(key, 0, fb.int32)": "uniform numbers are float32 or float64",
    "v = K.random_uniform(key, 0, fb.complex64)": "a dtype of kernels",
    "v = K.random_uniform(key, 0, 2.0)": "a dtype of kernels",
    "v = K.fma(k[i], k[i], k[i])": "fma is of floats",
    "v = K.fma(1, 2, 3)": "fma is of floats",
    "v = x(i)": "functions are called",
    "v = math.sin(*x)": "arguments are written one by one",
    "v = doubled(**x)": "arguments are written one by one",
    "v = nothing(x[i])": "nothing returns a value",
    "v = doubled()": "doubled has the parameters v",
    "v = doubled(x[i], x[i])": "doubled has the parameters v",
    "v = fb.exp(x=x[i])": "exp has no keyword arguments in kernels",
    "v = fb.exp(x[i], x[i])": "exp has 1 operand",
    "v = F(x[i], x[i])": "a cast has one operand",
    "v = F()": "a cast has one operand",
    "v = fb.complex64(x[i])": "a dtype of kernels",
    "v = fb.astype(x[i], fb.complex64)": "a dtype of kernels",
    "v = fb.astype(x, F)": "a number is cast",
    "v = fb.astype(x[i], 2)": "a number and a dtype",
    "v = fb.astype(x[i])": "a number and a dtype",
    "v = F(x)": "a number is needed here",
    "v = len(x[i])": "the length of an array or tuple",
    "v = len(x, x)": "the length of an array or tuple",
    "v = sorted(x)": "kernels call elementwise functions",
    "v = None": "a kernel computes with numbers",
    "v = 'text'": "a kernel computes with numbers",
    "v = 2j": "a kernel computes with numbers",
    "v = x.T": "an array has shape, size and ndim",
    "v = x[i].shape": "has no attributes",
    "v = Holder.weight": "has an attribute of this name",
    "v = x @ x": "kernels have no products of matrices",
    "v = x[i]\nv @= v": "kernels have no products of matrices",
    "v = not k[i]": "a condition is bool",
    "v = x if x[i] > 0 else 1.0": "a number is needed here",
    "v = (1.0, 2.0)[2]": "a tuple of 2 has this element",
    "v = (1.0, 2.0)[-3]": "a tuple of 2 has this element",
    "v = x[i, 0]": "x has 1 axis",
    "for a, b in range(3):  # here\n    pass": "the counter of a loop is one name",
    "for v in (1, 2):  # here\n    if x[i] > v:\n        break": "a loop that is written out goes to its end",
    "for v in K.unrolled(2):  # here\n    if x[i] > v:\n        break": "a loop that is written out goes to its end",
    "for v in K.unrolled(0, 4, 0):  # here\n    out[i] = x[i]": "the step of a loop is not 0",
    "for v in range(0, 4, 0):  # here\n    out[i] = x[i]": "the step of a loop is not 0",
    "for a, b in (1, 2):  # here\n    out[i] = x[i]": "a name for each element",
    "for a, b in ((1, 2, 3),):  # here\n    out[i] = x[i]": "a name for each element",
    "for v in x:  # here\n    pass": "a loop counts",
    "v = x  # here\nfor w in range(2):\n    v = x": "a variable that is assigned several times is a number",
    "v = 1.0\nif x[i] > 0:\n    v = (1.0, 2.0)  # here\nout[i] = 0.0": "v is always a tuple of equally many numbers",
    "v = (1.0, 2.0)\nif x[i] > 0:\n    v = 1.0  # here\nout[i] = 0.0": "v is a tuple of 2",
    "a, b = 1.0, 2.0, 3.0": "a value for each of 2 names",
    "a, b = x[i]": "a value for each of 2 names",
    "x.size = 3": "a variable or an element of an array",
    "v = 1.0\nv[0] = 2.0": "elements of arrays are assigned to",
    "assert 1 > 2": "an assertion may hold",
    "assert x[i] > 0, x": "the message of an assertion is text",
    "x[i] + 1.0": "a statement has an effect",
    "v: F = 1.0": "variables have no annotations",
    "v = 1 // 0": "floor_divide of Python numbers has a value",
    "v = 1.0 / 0": "divide of Python numbers has a value",
    "v = 5 % 0": "remainder of Python numbers has a value",
    "v = 1 << -1": "bitwise_left_shift of Python numbers has a value",
    "v = (-8.0) ** 0.5": "pow of Python numbers is a real number",
    "v = fb.add(1.0, x)": "add takes numbers",
    "out[v], v = x[i], k[i]": "the variable v has a value before it is used",
    "v = (x, 1.0)  # here\nif k[i] > 0:\n    v = (x, 2.0)\nout[i] = v[1]": "v.0 is a number",
    "v = (1.0, 2.0)\nif k[i] > 0:\n    v = (x, 2.0)  # here\nout[i] = v[1]": "v.0 is a number",
    "x.size += 1": "a variable or an element of an array",
    "v = LIST(x[i])": "kernels call elementwise functions",
    "v = K.registers(0.0, 2)\nw = v + 1.0": "add takes numbers",
    "v = fb.logical_and(k[i], k[i])": "logical_and takes bools",
    "v = x[x]": "an index is an integer",
    "v = x[1.0]": "an index is an integer",
    "v = 0.5\nif k[i] > 0:\n    v = 1.5\nw = x[v]": "an index is an integer",
    "v = x[True]": "an index is an integer",
    "for v in range(x[i]):  # here\n    pass": "a bound of a loop is an integer",
    "v = fb.bitwise_and(x[i], x[i])": "bitwise_and takes integers and bools",
    "v = (k[i] > 0) + (k[i] > 1)": "add takes numbers other than bools",
    "v = k[i] + 1.5": "a Python number takes the dtype of what it is combined with",
    "v = k[i] + 3000000000": "a Python number fits int32",
    "v = k[i] + True": "a Python number takes the dtype of what it is combined with",
    "v = (1.5 if x[i] > 0 else 2) + k[i]": "a Python number takes the dtype of what it is combined with",
    "v = (3000000000 if x[i] > 0 else 2) + k[i]": "a Python number fits int32",
    "v = x[i] + k[i]": "the operands of add have a common dtype",
    "ints[i] = 3000000000": "a Python number fits int32",
    "ints[i] = 1.0": "an element of ints is int32",
    "out[i] = x[i] > 0": "an element of out is float32",
    "out[i] = True": "an element of out is float32",
    "out[i] = (1, 2)": "an element of out is float32",
    "x[i] = 1.0": "x is read only",
    "v = out[i, i]": "out has 1 axis",
    "v = x[i:]": "an array is indexed by an integer for each axis",
    "v = x[...]": "an array is indexed by an integer for each axis",
    "v = x[-2]": "an index is at least 0: negative ones do not count from the end",
    "v = x[i] < 1 in x": "comparisons are <, <=, >, >=, == and !=",
    "v = x[i] if k[i] > 0 else (1.0, 2.0)": "two numbers, or tuples of equally many",
    "v = (1.0,) if k[i] > 0 else 1.0": "two numbers, or tuples of equally many",
    "v = (1.0, 2.0) if k[i] > 0 else (x, 2.0)": "a number is needed here",
    "v = math[0]": "arrays, registers and tuples are indexed",
    "v = (1, 2)[k[i]]": "the index of a tuple is an integer that is known",
    "v = missing": "the name missing is defined",
    "v = lambda: 1": "functions of kernels are decorated",
    "v = [w for w in (1, 2)]": "kernels have no lists",
    "while x[i] > 0:  # here\n    out[i] = 1.0\nelse:\n    out[i] = 2.0": "a loop has no else",
}
GROUPED = {
    "v = K.shared(F, 0)": "sizes of at least 1",
    "v = K.shared(fb.complex64, 2)": "a dtype of kernels",
    "if x[i] > 0:\n    v = K.shared(F, 2)  # here": "shared arrays are made at the beginning",
    "v = K.shuffle(x[i], 0, 3)": "a power of two that divides the group of 4",
    "v = K.shuffle(x[i], 0, 0)": "a power of two that divides the group of 4",
    "v = K.shuffle(x[i], 0, 8)": "a power of two that divides the group of 4",
    "v = K.group(1)": "the grid has 1 axis",
    "v = K.shuffle(x, 0, 2)": "a number is needed here",
    "v = K.shuffle(x[i], x[i], 2)": "the source of a shuffle is an integer",
}
OF_TWO_AXES = {
    "v = K.index()": "a kernel of groups with several axes has indices of its groups and lanes",
    "v = K.group(2)": "the grid has 2 axes",
}
IN_ANY_ORDER = {
    "K.atomic_and(out, 0, 1.0)": "atomic_and is of integers",
    "K.atomic_or(out, 0, 1.0)": "atomic_or is of integers",
    "K.atomic_xor(out, 0, 1.0)": "atomic_xor is of integers",
    "v = K.compare_exchange(out, 0, 1.0, 2.0)": "compare_exchange is of integers",
}
DECORATORS = {
    '(grid="n")': ALONE, '(group=4, grid="n // 4")': GROUPED, '(grid="n", deterministic=False)': IN_ANY_ORDER,
    '(group=4, grid="n // 4, 2")': OF_TWO_AXES,
}  # fmt: skip
CASES = [(decorator, *c) for decorator, cases in DECORATORS.items() for c in cases.items()]


TEXTS = Path(__file__).with_name("refusals.txt")


def refused(decorator: str, body: str, folder: Path) -> tuple[fb.KernelCompileError, str]:
    """The error of a kernel, and the line at fault."""
    text = HEAD.format(decorator=decorator, grouped="group" in decorator)
    text += "".join(f"    {line}\n" for line in body.split("\n"))
    path = folder / "refused.py"
    kernel = kernel_of(text, path)
    lines = text.rstrip().split("\n")
    marked = next((n for n, line in enumerate(lines, 1) if line.endswith("# here")), len(lines))
    with pytest.raises(fb.KernelCompileError) as caught:
        kernel(fb.ones(8), fb.ones(8, dtype=fb.int32), fb.ones(3, dtype=fb.uint32))
    return caught.value, f"{path}:{marked}"


@pytest.mark.parametrize(("decorator", "body", "expected"), CASES, ids=[b.replace("\n", "; ") for _, b, _ in CASES])
def test_a_line_is_refused(decorator: str, body: str, expected: str, tmp_path: Path) -> None:
    error, line = refused(decorator, body, tmp_path)
    assert expected in str(error)
    assert error.context["line"] == line


def test_the_texts_of_all_refusals(tmp_path: Path) -> None:
    found = []
    for decorator, body, _ in CASES:
        error, line = refused(decorator, body, tmp_path)
        shown = str(error).replace(line, "FILE:LINE")
        found.append(f"## {body}\n{shown}\n")
    assert "".join(found) == TEXTS.read_text(encoding="utf-8")


INTRINSICS = [
    n for n, f in vars(intrinsics).items()
    if inspect.isfunction(f) and f.__module__ == intrinsics.__name__ and not n.startswith("_")
]  # fmt: skip


@pytest.mark.parametrize("name", INTRINSICS)
def test_a_function_of_the_language_is_an_error_outside_of_kernels(name: str) -> None:
    parameters = inspect.signature(getattr(intrinsics, name)).parameters.values()
    arguments = [0 for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    with pytest.raises(fb.UnsupportedError, match=rf"fb\.kernel\.{name} is part of the kernel language"):
        getattr(fb.kernel, name)(*arguments)
