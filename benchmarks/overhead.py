"""What a call costs apart from the work: importing, eager operations, calls of compiled functions. In this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import firebrick as fb
from benchmarks.measure import Result, import_times, interleaved
from benchmarks.steps import call_overhead, leaf_overhead


def _peers() -> dict[str, Any]:
    found = {"numpy": np}
    for name in ("torch", "jax"):
        try:
            found[name] = __import__(name)
        except ImportError:
            print(f"{name} is not installed: left out")
    if "jax" in found:
        import jax.numpy

        found["jax"] = jax.numpy
    return found


def eager_add(n: int, calls: int) -> Result:
    """``add`` of two float32 tensors of ``n`` elements."""
    host = np.ones(n, np.float32)
    contenders: dict[str, Callable[[], Any]] = {}
    for device in ("cpu", "torch:cpu"):
        try:
            x, y = fb.asarray(host, device=device), fb.asarray(host, device=device)
        except fb.DeviceError as e:
            print(f"{device} is left out: {e}")
            continue
        contenders[f"firebrick {device}"] = lambda x=x, y=y: fb.add(x, y)
    for name, peer in _peers().items():
        convert = peer.from_numpy if name == "torch" else peer.asarray
        a, b = convert(host.copy()), convert(host.copy())
        add = peer.add
        if name == "jax":
            contenders[name] = lambda a=a, b=b, add=add: add(a, b).block_until_ready()
        else:
            contenders[name] = lambda a=a, b=b, add=add: add(a, b)
    target = "firebrick cpu ≤ 2.5 µs" if n == 10 else ""
    return interleaved(f"eager add, float32 [{n}]", contenders, calls, target=target)


def general_path() -> Result:
    """What bind's general path costs: a broadcast add, and a recorded one."""
    x, row = fb.ones((10, 1)), fb.ones(10)
    tracked = fb.ones(10).require_grad()
    a, b = np.ones((10, 1), np.float32), np.ones(10, np.float32)
    return interleaved(
        "eager add, general path",
        {
            "firebrick broadcast": lambda: fb.add(x, row),
            "firebrick recorded": lambda: fb.add(tracked, row),
            "numpy": lambda: np.add(a, b),
        },
        20_000,
    )


OVERHEAD: dict[str, Callable[[], Result]] = {
    "overhead/import": lambda: import_times(["firebrick", "firebrick.namespace", "numpy"]),
    "overhead/add 10": lambda: eager_add(10, 20_000),
    "overhead/add 1000000": lambda: eager_add(1_000_000, 50),
    "overhead/general path": general_path,
    "overhead/jit call": call_overhead,
    "overhead/jit leaf": leaf_overhead,
}
"""What is measured, by name."""
