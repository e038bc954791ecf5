"""What an adapter's driver really does: measured when its device is opened, never believed.

Small shaders compute hard cases, whose results are compared with NumPy's, bit by bit. From the comparison follow the
capabilities by which kernels are legalized, and facts for people. An adapter whose driver computes wrongly what every kernel
relies on is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firebrick.compiler.targets.wgsl.operations import fenced
from firebrick.core.errors import DeviceError
from firebrick.scalar.capabilities import CONSERVATIVE_GPU, Capabilities
from firebrick.scalar.interpret import fused

Array = np.ndarray[Any, Any]
Run = Callable[[str, Sequence[Array], int], Array]
"""(WGSL, read-only arrays, words of the result) → the result, uint32."""

POINTS = 2048
"""Number of random points of each arithmetic operation."""
LONGEST = 1 << 20
"""Iterations of a loop that are tried; longer loops are taken apart on every adapter, since systems end long launches."""


@dataclass(frozen=True)
class Measured:
    """The result of the probes.

    Attributes:
        capabilities: What kernels may use.
        contracts: Whether a product and a sum are rounded once.
        facts: What the driver does, for people: name and value.
        processor: Whether it computes on the processor, by what the adapter says: of influence on speed alone.
        quads: Whether buffers have room for whole quads of elements, so that an item may compute four.
    """

    capabilities: Capabilities
    contracts: bool
    facts: dict[str, str]
    processor: bool = False
    quads: bool = True


def measured(run: Run, limits: dict[str, int], name: str) -> Measured:
    """Run all probes.

    Args:
        run: Runs a shader on the device.
        limits: The adapter's limits, by wgpu's names.
        name: The adapter's name, for errors.

    Raises:
        DeviceError: The driver computes something wrongly that every kernel relies on.
    """
    return assembled({"arithmetic": arithmetic(run, name), **quick(run)}, limits)


def quick(run: Run) -> dict[str, Any]:
    """The findings that take milliseconds: the longest loop, and habits."""
    return {"longest loop": _longest_loop(run), "habits": _habits(run) | {"denormals": _denormals(run)}}


def assembled(findings: dict[str, Any], limits: dict[str, int]) -> Measured:
    """What follows from findings.

    Args:
        findings: What the probes found: ``arithmetic``, ``longest loop`` and ``habits``.
        limits: The adapter's limits, by wgpu's names.
    """
    exact, loops, habits = dict(findings["arithmetic"]), findings["longest loop"], dict(findings["habits"])
    denormals = habits.pop("denormals") == "kept"
    capabilities = replace(
        CONSERVATIVE_GPU,
        exact_division=exact["division"], exact_sqrt=exact["square root"], denormals=denormals,
        exact_fma=exact["fma"], loop_iterations=loops,
        group_items=limits["max-compute-invocations-per-workgroup"],
        shared_bytes=limits["max-compute-workgroup-storage-size"],
        offset_alignment=limits["min-storage-buffer-offset-alignment"],
        binding_bytes=limits["max-storage-buffer-binding-size"], buffer_bytes=limits["max-buffer-size"],
        buffers=limits["max-storage-buffers-per-shader-stage"] - 1,  # one is the table of faults
    )  # fmt: skip
    contracts = not exact.pop("products in sums")
    facts = {key: ("exact" if ok else "inexact") for key, ok in exact.items()}
    facts["products in sums"] = "rounded with the sum" if contracts else "rounded"
    facts["denormals"] = "kept" if denormals else "flushed to zero or to the smallest normal number"
    facts |= habits
    facts["longest loop"] = f"{loops:,} iterations" + (" or more" if loops == LONGEST else ", then it ends without an error")
    return Measured(capabilities, contracts, facts)


# shaders


def _source(count: int, lines: Sequence[str], results: int) -> str:
    """A shader with an invocation for each point, x, y and z, that stores words r[0], r[1], …"""
    return "\n".join(
        [
            "@group(0) @binding(0) var<storage, read> points: array<f32>;",
            "@group(0) @binding(1) var<storage, read> zeros: array<u32>;",
            "@group(0) @binding(2) var<storage, read_write> r: array<u32>;",
            "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {",
            f"    let i = id.x; if (i >= {count}u) {{ return; }}",
            f"    let zero = zeros[0]; let x = points[i]; let y = points[{count}u + i]; let z = points[{2 * count}u + i];",
            *(f"    r[{k * count}u + i] = {line};" for k, line in enumerate(lines[:results])),
            "}",
        ]
    )


def _bits(text: str) -> str:
    return f"bitcast<u32>({text})"


def _points() -> Array:
    """Three rows of floats: of ordinary size, of any size, and hard ones."""
    rng = np.random.default_rng(0)
    plain = rng.uniform(-4, 4, (3, POINTS // 2))
    any_size = np.ldexp(rng.uniform(1, 2, (3, POINTS // 2)), rng.integers(-60, 60, (3, POINTS // 2)))
    hard = np.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5, 8388609.0, 3e9, -3e9, np.inf, -np.inf, np.nan])
    rows = [np.concatenate([plain[k], any_size[k], np.roll(hard, k)]) for k in range(3)]
    return np.array(rows, np.float32)


def _same(found: Array, want: Array) -> Array:
    """Where words are the bits of floats; every NaN is equal to every other."""
    found, want = found.view(np.float32), np.asarray(want, np.float32)
    same: Array = (found.view(np.uint32) == want.view(np.uint32)) | (np.isnan(found) & np.isnan(want))
    return same


def arithmetic(run: Run, name: str) -> dict[str, bool]:
    """Which operations are exact.

    Args:
        run: Runs a shader on the device.
        name: The adapter's name, for errors.

    Raises:
        DeviceError: The driver computes something wrongly that every kernel relies on.
    """
    p = _points()
    count = p.shape[1]
    x, y, z = p
    total = fenced("x + y")
    back = fenced(f"{total} - x")
    from_x, from_y = fenced(f"x - {fenced(f'{total} - {back}')}"), fenced(f"y - {back}")
    lost = fenced(f"{from_x} + {from_y}")
    lines = [
        _bits("x + y"), _bits("x - y"), _bits("x * y"), _bits(lost), _bits("floor(x)"), _bits("ceil(x)"), _bits("trunc(x)"),
        _bits("round(x)"), _bits("x / y"), _bits("sqrt(abs(x))"), _bits("fma(x, y, z)"), _bits("x * y + z"),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        s = x + y
        t = s - x
        wanted = [
            s, x - y, x * y, (x - (s - t)) + (y - t), np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), x / y,
            np.sqrt(np.abs(x)), fused(x, y, z), x * y + z,
        ]  # fmt: skip
    words = run(_source(count, lines, len(lines)), [p, np.zeros(4, np.uint32)], len(lines) * count).reshape(-1, count)
    same = [_same(found, want) for found, want in zip(words, wanted, strict=True)]
    needed = ("sums", "differences", "products", "errors of sums", "floor", "ceil", "trunc", "round")
    for what, ok in zip(needed, same, strict=False):
        if not ok.all():
            k = int(np.flatnonzero(~ok)[0])
            raise DeviceError(
                f"{name} computes {what} of float32 as IEEE 754 does", f"other bits for x = {x[k]!r}, y = {y[k]!r}",
                "use another driver or another device; fb.devices() lists them",
            )  # fmt: skip
    return {
        "division": bool(same[8].all()), "square root": bool(same[9].all()), "fma": bool(same[10].all()),
        "products in sums": bool(same[11].all()),
    }  # fmt: skip


def _denormals(run: Run) -> str:
    """What becomes of denormal operands and results."""
    tiny = np.float32(1.1754944e-38)
    p = np.array([[tiny, tiny / 4, tiny / 2, 1e-40], [0.5, 8.0, tiny / 2, 1.0], [0, 0, 0, 0]], np.float32)
    lines = [_bits("x * y"), _bits("x + y"), "select(0u, 1u, x > 0.0)"]
    words = run(_source(4, lines, 3), [p, np.zeros(4, np.uint32)], 12).reshape(3, 4)
    x, y, _ = p
    kept = _same(words[0], x * y).all() and _same(words[1], x + y).all() and words[2].all()
    return "kept" if kept else "flushed to zero"


def _longest_loop(run: Run) -> int:
    """Iterations of a loop that are executed."""
    source = "\n".join(
        [
            "@group(0) @binding(0) var<storage, read> points: array<u32>;",
            "@group(0) @binding(1) var<storage, read> zeros: array<u32>;",
            "@group(0) @binding(2) var<storage, read_write> r: array<u32>;",
            "@compute @workgroup_size(1) fn main() {",
            "    var total = 0u; let end = points[0];",
            "    for (var i = 0u; i < end; i++) { total += 1u + zeros[i & 3u]; }",
            "    r[0] = total;",
            "}",
        ]
    )
    found = run(source, [np.array([LONGEST, 0, 0, 0], np.uint32), np.zeros(4, np.uint32)], 4)
    return min(int(found[0]), LONGEST)


def _habits(run: Run) -> dict[str, str]:
    """What the driver does where the standard leaves it the choice: kernels do not depend on it."""
    p = np.array([[1.0, np.nan, 1e8, 3.0], [1e-8, 1.0, 1.0, np.nan], [1e8, 0, 0, 0]], np.float32)
    lines = [_bits("(x + y) - x"), "select(0u, 1u, x != y)", _bits("x * 0.0"), _bits("min(x, y)")]
    words = run(_source(4, lines, 4), [p, np.zeros(4, np.uint32)], 16).reshape(4, 4)
    x, y, _ = p
    with np.errstate(all="ignore"):
        cancels = not _same(words[0], (x + y) - x).all()
        zero = not _same(words[2], x * np.float32(0)).all()
    return {
        "sums": "terms are cancelled" if cancels else "as written",
        "x != y with NaN": "true" if words[1][[1, 3]].all() else "false",
        "NaN * 0": "0" if zero else "NaN",
        "min with NaN": "NaN" if np.isnan(words[3].view(np.float32)[[1, 3]]).all() else "a number",
    }
