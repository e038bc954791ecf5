"""The conformance cases of an engine, generated from the op table: op × dtype × sample × mode × layout × destination.

``pairwise`` keeps every (op, dtype, sample, mode), and gives each a layout and a destination so that within every op and
mode all pairs of dtype, sample, layout and destination occur that can. ``full`` is the whole product. ``thin`` has
every sample in one dtype of each class, every dtype at some sample, and all pairs of class, layout and destination. ``turns``
has every sample at some dtype, every dtype at some sample, and all pairs of layout and destination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any
from zlib import crc32

import numpy as np

from firebrick.backends.contract import STORAGE
from firebrick.backends.registry import find_device
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError
from firebrick.core.op import Op, Sample
from firebrick.ops import OPS
from firebrick.testing.layouts import LAYOUTS
from firebrick.testing.report import named

DESTINATIONS = ("none", "fresh", "viewed", "aliased")
"""No ``out=``; one that nobody else sees; one with an earlier view alive; an operand."""

MODES = ("eager", "jit", "repeated", "repeated jit")
"""Run at once; traced into a graph of one operation, and run by what the engine makes of it; and both many times in a row,
among calls with other operands."""

SUBSETS = ("pairwise", "full", "thin", "turns")

EXCLUDED = {"to_device": "it is tested between all pairs of engines, in tests/backends/test_transfer.py"}
"""Ops without conformance cases, each with the reason."""


@dataclass(frozen=True, eq=False)
class Case:
    """One conformance case: an op with operands of a dtype and a memory layout, on a device.

    Attributes:
        device: Device.
        op: Entry of the op table.
        dtype: Name of the dtype of the operands.
        sample: Operands and parameters.
        number: Number of the sample among those of the op and dtype.
        layout: Memory layout of the operands, one of ``LAYOUTS``.
        destination: What ``out=`` is, one of ``DESTINATIONS``.
        mode: How it runs, one of ``MODES``.
        index: Number of the case in the run.
        programs: Functions under ``jit`` by name, which all cases of a sample share.
        others: Samples for calls in between, where the operation is repeated.

    Example:
        >>> from firebrick.testing import cases
        >>> next(cases("numpy", ops=["exp"], dtypes=["float64"])).op.name
        'exp'
    """

    device: Device
    op: Op
    dtype: str
    sample: Sample
    number: int
    layout: str
    destination: str
    mode: str = "eager"
    index: int = 0
    programs: dict[str, Any] = field(default_factory=dict, repr=False)
    others: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """``add float32 'row' strided out=aliased jit``."""
        return named(self.op.name, self.dtype, self.sample.name, self.layout, self.destination, self.mode)

    @property
    def compiled(self) -> bool:
        """Whether it runs by executables of graphs."""
        return self.mode.endswith("jit")

    @property
    def repeated(self) -> bool:
        """Whether it runs many times in a row."""
        return self.mode.startswith("repeated")

    @cached_property
    def avals(self) -> tuple[tuple[Aval, ...], tuple[Aval, ...]]:
        """Shapes and dtypes of the operands and of the results."""
        return avals_of(self.op, self.sample)


def avals_of(op: Op, sample: Sample) -> tuple[tuple[Aval, ...], tuple[Aval, ...]]:
    """Shapes and dtypes of a sample's operands and of the results."""
    ins = tuple(Aval(x.shape, as_dtype(x.dtype)) for x in sample.inputs)
    inferred = op.infer(*ins, **sample.params)
    return ins, (inferred,) if type(inferred) is Aval else tuple(inferred)


def samples_of(op: Op, dtype: str, seed: int) -> list[Sample]:
    """The samples of an op at a dtype, the same for the same seed."""
    return op.samples(np.random.default_rng([seed, crc32(f"{op.name} {dtype}".encode())]), dtype)


def chosen(ops: Iterable[str] | None) -> list[Op]:
    """Entries of the op table by name, all that have cases by default.

    Raises:
        ConfigError: No op has that name.
    """
    names = list(OPS) if ops is None else list(ops)
    unknown = [n for n in names if n not in OPS]
    if unknown:
        raise ConfigError("ops are names of the op table", ", ".join(unknown), "firebrick.ops.OPS lists them")
    return [OPS[n] for n in names if n not in EXCLUDED]


