"""Results whose elements a kernel may leave out have the value 0 before it; where each item stores its own, there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.analog.typed_kernel import reads, results
from firebrick.compiler.spec.custom import launched
from firebrick.compiler.targets.llvm.custom_kernels import lowered
from firebrick.compiler.targets.llvm.target import Target

HEAD = """import firebrick as fb
K = fb.kernel

@K(grid="{grid}")
def kernel(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "{size}"{first}]):
    i = K.index()
"""

# statements → whether each item stores the element at its own index
BODIES = {
    "out[i] = x[i] + 1.0": True,
    "v = i\nout[v] = x[i] + 1.0": True,
    "if x[i] > 3.0:\n    out[i] = 1.0\nelse:\n    out[i] = 2.0": True,
    "if x[i] > 3.0:\n    out[i] = 1.0\nelif x[i] > 1.0:\n    out[i] = 2.0\nelse:\n    out[i] = 3.0": True,
    "if x[i] > 3.0:\n    out[0] = 1.0\nout[i] = x[i]": True,
    "if x[i] > 3.0:\n    out[i] = 1.0": False,
    "if x[i] > 3.0:\n    v = 1.0\nelse:\n    out[i] = 2.0": False,
    "if x[i] > 3.0:\n    out[i] = 1.0\nelif x[i] > 1.0:\n    out[i] = 2.0": False,
    "if x[i] > 3.0:\n    out[i] = 1.0\nelse:\n    if x[i] > 1.0:\n        out[i] = 2.0": False,
    "if x[i] > 3.0:\n    return\nout[i] = 1.0": False,
    "for k in range(3):\n    if x[k] > 9.0:\n        out[i] = 1.0": False,
    "while x[i] > 30.0:\n    out[i] = 1.0": False,
    "if i > 0:\n    out[i - 1] = 1.0": False,
    "if i < 2:\n    out[2 * i] = 1.0": False,
    "out[0] = 1.0": False,
}


def program_of(kernel: Any, x: fb.Tensor) -> Any:
    _, operands, params = kernel._operation(kernel.bound((x,), {}), None)
    return kernel.program([t.dtype for t in operands], params)


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.replace("\n", "; "))
def test_a_result_is_filled_where_some_item_may_not_store(body: str, tmp_path: Path) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    x = fb.asarray(np.arange(6, dtype=np.float32))
    kernel = kernel_of(HEAD.format(grid="n", size="n", first="") + lines, tmp_path / "plain.py")
    assert program_of(kernel, x).filled == ({} if BODIES[body] else {"out": 0})
    fb.ones(1000)  # memory of other values, which a result that is not filled would show
    zeros = kernel_of(HEAD.format(grid="n", size="n", first=", 0") + lines, tmp_path / "zeros.py")
    assert kernel(x).tolist() == zeros(x).tolist()
    sevens = kernel_of(HEAD.format(grid="n", size="n", first=", 7") + lines, tmp_path / "sevens.py")
    assert program_of(sevens, x).filled == {"out": 7}
    different = np.asarray(sevens(x).tolist()) != np.asarray(zeros(x).tolist())
    assert different.any() != BODIES[body], "elements that no item stores have the first value"


@pytest.mark.parametrize(("grid", "size"), [("n - 1", "n"), ("n", "n + 1"), ("n", "n * 1")])
def test_a_result_of_another_size_than_the_grid_is_filled(grid: str, size: str, tmp_path: Path) -> None:
    kernel = kernel_of(HEAD.format(grid=grid, size=size, first="") + "    out[i] = x[i]\n", tmp_path / "sized.py")
    x = fb.asarray(np.arange(6, dtype=np.float32))
    assert program_of(kernel, x).filled == {"out": 0}
    grid_size = eval(grid, {"n": 6})
    assert kernel(x).tolist()[:6] == [float(k) if k < grid_size else 0.0 for k in range(6)]


@pytest.mark.parametrize(("n", "several"), [(100, False), (1 << 20, True)])
def test_first_values_of_a_large_result_are_stored_by_several_threads(n: int, several: bool, tmp_path: Path) -> None:
    kernel = kernel_of(HEAD.format(grid="1", size="n", first="") + "    out[i] = x[i]\n", tmp_path / "first.py")
    x = fb.ones(n)
    first, own = lowered(launched(program_of(kernel, x), [x.aval], [0], {}), [x.aval], [x.aval], Target.host()).parts
    assert (0 < first.chunk < first.kernel.grid) == several
    assert own.kernel.grid == 1


def test_elements_that_nothing_reads_have_a_first_value_only_where_operations_run_one_by_one() -> None:
    def stored(x: Any, out: Any) -> None:
        i = fb.kernel.index()
        if x[i] > 2.0:
            out[i] = x[i]

    stored.__annotations__ = {"x": reads(fb.float32, "n"), "out": results(fb.float32, "n", unread=True)}
    kernel = fb.kernel(stored)
    x = fb.asarray(np.arange(50000, dtype=np.float32))
    assert program_of(kernel, x).filled == {"out": 0}
    fb.ones(50000)  # memory of other values
    assert kernel(x).numpy()[:4].tolist() == [0.0, 0.0, 0.0, 3.0]
    spec = launched(program_of(kernel, x), [x.aval], [0], {})
    assert len(lowered(spec, [x.aval], [x.aval], Target.host()).parts) == 1
    read = replace(spec, results=(replace(spec.results[0], unread=False),))
    assert len(lowered(read, [x.aval], [x.aval], Target.host()).parts) == 2
    assert fb.jit(lambda x: fb.where(x > 2.0, kernel(x), 1.0))(x).numpy()[:4].tolist() == [1.0, 1.0, 1.0, 3.0]
