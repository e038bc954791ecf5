"""How far the scalar IR's functions are from the exact results, and how long an element takes, on this machine's processor.

Functions of one float32 are held against float64 at every ``--stride``-th of the 2³² bit patterns (1: all of them). Functions
of two and of float64 are held against the 80-bit floats of the C library at operands of all magnitudes and at operands near
1, near 0 and near multiples of π/2. Errors are in units of the last place of the exact result. The times are those of one core
over 2¹⁶ operands between 0.1 and 0.9 (1 more for acosh), as ``cpu`` compiles the expression, and of torch.

    PYTHONPATH=src:tests/shared python tests/scalar/measure_accuracy.py --stride 1
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
from native_kernels import run_map, view

from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr, load

Array = np.ndarray[Any, Any]
ONE = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
}  # fmt: skip
TWO = {
    "atan2": np.arctan2, "hypot": np.hypot, "pow": np.power, "remainder": np.remainder, "floor_divide": np.floor_divide,
}  # fmt: skip
BLOCK = 1 << 22


def expression(name: str, dtype: str) -> Expr:
    """The op's expression of operands of one dtype."""
    rule = OPS[name].scalar
    assert rule is not None
    return rule(*(load(i, dtype) for i in range(1 if name in ONE else 2)))


def units(got: Array, want: Array) -> Array:
    """Errors of ``got`` in units of the last place of the wider ``want``; infinite where only one is finite or NaN."""
    dtype = got.dtype
    rounded = want.astype(dtype)
    info = np.finfo(dtype)
    exponent = np.frexp(np.where(np.isfinite(want) & (want != 0), want, 1))[1]
    place = np.ldexp(np.ones((), want.dtype), np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant))
    error = np.abs(got.astype(want.dtype) - want) / place
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    close = np.where(np.isfinite(got) & np.isfinite(rounded), error, np.inf)
    return np.where(same & ~np.isfinite(rounded), 0, close).astype(np.float64)


def patterns(stride: int) -> Iterator[Array]:
    """float32 operands by their bits."""
    for start in range(0, 2**32, BLOCK * stride):
        end = min(2**32, start + BLOCK * stride)
        yield np.arange(start, end, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def samples(dtype: str, count: int, seed: int) -> Array:
    """Operands of all magnitudes and of those where functions change."""
    rng = np.random.default_rng(seed)
    word = np.uint32 if dtype == "float32" else np.uint64
    parts = [rng.integers(0, np.iinfo(word).max, count, dtype=word).view(dtype)]
    parts += [rng.uniform(-1, 1, count), rng.uniform(-30, 30, count), rng.normal(size=count) * 1e-3]
    parts += [1 + rng.normal(size=count) * 1e-3, np.exp(rng.uniform(-40, 40, count))]
    parts += [rng.integers(-(2**20), 2**20, count) * (np.pi / 2) * (1 + rng.normal(size=count) * 1e-15)]
    x = np.concatenate([np.asarray(p, dtype) for p in parts])
    return x[np.isfinite(x)]


def reference(name: str, arrays: list[Array], wide: Any) -> Array:
    """The exact results but for the wider dtype's rounding."""
    out = np.asarray((ONE.get(name) or TWO[name])(*(a.astype(wide) for a in arrays)))
    if name == "floor_divide":
        infinite = np.isinf(arrays[0]) | np.isinf(arrays[1])
        out = np.where(infinite, np.floor(arrays[0].astype(wide) / arrays[1].astype(wide)), out)
    return out


def worst(name: str, dtype: str, stride: int, count: int) -> tuple[float, list[Any]]:
    """The worst error, and the operands that have it."""
    e, target = expression(name, dtype), Target.host()
    found: tuple[float, list[Any]] = (0.0, [])
    if name in ONE and dtype == "float32":
        tried: Any = ([x] for x in patterns(stride))
        wide: Any = np.float64
    else:
        x = samples(dtype, count, 1)
        y = np.random.default_rng(2).permutation(samples(dtype, count, 3))[: len(x)]
        if name in TWO:
            m = min(len(x), len(y))
            near = [x[:m].copy(), y[:m]]
            if name in ("remainder", "floor_divide"):  # quotients of ordinary size too
                factor = np.random.default_rng(4).uniform(-1e4, 1e4, m)[::2].astype(dtype)
                with np.errstate(over="ignore"):
                    near[0][::2] = near[1][::2] * factor
            tried = [near]
        else:
            tried = [[x]]
        wide = np.longdouble
    for arrays in tried:
        got = run_map(e, arrays, arrays[0].shape, dtype, target)
        with np.errstate(all="ignore"):
            want = reference(name, arrays, wide)
            if name in ("remainder", "floor_divide"):  # exact where the wider format holds the quotient
                quotient = np.abs(arrays[0].astype(wide) / arrays[1].astype(wide))
                want = np.where(quotient < 2.0 ** (63 if dtype == "float32" else 60), want, got.astype(wide))
            error = units(got, want)
        at = int(np.argmax(error))
        if error[at] > found[0]:
            found = float(error[at]), [a[at] for a in arrays]
    return found


def timed(name: str, dtype: str) -> list[Array]:
    """Operands whose functions are timed."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.1, 0.9, 1 << 16).astype(dtype) for _ in range(1 if name in ONE else 2)]
    return [a + np.asarray(1, dtype) for a in arrays] if name == "acosh" else arrays


def fastest(call: Callable[[], Any], count: int) -> float:
    """Nanoseconds an element, of 30 calls."""
    times = []
    for _ in range(30):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e9


def nanoseconds(name: str, dtype: str) -> float:
    """Of one core, an element."""
    arrays = timed(name, dtype)
    out, target = np.empty_like(arrays[0]), Target.host()
    kernel = map_kernel("kernel", out.shape, [view(a) for a in arrays], [(expression(name, dtype), view(out))], target)
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    module = compile_ir(module_text([kernel]), target)
    function = module.function(kernel.name, None, pointer, whole, whole, pointer, pointer)
    buffers = (pointer * 3)(*[a.__array_interface__["data"][0] for a in [*arrays, out]])
    memory, status = np.empty(kernel.scratch + 64, np.uint8), whole(0)
    scratch = memory.ctypes.data + -memory.ctypes.data % 64
    return fastest(lambda: function(buffers, 0, kernel.grid, scratch, ctypes.byref(status)), out.size)


def nanoseconds_of_torch(name: str, dtype: str) -> float:
    """The same of torch."""
    import torch

    torch.set_num_threads(1)
    tensors = [torch.from_numpy(a) for a in timed(name, dtype)]
    out = torch.empty_like(tensors[0])
    return fastest(lambda: getattr(torch, name)(*tensors, out=out), out.numel())


@click.command()
@click.option("--stride", default=257, show_default=True, help="Of float32's bit patterns.")
@click.option("--count", default=200_000, show_default=True, help="Sampled operands of each kind.")
@click.argument("names", nargs=-1)
def main(stride: int, count: int, names: tuple[str, ...]) -> None:
    """Print a table of worst errors and times."""
    click.echo("| function | dtype | worst error | at | ns an element | torch |")
    click.echo("|---|---|---|---|---|---|")
    for name in names or (*ONE, *TWO):
        for dtype in ("float32", "float64"):
            error, at = worst(name, dtype, stride, count)
            shown = ", ".join(repr(float(v)) for v in at)
            ours, theirs = nanoseconds(name, dtype), nanoseconds_of_torch(name, dtype)
            click.echo(f"| {name} | {dtype} | {error:.3f} | {shown} | {ours:.2f} | {theirs:.2f} |")


if __name__ == "__main__":
    main()