def cases(
    device: Any,
    ops: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    subset: str = "pairwise",
    seed: int = 0,
    modes: Iterable[str] | None = None,
) -> Iterator[Case]:
    """The conformance cases of a device.

    Args:
        device: Device or device string.
        ops: Names of ops; all by default.
        dtypes: Names of dtypes; all that the device stores by default.
        subset: ``"pairwise"``, ``"full"``, ``"thin"`` or ``"turns"``.
        seed: Of the samples and of the choice of layouts and destinations.
        modes: Of ``MODES``; all by default.

    Example:
        >>> from firebrick.testing import cases
        >>> first = next(cases("numpy", ops=["add"], dtypes=["float32"]))
        >>> first.op.name, first.dtype
        ('add', 'float32')
    """
    if subset not in SUBSETS:
        raise ConfigError(f"subset is one of {', '.join(SUBSETS)}", repr(subset), "use one of these")
    modes = MODES if modes is None else tuple(modes)
    if unknown := set(modes) - set(MODES):
        raise ConfigError(f"modes are {', '.join(MODES)}", ", ".join(sorted(unknown)), "use these")
    home = find_device(device)
    wanted = None if dtypes is None else set(dtypes)
    index = 0
    for op in chosen(ops):
        rows = [
            (dtype, number, sample)
            for dtype in op.dtypes
            if wanted is None or dtype in wanted
            for number, sample in enumerate(samples_of(op, dtype, seed))
            if storable(home, op, sample)
        ]
        others = _Others(home, op, rows, seed)
        rows = thinned(rows, subset) if subset in _CLASSES else rows
        for mode in modes:
            programs: dict[tuple[str, int], dict[str, Any]] = {}
            for (dtype, number, sample), layout, destination in _combined(op, rows, subset, seed, mode):
                shared = programs.setdefault((dtype, number), {})
                between = others.of(dtype, number, sample) if mode.startswith("repeated") else ()
                yield Case(home, op, dtype, sample, number, layout, destination, mode, index, shared, between)
                index += 1


def storable(device: Device, op: Op, sample: Sample) -> bool:
    """Whether a device stores the dtypes of a sample's operands and results."""
    ins, outs = avals_of(op, sample)
    return all(STORAGE in device.backend.dtype_usage(device, a.dtype) for a in (*ins, *outs))


Row = tuple[str, int, Sample]


class _Others:
    """What calls between those of a sample use: the same operation with other values, parameters, shapes and dtypes.

    Args:
        device: Device.
        op: The operation.
        rows: All that the device stores.
        seed: Of the samples.
    """

    def __init__(self, device: Device, op: Op, rows: list[Row], seed: int) -> None:
        self._device, self._op, self._rows, self._seed = device, op, rows, seed
        self._redrawn: dict[str, list[Sample]] = {}

    def of(self, dtype: str, number: int, sample: Sample) -> tuple[Sample, ...]:
        """For a sample, as far as there are such: one that differs in values alone, one in parameters, in shapes with these
        parameters and with any, and in dtypes."""
        if dtype not in self._redrawn:
            self._redrawn[dtype] = samples_of(self._op, dtype, self._seed + 1)
        ins, params, alike = _form(sample), repr(sample.params), self._redrawn[dtype][number : number + 1]
        found = [s for s in alike if _form(s) == ins and repr(s.params) == params]
        at = next(i for i, row in enumerate(self._rows) if row[:2] == (dtype, number))
        turned = self._rows[at + 1 :] + self._rows[:at]
        differing: tuple[Callable[[Row], bool], ...] = (
            lambda row: row[0] == dtype and _form(row[2]) == ins and repr(row[2].params) != params,
            lambda row: row[0] == dtype and _form(row[2]) != ins and repr(row[2].params) == params,
            lambda row: row[0] == dtype and _form(row[2]) != ins,
            lambda row: row[0] != dtype and row[1] == number,
        )
        for differs in differing:
            found += [row[2] for row in turned if differs(row) and not any(row[2] is s for s in found)][:1]
        return tuple(found)


def _form(sample: Sample) -> list[Any]:
    return [(x.shape, x.dtype) for x in sample.inputs]


def _class_of(dtype: str) -> str:
    """The dtypes of a class run the same code at other widths; widths of floats have code of their own, but for the halves."""
    dt = as_dtype(dtype)
    if dt.is_floating:
        return "half" if dt.itemsize == 2 else dt.name
    return dt.kind


