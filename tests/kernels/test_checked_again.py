"""An index that gets another value between two reads is checked at each of them; one that does not is checked once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.compiler.kernel.ir import Check, If, Statement

HEAD = """import firebrick as fb
K = fb.kernel

@K(grid="m")
def kernel(x: K.In[fb.float32, "n"], one: K.In[fb.int64, "m"], other: K.In[fb.int64, "m"], out: K.Out[fb.float32, "m"]):
    i = K.index()
    j = one[i]
    k = other[i]
    total = x[j]
"""
CHANGES = {
    "assigned": "j = other[i]\ntotal += x[j]",
    "assigned in a branch": "if total > -1.0:\n    j = other[i]\ntotal += x[j]",
    "assigned in the other branch": "if total < -1.0:\n    total += 1.0\nelse:\n    j = other[i]\ntotal += x[j]",
    "assigned in a loop": "for step in range(2):\n    total += x[j]\n    j = other[i]",
    "assigned in a while loop": "left = 2\nwhile left > 0:\n    total += x[j]\n    j = other[i]\n    left -= 1",
    "exchanged": "j, k = k, j\ntotal += x[j]",
    "added to": "j += k - j\ntotal += x[j]",
    "another of the same text": "total += x[j + 0]\nj = k\ntotal += x[j + 0]",
    "used in both branches": "if total > 0.0:\n    total += x[j]\n    j = k\nelse:\n    total += x[j]\ntotal += x[j]",
    "in registers": "r = K.registers(j, 1)\ntotal += x[r[0]]\nr[0] = k\ntotal += x[r[0]]",
}
SAME = {
    "read again": "total += x[j]\ntotal *= x[j]",
    "read again in a branch": "if total > 0.0:\n    total += x[j]",
    "read again in a loop": "for step in range(2):\n    total += x[j]",
}


def made(body: str, path: Path) -> object:
    return kernel_of(HEAD + "".join(f"    {line}\n" for line in [*body.split("\n"), "out[i] = total"]), path)


def arguments(other: list[int], device: str) -> list[fb.Tensor]:
    return [fb.ones(3, device=device), *(fb.asarray(np.array(a), device=device) for a in ([0, 1], other))]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", CHANGES)
def test_an_index_that_changed_is_checked_again(name: str, device: str, tmp_path: Path) -> None:
    kernel = made(CHANGES[name], tmp_path / "changed.py")
    kernel(*arguments([2, 0], device))
    for wrong in (3, -1, 1 << 40):
        with pytest.raises(fb.OutOfRangeError, match=rf"axis 0 of x .* below 3\nReceived: {wrong}"):
            kernel(*arguments([2, wrong], device))


def checks(body: tuple[Statement, ...]) -> int:
    """Of all indices, in branches and loops too."""
    inner = [b for s in body for b in ((s.then, s.otherwise) if isinstance(s, If) else (getattr(s, "body", ()),))]
    return sum(isinstance(s, Check) for s in body) + sum(map(checks, inner))


@pytest.mark.parametrize("name", SAME)
def test_an_index_that_is_the_same_is_checked_once(name: str, tmp_path: Path) -> None:
    def count(body: str, file: str) -> int:
        kernel = made(body, tmp_path / file)
        _, operands, params = kernel._operation(kernel.bound(tuple(arguments([0, 0], "cpu")), {}), None)
        return checks(kernel.program([t.dtype for t in operands], params).translated.function.body)

    assert count(SAME[name], "same.py") == count("total += 1.0", "first.py")


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_loop_may_have_as_many_rounds_as_its_limit(device: str, tmp_path: Path) -> None:
    text = """import firebrick as fb
K = fb.kernel

@K(grid="n")
def kernel(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    i = K.index()
    count = 0
    while count < x[i]:
        count += 1
    out[i] = count
"""
    kernel = kernel_of(text, tmp_path / "counting.py")
    with fb.config.scope(kernel_loop_limit=5):
        assert kernel(fb.asarray(np.array([5, 0, 3]), device=device)).tolist() == [5, 0, 3]
        with pytest.raises(fb.ExecutionError, match="at most 5 rounds"):
            kernel(fb.asarray(np.array([5, 6]), device=device))
