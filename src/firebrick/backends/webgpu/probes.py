"""What an adapter's driver really does: measured when its device is opened, never believed.

Small shaders compute hard cases, whose results are compared with NumPy's, bit by bit. From the comparison follow the
capabilities by which kernels are legalized, and facts for people. An adapter whose driver computes wrongly what every kernel
relies on is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import Function, expressions, statements
from firebrick.compiler.targets.wgsl.operations import OPERATIONS, UNKNOWN_ZERO, fenced, float64_of
from firebrick.compiler.targets.wgsl.subgroups import PARAMETERS, TOGETHER, WIDTHS, source, test
from firebrick.core.errors import DeviceError, KernelCompileError
from firebrick.scalar.capabilities import CONSERVATIVE_GPU, Capabilities
from firebrick.scalar.expr import local, walk
from firebrick.scalar.interpret import fused

Array = np.ndarray[Any, Any]
Run = Callable[[str, Sequence[Array], int], Array]
"""(WGSL, read-only arrays, words of the result) → the result, uint32."""

FLOAT64 = frozenset({"shader-f64", "shader-int64"})
"""wgpu's names of the features by which shaders compute in float64, whose bits are a 64-bit integer."""
POINTS = 2048
"""Number of random points of each arithmetic operation."""
_CORRECTED = ("division", "square root", "fma", "products in sums")
"""Operations that are rewritten for drivers that compute them inexactly."""
EXACT, NOT_OFFERED = "converted exactly", "not offered"
"""Of float16: memory of it may be used, or there is none."""
MISSING, WRONG = 0, -1
"""In place of the number of items among which shuffles by subgroup operations are right."""
_SHUFFLES = {MISSING: NOT_OFFERED, WRONG: "other items' values, and not used"}
LONGEST = 1 << 20
"""Iterations of a loop that are tried; longer loops are taken apart on every adapter, since systems end long launches."""


@dataclass(frozen=True)
class Measured:
    """The result of the probes.

    Attributes:
        capabilities: What kernels may use that do not compute in float64.
        contracts: Whether a product and a sum are rounded once.
        facts: What the driver does, for people: name and value.
        processor: Whether it computes on the processor, by what the adapter says: of influence on speed alone.
        quads: Whether buffers have room for whole quads of elements, so that an item may compute four.
        float64: What kernels may use that compute in float64; None if the device has none that is IEEE 754's.
    """

    capabilities: Capabilities
    contracts: bool
    facts: dict[str, str]
    processor: bool = False
    quads: bool = True
    float64: Capabilities | None = None

    def capabilities_of(self, function: Function) -> Capabilities:
        """What a kernel may use."""
        return self.float64 if self.float64 is not None and computes_in_float64(function) else self.capabilities


def computes_in_float64(function: Function) -> bool:
    """Whether a kernel has arrays, scalars or expressions of float64."""
    if any(x.dtype == "float64" for x in (*function.memory, *function.scalars)):
        return True
    return any(e.dtype == "float64" for s in statements(function.body) for e in walk(expressions(s)))


def measured(run: Run, limits: dict[str, int], features: Collection[str], name: str) -> Measured:
    """Run all probes.

    Args:
        run: Runs a shader on the device.
        limits: The adapter's limits, by wgpu's names.
        features: Its features.
        name: The adapter's name, for errors.

    Raises:
        DeviceError: The driver computes something wrongly that every kernel relies on.
    """
    return assembled({"arithmetic": arithmetic(run, name), "optional": optional(run, features), **quick(run)}, limits)


def quick(run: Run) -> dict[str, Any]:
    """The findings that take milliseconds: the longest loop, and habits."""
    return {"longest loop": _longest_loop(run), "habits": _habits(run) | {"denormals": _denormals(run)}}


