"""Kernels whose elements are expressions of elements of the same place, which ``jit`` fuses: branches become selections."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.compiler.kernel.language.composed import pure_expression
from firebrick.scalar import evaluate
from firebrick.scalar.expr import load

X = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.0], np.float32)
Y = X[::-1].copy()
HEAD = """import firebrick as fb
K = fb.kernel

@K
def kernel(x: K.In[fb.float32, "n"], y: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    a = x[i]
    b = y[i]
"""


class Source:
    """The text of a kernel that assigns to variables, and to its result, in branches."""

    def __init__(self, seed: int) -> None:
        self.rng, self.lines = Random(seed), []
        self.block(1, 4)
        if self.rng.random() < 0.5:
            self.branches(1, lambda depth: self.add(depth, f"out[i] = {self.value()}"), last=True)
        else:
            self.add(1, f"out[i] = {self.value()}")

    @property
    def text(self) -> str:
        return HEAD + "\n".join(self.lines) + "\n"

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def value(self) -> str:
        one, other = (self.rng.choice(("a", "b", "x[i]", "y[i]", f"{self.rng.choice((0.5, 2.0, -1.0))}")) for _ in "ab")
        return f"{one} {self.rng.choice('+-*')} {other}"

    def branches(self, depth: int, inside: Any, last: bool = False) -> None:
        ways = [f"if {self.value()} > {self.rng.choice(('a', 'b', '0.0'))}:"]
        ways += [f"elif {self.value()} < b:"] * self.rng.randint(0, 1)
        ways += ["else:"] * (last or self.rng.random() < 0.7)
        for way in ways:
            self.add(depth, way)
            inside(depth + 1)

    def block(self, depth: int, count: int) -> None:
        for _ in range(self.rng.randint(1, count)):
            if depth < 4 and self.rng.random() < 0.5:
                self.branches(depth, lambda inner: self.block(inner, 2))
            elif self.rng.random() < 0.3:
                self.add(depth, f"{self.rng.choice('ab')} {self.rng.choice('+-*')}= {self.value()}")
            elif self.rng.random() < 0.3:
                self.add(depth, "a, b = b, a")
            else:
                self.add(depth, f"{self.rng.choice('ab')} = {self.value()}")


def expression_of(kernel: Any) -> Any:
    _, operands, params = kernel._operation(kernel.bound((fb.asarray(X), fb.asarray(Y)), {}), None)
    return pure_expression(kernel.program([t.dtype for t in operands], params))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_an_expression_has_the_values_of_its_kernel(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        kernel = kernel_of(Source(seed).text, tmp_path / f"branches_{seed}.py")
        made = expression_of(kernel)
        assert made is not None
        wanted = kernel(fb.asarray(X, device="numpy"), fb.asarray(Y, device="numpy")).numpy()
        (got,) = evaluate([made(load(0, "float32"), load(1, "float32"))], [X, Y])
        np.testing.assert_array_equal(got, wanted, err_msg=f"seed {seed}")


def test_a_fused_kernel_with_branches_has_the_values_of_its_call(tmp_path: Path) -> None:
    x, y = fb.asarray(X), fb.asarray(Y)
    for seed in range(4):
        kernel = kernel_of(Source(seed).text, tmp_path / f"fused_{seed}.py")
        assert fb.jit(lambda a, b, k=kernel: k(a, b) * 2.0)(x, y).tolist() == (kernel(x, y) * 2.0).tolist()


OTHERS = {
    "another place": "out[i] = x[0]",
    "the index itself": "out[i] = a + fb.float32(i)",
    "a branch without a store": "if a > b:\n        out[i] = a",
    "a loop": "for k in range(3):\n        a += b\n    out[i] = a",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_expression_of_one_element_of_each_operand_is_not_made_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"other_{name.replace(' ', '_')}.py"
    assert expression_of(kernel_of(HEAD + "    " + OTHERS[name] + "\n", path)) is None
