"""Running kernels of kernel IR on the first WebGPU device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from narrow_kernels import bounds_of_launch
from running_kernels import bits
from written_kernels import Launch

import firebrick as fb
from firebrick.backends.webgpu.commands import Gpu
from firebrick.compiler.kernel import Fault, Function, interpret
from firebrick.compiler.spec.faults import LARGEST_SITE
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import shader
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype

Array = np.ndarray[Any, Any]
SITES = 16


def gpu() -> Gpu:
    """The first device."""
    device = fb.device("webgpu:0")
    found: Gpu = device.backend.groups(device).gpu
    return found


def run(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Any], grid: Sequence[int]
) -> tuple[dict[str, Array], Fault | None]:
    """The arrays after a launch of a kernel that is prepared, and the fault that it reports."""
    g = gpu()
    made = shader(function, contracts=g.measured.contracts)
    memory = {name: g.uploaded(x, Aval(x.shape, dtype(x.dtype))) for name, x in arrays.items()}
    g.clear_faults()
    if 0 not in grid:
        used = [memory[a.name] for a in function.arrays]
        launch = g.prepared(made, [x.aval.nbytes for x in used], [scalars[s.name] for s in function.scalars], grid)
        g.launch(launch, [x.lease for x in used])
    words = g.faults(SITES)
    fault = None
    if words[0]:
        site = LARGEST_SITE - int(words[0])
        fault = Fault(site, 0xFFFFFFFF - int(words[1 + site]) - (1 << 31))
    return {name: g.read(x) for name, x in memory.items()}, fault


def ran(launch: Launch) -> tuple[Function, dict[str, Array], Fault | None]:
    """The prepared kernel of a launch, its arrays after a launch on the device, and the fault that it reports."""
    function = prepared(launch.function, gpu().measured.capabilities, bounds_of_launch(launch))
    grid = launch.grid if isinstance(launch.grid, tuple) else (launch.grid,)
    return function, *run(function, launch.arrays, launch.scalars, grid)


def check(launch: Launch) -> None:
    """Compare a launch on the device with the interpreter of the same prepared kernel, bit by bit."""
    if not gpu().measured.capabilities.denormals:
        pytest.skip("the driver flushes denormal numbers, which the interpreter does not")
    function, got, fault = ran(launch)
    want = {name: x.copy() for name, x in launch.arrays.items()}
    words = {a.name: want[a.name].reshape(-1).view(dtype(a.dtype).np) for a in function.arrays}
    reported = interpret(function, words, launch.scalars, launch.grid, checked=False)
    text = shader(function, contracts=gpu().measured.contracts).text
    assert fault == reported, text
    for name, x in want.items():
        differ = np.flatnonzero(bits(x.reshape(-1)) != bits(got[name].reshape(-1)))
        assert not differ.size, f"{name}{differ[:5]}: {got[name].reshape(-1)[differ[:5]]}, {x.reshape(-1)[differ[:5]]}\n{text}"