def assembled(findings: dict[str, Any], limits: dict[str, int]) -> Measured:
    """What follows from findings.

    Args:
        findings: What the probes found: ``arithmetic``, ``optional``, ``longest loop`` and ``habits``.
        limits: The adapter's limits, by wgpu's names.
    """
    exact, loops, habits = dict(findings["arithmetic"]), findings["longest loop"], dict(findings["habits"])
    denormals = habits.pop("denormals") == "kept"
    halves, width = findings["optional"]["float16"], findings["optional"]["subgroups"]
    capabilities = replace(
        CONSERVATIVE_GPU,
        exact_division=exact["division"], exact_sqrt=exact["square root"], denormals=denormals,
        exact_fma=exact["fma"], loop_iterations=loops, float16=halves == EXACT, subgroup_sizes=(max(width, 1),) * 2,
        group_items=limits["max-compute-invocations-per-workgroup"],
        shared_bytes=limits["max-compute-workgroup-storage-size"],
        offset_alignment=limits["min-storage-buffer-offset-alignment"],
        binding_bytes=limits["max-storage-buffer-binding-size"], buffer_bytes=limits["max-buffer-size"],
        buffers=limits["max-storage-buffers-per-shader-stage"] - 1,  # one is the table of faults
    )  # fmt: skip
    contracts, wide, exact64 = not exact.pop("products in sums"), None, findings["optional"]["float64"]
    if exact64 is not None and exact64["all others"]:
        contracts = contracts or not exact64["products in sums"]
        wide = replace(
            capabilities, float64=True, exact_division=exact["division"] and exact64["division"],
            exact_sqrt=exact["square root"] and exact64["square root"], exact_fma=exact["fma"] and exact64["fma"],
        )  # fmt: skip
    facts = {key: ("exact" if ok else "inexact") for key, ok in exact.items()}
    facts["products in sums"] = "rounded with the sum" if contracts else "rounded"
    facts["denormals"] = "kept" if denormals else "flushed to zero or to the smallest normal number"
    facts["float64"] = "none" if exact64 is None else "inexact, and not used" if wide is None else "exact"
    facts |= habits
    facts["float16"] = halves
    facts["shuffles"] = _SHUFFLES.get(width, f"among {width} items")
    facts["longest loop"] = f"{loops:,} iterations" + (" or more" if loops == LONGEST else ", then it ends without an error")
    return Measured(capabilities, contracts, facts, float64=wide)


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


def _source64(count: int, lines: Sequence[str]) -> str:
    """A shader with an invocation for each point, x, y and z, float64, that stores results of two words."""
    numbers = [
        f"let {name} = {float64_of(*(f'points[2u * i + {2 * k * count + w}u]' for w in (0, 1)))};"
        for k, name in enumerate("xyz")
    ]
    stored = [
        f"    v = bitcast<u64>({line}); r[{2 * k * count}u + at] = u32(v); r[{2 * k * count + 1}u + at] = u32(v >> 32u);"
        for k, line in enumerate(lines)
    ]
    return "\n".join(
        [
            "@group(0) @binding(0) var<storage, read> points: array<u32>;",
            "@group(0) @binding(1) var<storage, read> zeros: array<u32>;",
            "@group(0) @binding(2) var<storage, read_write> r: array<u32>;",
            "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {",
            f"    let i = id.x; if (i >= {count}u) {{ return; }}",
            f"    let zero = zeros[0]; {' '.join(numbers)}",
            "    let at = 2u * i; var v: u64;",
            *stored,
            "}",
        ]
    )


def _bits(text: str) -> str:
    return f"bitcast<u32>({text})"


