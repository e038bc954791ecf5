"""Every kernel of the ``torch`` engine against the op table, on torch:cpu."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from firebrick.backends.registry import find_device
from firebrick.backends.torch import TorchBackend, missing_capability
from firebrick.core.aval import Aval
from firebrick.core.dtypes import ALL, bfloat16, dtype, float32, int8, uint16, uint32, uint64
from firebrick.core.errors import OutOfRangeError, UnsupportedError
from firebrick.core.op import Op, Sample
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
LAYOUTS = ("row-major", "column-major", "every second element", "broadcast")
RUN = [op for op in OPS.values() if op.name != "to_device"]


@pytest.fixture(scope="module")
def device() -> Any:
    return find_device("torch:cpu")


def lay_out(native: Any, layout: str) -> Any:
    """The same values in memory laid out otherwise."""
    import torch

    if layout == "column-major":
        back = tuple(range(native.ndim))[::-1]
        return native.permute(back).contiguous().permute(back)
    if layout == "every second element":
        wide = torch.zeros([2 * d for d in native.shape], dtype=native.dtype)
        view = wide[tuple(slice(1, None, 2) for _ in native.shape)]
        view.copy_(native)
        return view
    if layout == "broadcast" and native.ndim:
        # one row seen many times, where the rows are equal anyway
        first = native[:1]
        if native.shape[0] > 1 and bool((first == native).all()):
            return first.expand(native.shape)
    return native


def memory(native: Any) -> tuple[int, int]:
    return native.untyped_storage().data_ptr(), native.untyped_storage().nbytes()


def agree(op: Op, sample: Sample, device: Any, layout: str = "row-major") -> float:
    """Run one sample and check every duty of ``execute``; the deviation in units of precision."""
    engine = device.backend
    arrays = tuple(np.asarray(a) for a in sample.inputs)
    natives = tuple(lay_out(engine.from_host(a, device), layout) for a in arrays)
    dtypes = tuple(dtype(a.dtype) for a in arrays)
    assert engine.supports(op, dtypes), f"{op.name} on {dtypes}"
    inferred = op.infer(*(Aval(a.shape, d) for a, d in zip(arrays, dtypes, strict=True)), **sample.params)
    result = engine.execute(op, natives, sample.params)
    results = result if isinstance(result, tuple) else (result,)
    where = f"{op.name} {sample.name} {dtypes[0]} {layout}"

    assert [engine.describe(r) for r in results] == [inferred] if type(inferred) is Aval else list(inferred), where
    for native, array in zip(natives, arrays, strict=True):
        assert engine.to_host(native).tobytes() == array.tobytes(), f"{where} wrote an operand"
        if not op.view:
            taken = [memory(r)[0] for r in results if memory(r)[1]]
            assert memory(native)[0] not in taken, f"{where} returned an operand's memory"
    assert not any(r.requires_grad or r.is_inference() for r in results)

    worst = check_results(
        op, arrays, sample.params, tuple(engine.to_host(r) for r in results), run_reference(op, arrays, sample.params)
    )
    assert worst.ok, f"{where}: {worst}"
    return worst.units


@needs_torch
@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_op_agrees_with_its_reference_on_every_dtype_and_sample(op: Op, device: Any) -> None:
    for name in op.dtypes:
        for sample in op.samples(np.random.default_rng(0), name):
            agree(op, sample, device)


@needs_torch
@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_op_reads_operands_of_any_layout(op: Op, layout: str, device: Any) -> None:
    for name in {op.dtypes[0], op.dtypes[-1], "bfloat16" if "bfloat16" in op.dtypes else op.dtypes[0]}:
        for sample in op.samples(np.random.default_rng(1), name):
            agree(op, sample, device, layout)
