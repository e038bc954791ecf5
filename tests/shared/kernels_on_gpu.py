"""Running kernels of kernel IR on the first WebGPU device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from narrow_kernels import bounds_of_launch
from running_kernels import bits
from written_kernels import Launch

import firebrick as fb
from firebrick.backends.contract import STORAGE
from firebrick.backends.webgpu.commands import Gpu
from firebrick.compiler.kernel import Fault, Function, interpret
from firebrick.compiler.spec.faults import LARGEST_SITE
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import Shader, shader
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.ops import OPS
from firebrick.testing.cases import samples_of

Array = np.ndarray[Any, Any]
SITES = 16
Rewrite = Callable[[str], str]
"""What a driver makes of a shader's text before it compiles it."""


def gpu() -> Gpu:
    """The first device."""
    device = fb.device("webgpu:0")
    found: Gpu = device.backend.groups(device).gpu
    return found


def measured(device: fb.Device) -> str:
    """What was measured of a device's driver, as people see it."""
    device.backend.groups(device)
    return str(device.backend.properties(device)["measured"])


def printed(function: Function, arrays: Mapping[str, Array], window: int) -> Shader:
    """The shader of a kernel that is prepared.

    Args:
        function: The kernel.
        arrays: Its arrays.
        window: Bytes of bindings, into which arrays are split, or of larger ones if these were too many; 0 for whole arrays.
    """
    driver = gpu().measured
    while True:
        windows = [max(1, -(-arrays[a.name].nbytes // window)) if window else 1 for a in function.arrays]
        if sum(windows) <= (driver.capabilities.buffers or 7):
            shuffles = driver.capabilities.subgroup_sizes[0]
            return shader(function, contracts=driver.contracts, windows=windows, window=window, subgroup=shuffles)
        window *= 2


def run(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Any], grid: Sequence[int], window: int = 0
) -> tuple[dict[str, Array], Fault | None]:
    """The arrays after a launch of a kernel that is prepared, and the fault that it reports; ``window`` as of ``printed``."""
    g = gpu()
    made = printed(function, arrays, window)
    memory = {name: g.uploaded(x, Aval(x.shape, as_dtype(x.dtype))) for name, x in arrays.items()}
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


def ran(launch: Launch, window: int = 0) -> tuple[Function, dict[str, Array], Fault | None]:
    """The prepared kernel of a launch, its arrays after a launch on the device, and the fault that it reports; ``window`` as of
    ``printed``."""
    function = prepared(launch.function, gpu().measured.capabilities_of(launch.function), bounds_of_launch(launch))
    grid = launch.grid if isinstance(launch.grid, tuple) else (launch.grid,)
    return function, *run(function, launch.arrays, launch.scalars, grid, window)


def check(launch: Launch, window: int = 0) -> str:
    """Compare a launch on the device with the interpreter of the same prepared kernel, bit by bit; the shader's text.

    Args:
        launch: The launch.
        window: As of ``printed``.
    """
    if not gpu().measured.capabilities.denormals:
        pytest.skip("the driver flushes denormal numbers, which the interpreter does not")
    function, got, fault = ran(launch, window)
    want = {name: x.copy() for name, x in launch.arrays.items()}
    words = {a.name: want[a.name].reshape(-1).view(as_dtype(a.dtype).np) for a in function.arrays}
    reported = interpret(function, words, launch.scalars, launch.grid, checked=False)
    text = printed(function, launch.arrays, window).text
    assert fault == reported, text
    for name, x in want.items():
        differ = np.flatnonzero(bits(x.reshape(-1)) != bits(got[name].reshape(-1)))
        assert not differ.size, f"{name}{differ[:5]}: {got[name].reshape(-1)[differ[:5]]}, {x.reshape(-1)[differ[:5]]}\n{text}"
    return text


def in_kernels(name: str, dtype: str) -> bool:
    """Whether an op of operands with elements runs on the device alone."""
    device, op = fb.device("webgpu:0"), OPS[name]
    for sample in samples_of(op, dtype, 0):
        arrays = [np.asarray(x) for x in sample.inputs]
        stored = all(STORAGE in device.backend.dtype_usage(device, fb.dtype(x.dtype)) for x in arrays)
        if stored and all(x.size and x.ndim > 1 for x in arrays[:1]) and all(x.size and x.dtype.itemsize > 1 for x in arrays):
            with fb.config.scope(fallback="error"):
                try:
                    bind(op, tuple(fb.asarray(x, device=device) for x in arrays), sample.params)
                except fb.UnsupportedError:
                    return False
            return True
    return True