def _points(dtype: str) -> Array:
    """Three rows of floats: of ordinary size, of any size, and hard ones."""
    rng = np.random.default_rng(0)
    plain = rng.uniform(-4, 4, (3, POINTS // 2))
    any_size = np.ldexp(rng.uniform(1, 2, (3, POINTS // 2)), rng.integers(-60, 60, (3, POINTS // 2)))
    hard = np.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 8388607.5, 8388609.0, 3e9, -3e9, np.inf, -np.inf, np.nan])
    rows = [np.concatenate([plain[k], any_size[k], np.roll(hard, k)]) for k in range(3)]
    if dtype == "float64":  # whole numbers and halves at the limits, what rounds to float32 as ties do, denormal numbers
        ties = np.ldexp(rng.integers(1 << 23, 1 << 24, 64) + 0.5, rng.integers(-60, 60, 64))
        more = np.array([2.0**52 - 0.5, 2.0**52 + 1, 1e300, 5e-324, -5e-324, 2.0**-1022, 2.0**-1022 - 5e-324, 2.0**-1021])
        rows = [np.concatenate([row, ties, np.roll(more, k)]) for k, row in enumerate(rows)]
    return np.array(rows, dtype)


def _same(found: Array, want: Array) -> Array:
    """Where words are the bits of floats; every NaN is equal to every other."""
    dtype, bits = (np.float64, np.uint64) if np.asarray(want).dtype == np.float64 else (np.float32, np.uint32)
    found, want = found.view(dtype), np.asarray(want, dtype)
    same: Array = (found.view(bits) == want.view(bits)) | (np.isnan(found) & np.isnan(want))
    return same


def _arithmetic(run: Run, dtype: str) -> tuple[Array, dict[str, Array]]:
    """Points, and for each operation where its results are those of IEEE 754."""
    p = _points(dtype)
    x, y, z = p
    total = fenced("x + y", dtype)
    back = fenced(f"{total} - x", dtype)
    from_x, from_y = fenced(f"x - {fenced(f'{total} - {back}', dtype)}", dtype), fenced(f"y - {back}", dtype)
    with np.errstate(all="ignore"):
        s = x + y
        t = s - x
        tested = {
            "sums": ("x + y", s), "differences": ("x - y", x - y), "products": ("x * y", x * y),
            "errors of sums": (fenced(f"{from_x} + {from_y}", dtype), (x - (s - t)) + (y - t)),
            "floor": ("floor(x)", np.floor(x)), "ceil": ("ceil(x)", np.ceil(x)), "trunc": ("trunc(x)", np.trunc(x)),
            "round": ("round(x)", np.rint(x)), "division": ("x / y", x / y),
            "square root": ("sqrt(abs(x))", np.sqrt(np.abs(x))), "fma": ("fma(x, y, z)", fused(x, y, z)),
            "products in sums": ("x * y + z", x * y + z),
        }  # fmt: skip
        if dtype == "float64":
            inside = np.abs(x) < 2.0**31
            whole = np.where(inside, x, 0.0).astype(np.int32)
            guarded = "select(0.0lf, x, abs(x) < 2147483648.0lf)"
            tested |= {
                "casts to float32": ("f64(f32(x))", x.astype(np.float32).astype(dtype)),
                "casts to int32": (f"f64(i32({guarded}) | i32({UNKNOWN_ZERO}))", whole.astype(dtype)),
                "casts to uint32": (f"f64(u32(abs({guarded})) | {UNKNOWN_ZERO})", np.abs(whole).astype(dtype)),
                "comparisons": ("select(y, x, x < y)", np.where(x < y, x, y)),
                "signs": (OPERATIONS["neg"](-local("x", dtype), ["x"]), -x),
            }  # fmt: skip
    lines = [text for text, _ in tested.values()]
    count, each = p.shape[1], p.itemsize // 4
    source = _source(count, [_bits(text) for text in lines], len(lines)) if each == 1 else _source64(count, lines)
    words = run(source, [p, np.zeros(4, np.uint32)], len(lines) * count * each).reshape(len(lines), -1)
    return p, {what: _same(found, want) for found, (what, (_, want)) in zip(words, tested.items(), strict=True)}


def arithmetic(run: Run, name: str) -> dict[str, bool]:
    """Which operations of float32 are exact.

    Args:
        run: Runs a shader on the device.
        name: The adapter's name, for errors.

    Raises:
        DeviceError: The driver computes something wrongly that every kernel relies on.
    """
    (x, y, _), same = _arithmetic(run, "float32")
    for what, ok in same.items():
        if what not in _CORRECTED and not ok.all():
            k = int(np.flatnonzero(~ok)[0])
            raise DeviceError(
                f"{name} computes {what} of float32 as IEEE 754 does", f"other bits for x = {x[k]!r}, y = {y[k]!r}",
                "use another driver or another device; fb.devices() lists them",
            )  # fmt: skip
    return {what: bool(same[what].all()) for what in _CORRECTED}


def arithmetic64(run: Run) -> dict[str, bool]:
    """Which operations of float64 are exact, and whether ``"all others"`` are, which every kernel in float64 relies on.

    Args:
        run: Runs a shader on the device.
    """
    _, same = _arithmetic(run, "float64")
    others = all(ok.all() for what, ok in same.items() if what not in _CORRECTED)
    return {"all others": others} | {what: bool(same[what].all()) for what in _CORRECTED}


def optional(run: Run, features: Collection[str]) -> dict[str, Any]:
    """What the driver does with optional features: how float16 is converted, which operations of float64 are exact, and among
    how many items of a subgroup shuffles are right. A feature whose shaders it does not compile is not used.

    Args:
        run: Runs a shader on the device.
        features: The adapter's features.
    """
    halves, float64, width = NOT_OFFERED, None, MISSING
    if "shader-f16" in features:
        try:
            halves = _halves(run)
        except KernelCompileError:
            halves = "not compiled, and not used"
    if FLOAT64.issubset(features):
        try:
            float64 = arithmetic64(run)
        except KernelCompileError:
            float64 = None
    if "subgroup" in features:
        try:
            width = _shuffles(run)
        except KernelCompileError:
            width = WRONG
    return {"float16": halves, "float64": float64, "subgroups": width}


def _half_shader(given: str, found: str, lines: Sequence[str]) -> str:
    """A shader with float16 that computes array ``r`` from array ``x``."""
    return "\n".join(
        [
            "enable f16;",
            f"@group(0) @binding(0) var<storage, read> x: array<{given}>;",
            f"@group(0) @binding(1) var<storage, read_write> r: array<{found}>;",
            "var<workgroup> tile: array<f16, 64>;",
            "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>,",
            "        @builtin(local_invocation_index) own: u32) {",
            *lines,
            "}",
        ]
    )


def _halves(run: Run) -> str:
    """How float16 is converted: every number to float32, from a buffer and from workgroup memory; and back from the numbers at
    which the result of rounding changes, and from those next to them: rounding is monotonic."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    lines = [
        "    let h = x[id.x & 0xffffu]; tile[own] = h; workgroupBarrier(); let other = tile[own ^ 1u];",
        "    r[id.x] = select(bitcast<u32>(f32(h)), bitcast<u32>(f32(other)), id.x > 0xffffu);",
    ]
    wide = every.astype(np.float32)
    words = run(_half_shader("f16", "u32", lines), [every], 1 << 17)
    if not _same(words, np.concatenate([wide, wide[np.arange(1 << 16) ^ 1]])).all():
        return "converted to other numbers, and not used"
    finite = np.sort(wide[np.isfinite(wide)]).astype(np.float64)
    middle = np.append((finite[1:] + finite[:-1]) / 2, [65520.0, -65520.0, 1e30, -1e30]).astype(np.float32)
    near = [np.nextafter(middle, np.float32(end)) for end in (np.inf, -np.inf)]
    points = np.concatenate([middle, *near, wide])
    points = np.append(points, np.zeros(-len(points) % 128, np.float32))
    half = len(points) // 2  # the results of two points are a word
    lines = [f"    if (id.x < {half}u) {{ r[id.x] = f16(x[id.x]); r[id.x + {half}u] = f16(x[id.x + {half}u]); }}"]
    words = run(_half_shader("f32", "f16", lines), [points], half)
    with np.errstate(over="ignore"):
        same = _same(words.view(np.float16).astype(np.float32), points.astype(np.float16))
    return EXACT if same.all() else "rounded to other numbers, and not used"


def _shuffles(run: Run) -> int:
    """Among how many items of a subgroup shuffles are right, by the test that kernels make, and with all bits of vectors."""
    for width in WIDTHS:
        vector = ", ".join(f"bitcast<f32>((own * 2654435761u) ^ {k}u)" for k in range(TOGETHER))
        text = [
            "@group(0) @binding(0) var<storage, read> unused: array<u32>;",
            "@group(0) @binding(1) var<storage, read_write> r: array<u32>;",
            f"@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) own: u32{PARAMETERS}) {{",
            *test(width),
            f"    var bits = vec4<u32>(); let given = vec4<f32>({vector});",
            f"    for (var s = 0u; s < {width}u; s++) {{",
            f"        let moved = bitcast<vec4<u32>>(subgroupShuffle(given, {source(width, 's')}));",
            f"        let from_item = ((own & ~{width - 1}u) | s) * 2654435761u;",
            "        bits |= moved ^ vec4<u32>(from_item, from_item ^ 1u, from_item ^ 2u, from_item ^ 3u);",
            "    }",
            "    r[own] = select(0u, 1u + unused[0], together & all(bits == vec4<u32>())) + (subgroup << 8u);",
            "}",
        ]  # fmt: skip
        words = run("\n".join(text), [np.zeros(4, np.uint32)], 64)
        if (words & 0xFF == 1).all():
            return width
    return WRONG if (words >> 8).min() >= WIDTHS[-1] else MISSING


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