_CLASSES: dict[str, Callable[[str], str]] = {"thin": _class_of, "turns": lambda dtype: "any"}
"""Subset → the class of a dtype; every sample is in one dtype of each class."""


def thinned(rows: list[Row], subset: str = "thin") -> list[Row]:
    """Every sample in one dtype of each class, which take turns, and every dtype at some sample.

    Args:
        rows: Dtype, number and sample of each.
        subset: ``"thin"``, or ``"turns"``, for which all dtypes are of one class.
    """
    class_of = _CLASSES[subset]
    members: dict[str, dict[str, None]] = {}
    for dtype, _, _ in rows:
        members.setdefault(class_of(dtype), {})[dtype] = None
    chosen: set[tuple[str, str]] = set()
    for dtypes in members.values():
        names = {d: list(dict.fromkeys(s.name for dtype, _, s in rows if dtype == d)) for d in dtypes}
        for turn, name in enumerate(dict.fromkeys(n for d in dtypes for n in names[d])):
            having = [d for d in dtypes if name in names[d]]
            chosen.add((having[turn % len(having)], name))
        for turn, d in enumerate(dtypes):
            if all((d, name) not in chosen for name in names[d]):
                chosen.add((d, names[d][turn % len(names[d])]))
    return [row for row in rows if (row[0], row[2].name) in chosen]


def _combined(op: Op, rows: list[Row], subset: str, seed: int, mode: str) -> Iterator[tuple[Row, str, str]]:
    possible = []
    for _, _, sample in rows:
        destinations = ["none"] if mode.startswith("repeated") else _possible(op, sample)
        possible.append([(layout, d) for layout in LAYOUTS for d in destinations])
    if subset == "full":
        yield from ((row, *o) for row, os in zip(rows, possible, strict=True) for o in os)
        return
    rng = np.random.default_rng([seed, crc32(f"{op.name} {mode}".encode())])
    class_of = _CLASSES.get(subset)
    of: Callable[[Row], Items] = (
        (lambda row: (("class", class_of(row[0])),)) if class_of else (lambda row: (("dtype", row[0]), ("sample", row[1])))
    )
    numbers = _Pairs()
    offers = [{o: numbers.of(of(row), o) for o in os} for row, os in zip(rows, possible, strict=True)]
    open_pairs = 0
    for offer in offers:
        for pairs in offer.values():
            open_pairs |= pairs
    for row, offer in zip(rows, offers, strict=True):
        o = _best(offer, open_pairs, rng)
        open_pairs &= ~offer[o]
        yield (row, *o)
    # pairs that one option a row could not cover
    for row, offer in zip(rows, offers, strict=True):
        while open_pairs:
            o = _best(offer, open_pairs, rng)
            if not offer[o] & open_pairs:
                break
            open_pairs &= ~offer[o]
            yield (row, *o)


def _possible(op: Op, sample: Sample) -> list[str]:
    """The destinations that a sample can have."""
    ins, outs = avals_of(op, sample)
    if len(outs) > 1:
        return ["none"]
    return [d for d in DESTINATIONS if d != "aliased" or outs[0] in ins]


Items = tuple[tuple[str, Any], ...]


class _Pairs:
    """Sets of pairs of factors as bits of an integer: a bit for each pair that was met."""

    def __init__(self) -> None:
        self._bits: dict[Any, int] = {}
        self._of: dict[Any, int] = {}

    def of(self, items: Items, option: tuple[str, str]) -> int:
        """The pairs among the factors of a row and an option, a layout and a destination."""
        found = self._of.get((items, option))
        if found is None:
            found = 0
            for pair in combinations((*items, ("layout", option[0]), ("destination", option[1])), 2):
                bit = self._bits.get(pair)
                if bit is None:
                    bit = self._bits[pair] = 1 << len(self._bits)
                found |= bit
            self._of[items, option] = found
        return found


def _best(offer: dict[tuple[str, str], int], open_pairs: int, rng: np.random.Generator) -> tuple[str, str]:
    """An option that covers most of the pairs, drawn where several do."""
    gains = [(pairs & open_pairs).bit_count() for pairs in offer.values()]
    most = max(gains)
    best = [o for o, gain in zip(offer, gains, strict=True) if gain == most]
    return best[int(rng.integers(len(best)))]
