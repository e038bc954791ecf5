"""Large tensors: one call of each kind of op on more than 2¹⁶ elements.

The samples of the op table are small, so that the whole product of cases stays quick. Kernels split what is large into blocks,
which is where some go wrong: at a block that is not full, past a limit of 2¹⁶ blocks or lanes, at an axis that one block
does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype, float32, int32
from firebrick.core.hooks import hooks
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.declare import Array
from firebrick.testing.report import Report, Verdict

LONG = 70_001  # more than 2¹⁶, and no multiple of anything that blocks have


def calls(seed: int = 0) -> Iterator[tuple[str, tuple[Array, ...], dict[str, Any]]]:
    """Op, operands and parameters of each call."""
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(-2, 2, LONG).astype(np.float32) for _ in range(2))
    few, many = x[: 7 * 10_000].reshape(7, 10_000), x[: 23_333 * 3].reshape(23_333, 3)
    at = rng.integers(-LONG, LONG, LONG)
    yield "add", (x, y), {}
    yield "multiply", (few, few[:1]), {}
    yield "add", (x.astype(np.int64), at), {}
    yield "exp", (x,), {}
    yield "tanh", (x.astype(np.float64),), {}
    yield "where", (x > 0, x, y), {}
    yield "cast", (x,), {"dtype": int32}
    for axes in ((0,), (1,), (0, 1)):
        yield "sum", (few,), {"axes": axes, "keepdims": False}
        yield "max", (many,), {"axes": axes, "keepdims": False}
    yield "argmax", (x,), {"axis": 0, "keepdims": False}
    yield "cumulative_sum", (few,), {"axis": 1, "reverse": False}
    yield "sort", (x,), {"axis": 0, "descending": False}
    yield "softmax", (few,), {"axis": 1}
    yield "softmax", (many,), {"axis": 1}
    yield "permute", (few,), {"axes": (1, 0)}
    yield "concat", (x, y), {"axis": 0}
    yield "slice", (x,), {"starts": (LONG - 1,), "stops": (0,), "steps": (-2,)}
    yield "pad", (many,), {"widths": ((1, 2), (0, 1)), "value": 3}
    yield "take", (x, at), {"axis": 0}
    yield "gather", (many, rng.integers(-23_333, 23_333, (25_000, 3))), {"axis": 0}
    yield "index_add", (few[:, :50], rng.integers(0, 7, 23_333), np.resize(many, (23_333, 50))), {"axis": 0}
    yield "scatter", (x, rng.permutation(LONG), y), {"axis": 0}
    yield "matmul", (x[: 300 * 229].reshape(300, 229), y[: 229 * 301].reshape(229, 301)), {}
    yield "matmul", (few, few.T[:, :3]), {}
    yield "random_uniform", (np.asarray([1, 2, 3, 4], np.uint32),), {"shape": (LONG,), "offset": 2**32 - 5, "dtype": float32}


def check_large(device: Device, ops: Iterable[str] | None = None, seed: int = 0) -> Report:
    """Hold a device against the reference on large tensors.

    Args:
        device: Device.
        ops: Names of ops; all that have a call here by default.
        seed: Of the values.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.testing.large import check_large
        >>> check_large(fb.device("numpy"), ["add"]).ok
        True
    """
    report = Report(device.name, seed)
    wanted = None if ops is None else set(ops)
    for name, arrays, params in calls(seed):
        if wanted is None or name in wanted:
            report.add(_verdict(device, name, tuple(_stored(device, a) for a in arrays), params))
    return report


def _stored(device: Device, array: Array) -> Array:
    """The array; in float32 if its dtype is a wider float that the device does not have."""
    of = dtype(array.dtype)
    return array if of.kind != "float" or device.backend.supports_dtype(device, of) else array.astype(np.float32)


def _verdict(device: Device, name: str, arrays: tuple[Array, ...], params: dict[str, Any]) -> Verdict:
    op = OPS[name]
    units, message = 0.0, ""
    try:
        result = bind(op, tuple(hooks.from_host(a, device) for a in arrays), params)
        hosts = tuple(t.numpy() for t in (result if isinstance(result, tuple) else (result,)))
        want = run_reference(op, arrays, params)
        found = check_results(op, arrays, params, hosts, want, flushes=device.backend.flushes_denormals(device))
        units = found.units
        if not found.ok:
            message = f"the result is off by {found}"
    except Exception as e:  # noqa: BLE001 - a broken engine may raise anything
        message = f"{type(e).__name__}: {e}"
    shapes = " ".join(str(list(a.shape)) for a in arrays)
    return Verdict(not message, name, str(arrays[0].dtype), f"large {shapes}", "contiguous", "none", units, message)
