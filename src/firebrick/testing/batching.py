"""``vmap`` of every op held against the op itself, example by example: all operands that may differ between examples do, in
every combination.

The examples of a case are the samples of several seeds that have the same shapes; what the op's reference gives for each of
them is what ``vmap`` must give in its row, within the op's tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np

from firebrick.autodiff import vmap
from firebrick.backends.registry import find_device
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.op import Op, Sample
from firebrick.graph import jit
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.declare import Array
from firebrick.testing.cases import MODES, chosen, samples_of, storable
from firebrick.testing.report import Report, Verdict

SUBSETS = ("thin", "full")
_EXAMPLES = 3

Mask = tuple[bool, ...]
Row = tuple[str, int, Sample]


def masks(count: int) -> list[Mask]:
    """Which of ``count`` operands differ between examples: every choice of some; of many operands all or one."""
    found = [m for m in product((True, False), repeat=count) if any(m)]
    return found if count <= 3 else [m for m in found if sum(m) in (1, count)]


def _examples(op: Op, dtype: str, number: int, seed: int) -> list[tuple[Array, ...]] | None:
    """The operands of sample ``number`` for several seeds; None if their shapes depend on it."""
    found = [samples_of(op, dtype, seed + i)[number].inputs for i in range(_EXAMPLES)]
    same = all(a.shape == b.shape and a.dtype == b.dtype for row in found for a, b in zip(row, found[0], strict=True))
    return found if same else None


def _rows(op: Op, device: Device, subset: str, seed: int) -> Iterator[tuple[str, int, Sample, Mask]]:
    rows = [
        (dtype, number, sample)
        for dtype in op.dtypes
        for number, sample in enumerate(samples_of(op, dtype, seed))
        if storable(device, op, sample)
    ]
    if subset == "full":
        yield from ((*row, mask) for row in rows for mask in masks(len(row[2].inputs)))
        return
    seen: dict[int, set[Mask]] = {}
    for turn, row in enumerate(_one_dtype_each(rows)):
        options = masks(len(row[2].inputs))
        mask = options[turn % len(options)]
        seen.setdefault(len(row[2].inputs), set()).add(mask)
        yield (*row, mask)
    for count, known in seen.items():  # combinations that had no turn
        first = next(row for row in rows if len(row[2].inputs) == count)
        yield from ((*first, mask) for mask in masks(count) if mask not in known)


def _one_dtype_each(rows: list[Row]) -> list[Row]:
    """Every sample in one dtype that has it; the dtypes take turns."""
    having: dict[str, list[Row]] = {}
    for row in rows:
        having.setdefault(row[2].name, []).append(row)
    return [same[turn % len(same)] for turn, same in enumerate(having.values())]


def _check(op: Op, device: Device, examples: list[tuple[Array, ...]], sample: Sample, mask: Mask, mode: str) -> float:
    """The worst deviation of any example; raises if one is off."""
    columns = list(zip(*examples, strict=True))
    operands = [hooks.from_host(np.stack(c) if differs else c[0], device) for c, differs in zip(columns, mask, strict=True)]
    mapped = vmap(lambda *xs: op(*xs, **sample.params), in_axes=tuple(0 if differs else None for differs in mask))
    run: Callable[..., Any] = jit(mapped) if mode == "jit" else mapped
    found = run(*operands)
    results = found if isinstance(found, tuple) else (found,)
    worst = 0.0
    for i in range(len(examples)):
        arrays = tuple(c[i if differs else 0] for c, differs in zip(columns, mask, strict=True))
        want = run_reference(op, arrays, sample.params)
        got = tuple(t.numpy()[i] for t in results)
        deviation = check_results(op, arrays, sample.params, got, want, flushes=device.backend.flushes_denormals(device))
        if not deviation.ok:
            raise AssertionError(f"example {i} is off by {deviation}")
        worst = max(worst, deviation.units)
    return worst


def check_batching(
    device: Any, ops: Iterable[str] | None = None, subset: str = "thin", seed: int = 0, modes: Iterable[str] = ("eager",),
    loops: bool = True,
) -> Report:  # fmt: skip
    """Compare ``vmap`` of ops with the ops themselves, on a device.

    Args:
        device: Device or device string.
        ops: Names of ops; all by default.
        subset: ``"thin"`` (each sample in one dtype, and each combination of operands that differ between examples once) or
            ``"full"`` (the whole product).
        seed: Of the samples.
        modes: ``"eager"``, ``"jit"`` or both.
        loops: Whether ops may run in a loop over the examples.

    Returns:
        Counts, worst deviations by op, and the failures with their names.

    Raises:
        ConfigError: There is no such subset or mode.

    Example:
        >>> from firebrick.testing import check_batching
        >>> check_batching("numpy", ops=["add", "matmul"]).ok
        True
    """
    modes = tuple(modes)
    if subset not in SUBSETS or not set(modes) <= set(MODES):
        raise ConfigError(
            f"subset is one of {', '.join(SUBSETS)}, and modes are {' and '.join(MODES)}",
            f"{subset!r}, {modes}", "use one of these",
        )  # fmt: skip
    home = find_device(device)
    report = Report(home.name, seed)
    for op in chosen(ops):
        for dtype, number, sample, mask in _rows(op, home, subset, seed):
            examples = _examples(op, dtype, number, seed)
            if examples is None:
                continue
            for mode in modes:
                name = f"{sample.name} for examples of {', '.join(str(i) for i, m in enumerate(mask) if m)}"
                with config.scope(fallback="silent" if loops else "error"):
                    report.add(_verdict(op, home, dtype, name, examples, sample, mask, mode))
    return report


def _verdict(
    op: Op, home: Device, dtype: str, name: str, examples: list[tuple[Array, ...]], sample: Sample, mask: Mask, mode: str
) -> Verdict:
    units, message = 0.0, ""
    try:
        units = _check(op, home, examples, sample, mask, mode)
    except Exception as e:  # noqa: BLE001 - an engine may raise anything, and the verdict says what
        message = f"{type(e).__name__}: {e}"
    return Verdict(not message, op.name, dtype, name, "contiguous", "none", units, message, mode=mode)
