"""``chosen``: the one place where a variant of a kernel is selected, for every engine.

A choice serves exactly the problems for which its variant was checked against the reference: the same specification with the
same sizes, on the same device. A problem of another size is tuned itself, or gets the default; there is no path by which a
variant that was tried with one row computes a batch of many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

from firebrick.compiler.tune.records import Record, Records, TuningWarning
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant
from firebrick.core.config import config
from firebrick.core.errors import ConfigError, UnsupportedError
from firebrick.core.lines import warn
from firebrick.core.locks import forkable
from firebrick.core.scopes import scope

KEPT = 8192
"""Maximum number of decisions that ``explain_tuning`` remembers."""

Search = Callable[[KernelProblem, Sequence[KernelVariant]], Record]
"""Tries variants, of which the first is the default: what they took, and which are barred."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a problem.

    Attributes:
        problem: The problem.
        variant: Name of the variant.
        reason: Why, in words.
        candidates: Names of the variants that may compute it.
        pin: Identifies the problem on other devices, for ``pin``.
        reordered: Whether the variant's bits differ from the default's.
    """

    problem: KernelProblem
    variant: str
    reason: str
    candidates: tuple[str, ...]
    pin: str
    reordered: bool


@dataclass(slots=True, eq=False)
class _Forced:
    """One ``force_variant``.

    Attributes:
        pattern: Of names.
        matched: Whether a problem had a variant of such a name.
        names: Those of the variants of all problems that it was asked for.
    """

    pattern: str
    matched: bool = False
    names: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _State:
    """What a process knows of tuning.

    Attributes:
        records: By device.
        forced: The innermost ``force_variant`` last.
        pinned: Names of variants by pin; None if nothing is pinned.
        decisions: By the ``id`` of problems.
        lock: Of the decisions.
        unchecked: The ``id`` of problems whose default could not be checked, which are not tried again.
        barred: How often records were changed so that programs in memory must be compiled again.
    """

    records: dict[str, Records] = field(default_factory=dict)
    forced: list[_Forced] = field(default_factory=list)
    pinned: dict[str, str] | None = None
    decisions: OrderedDict[str, Choice] = field(default_factory=OrderedDict)
    lock: Any = field(default_factory=lambda: forkable(threading.Lock()))
    unchecked: set[str] = field(default_factory=set)
    barred: int = 0

    def patterns(self) -> tuple[str, ...]:
        """The names that are forced."""
        return tuple(forced.pattern for forced in self.forced)

    def changed(self) -> None:
        """Have programs compiled again that were compiled with other choices than those in force."""
        pins = tuple(sorted((self.pinned or {}).items()))
        state = self.patterns(), pins, self.pinned is not None and not config.deterministic, self.barred
        config.compile_with("tuning", None if state == ((), (), False, 0) else state)


_state = _State()


def records_of(device: str) -> Records:
    """The records of a device."""
    found = _state.records.get(device)
    if found is None:
        found = _state.records[device] = Records(device)
    return found


def active(device: str) -> bool:
    """Whether anything but defaults may be chosen on a device."""
    measured = config.tune == "on" or (config.tune == "cached" and len(records_of(device)) > 0)
    if measured:
        config.compile_by("num_threads")  # since what is chosen depends on it
    return measured or bool(_state.forced) or bool(_state.pinned)


def forces() -> bool:
    """Whether ``force_variant`` is in force."""
    return bool(_state.forced)


def measures() -> bool:
    """Whether variants are chosen by what is measured in this process, and neither by ``force_variant`` nor by ``pin``."""
    return config.tune == "on" and not _state.forced and _state.pinned is None


def stamp(device: str, threads: int) -> str:
    """Identifies all choices in force on a device for a number of threads; empty if all are defaults."""
    if not active(device):
        return ""
    pins = sorted((_state.pinned or {}).items())
    found = records_of(device).stamp if config.tune != "off" else ""
    return blake2b(repr((found, _state.patterns(), pins, threads)).encode(), digest_size=16).hexdigest()


def chosen(problem: KernelProblem, variants: Sequence[KernelVariant], search: Search | None = None) -> KernelVariant:
    """The variant that computes a problem.

    In this order: that of ``force_variant``; that of a run that is resumed (``pin``); the fastest of those that were checked
    and measured for exactly this problem; after a search, if the setting ``tune`` is ``on``; the default. Whatever the reason,
    ``valid_for`` holds for the problem.

    Args:
        problem: The problem.
        variants: Its variants; the first is the default.
        search: Tries variants; None where the engine cannot.

    Raises:
        UnsupportedError: No variant of a forced name may compute the problem, although the problem has some of that name.
    """
    default = variants[0]
    valid = {v.name: v for v in variants if v is default or v.valid_for(problem)}
    found, reason = _forced(problem, variants, valid), "forced"
    pinned = pin_of(problem)
    if found is None and _state.pinned is not None and pinned in _state.pinned:
        name = _state.pinned[pinned]
        found, reason = valid.get(name), "pinned, as in the run that is resumed"
        if found is None:
            warn(
                f"the run that is resumed computed {problem.text} by variant {name!r}, which this device does not have: its "
                "results may differ in their last bits",
                TuningWarning,
            )
    if found is None and config.tune != "off":
        records = records_of(problem.device)
        record = records.get(problem.id)
        any_order = not config.deterministic and _state.pinned is None
        untried = (record is None or (any_order and record.any_order is None)) and problem.id not in _state.unchecked
        if untried and config.tune == "on" and search is not None:
            competing = [v for v in valid.values() if any_order or v.order == default.order]
            record = search(problem, competing)
            record.any_order = record.any_order if any_order else None
            if DEFAULT in record.barred:  # which says more of this system than of the variants
                _state.unchecked.add(problem.id)
            else:
                records.add(record)
        if record is not None:
            name = record.any_order if any_order and record.any_order is not None else record.choice
            usable = valid.get(name) if name not in records.barred(problem.structure) else None
            if usable is not None and (any_order or usable.order == default.order):
                found, reason = usable, record.withdrawn or "the fastest that was measured"
    if found is None:
        found, reason = default, "not tuned" if config.tune != "off" else "tuning is off"
    with _state.lock:
        _state.decisions[problem.id] = Choice(problem, found.name, reason, tuple(valid), pinned, found.order != default.order)
        _state.decisions.move_to_end(problem.id)
        while len(_state.decisions) > KEPT:
            _state.decisions.popitem(last=False)
    return found


def _forced(
    problem: KernelProblem, variants: Sequence[KernelVariant], valid: Mapping[str, KernelVariant]
) -> KernelVariant | None:
    for forced in reversed(_state.forced):
        named = [v for v in variants if fnmatchcase(v.name, forced.pattern)]
        usable = [v for v in named if v.name in valid]
        forced.matched |= bool(named)
        forced.names.update(v.name for v in variants)
        if usable:
            return usable[0]
        if named:
            raise UnsupportedError(
                f"a variant {forced.pattern!r} that may compute {problem.text}",
                f"{', '.join(v.name for v in named)}, whose valid_for is false for these sizes",
                "force another variant, or none",
            )
    return None


def pin_of(problem: KernelProblem) -> str:
    """Identifies a problem on any device and for any number of threads."""
    return blake2b(repr((problem.kind, problem.structure, problem.sizes)).encode(), digest_size=12).hexdigest()


@scope
def force_variant(pattern: str) -> Iterator[None]:
    """Compute with variants of this name, for tests and comparisons; process-wide, while the ``with`` block lasts.

    Args:
        pattern: Name of a variant, in which ``*`` stands for any text: ``"threads=1"``, ``"mr=6 *"``, ``"default"``. Problems
            that have no variant of that name are not affected. ``fb.explain_tuning()`` lists names.

    Raises:
        UnsupportedError: When a program is compiled: a problem has such a variant, but it is not valid for the problem's sizes.

    Warns:
        TuningWarning: At the end of the block: kernels were compiled in it, none of which has a variant of that name.

    Example:
        >>> import firebrick as fb
        >>> with fb.force_variant("b=unit"):
        ...     fb.jit(lambda x: x @ x)(fb.ones((4, 4)))[0, 0].item()
        4.0
    """
    given: object = pattern
    if not isinstance(given, str) or not given:
        raise ConfigError("force_variant takes the name of a variant", repr(pattern), "see fb.explain_tuning() for names")
    forced = _Forced(pattern)
    _state.forced.append(forced)
    _state.changed()
    try:
        yield
    finally:
        _state.forced.remove(forced)
        _state.changed()
    if forced.names and not forced.matched:
        known = sorted(forced.names)
        warn(
            f"no kernel that was compiled under force_variant({pattern!r}) has a variant of that name, so all of them are the "
            f"defaults: the names are {', '.join(known[:8])}{' …' if len(known) > 8 else ''}",
            TuningWarning,
        )


def used() -> dict[str, str]:
    """The variants of another order than the default's that this process has chosen, by pin: what a checkpoint keeps."""
    with _state.lock:
        return {d.pin: d.variant for d in _state.decisions.values() if d.reordered}


def pin(choices: Mapping[str, str] | None) -> None:
    """Choose as an earlier process did, so that its run continues with the same bits.

    Args:
        choices: What ``used`` returned there. Other problems are computed by variants of the default's order. None ends it.

    Raises:
        ConfigError: It is no such mapping.
    """
    if choices is not None and not all(isinstance(x, str) for pair in choices.items() for x in pair):
        raise ConfigError("pinned choices are names of variants by problem", repr(choices), "pass what a checkpoint holds")
    pinned = None if choices is None else dict(choices)
    if pinned != _state.pinned:
        _state.pinned = pinned
        _state.changed()


def bar(problem: KernelProblem, variant: str, reason: str) -> None:
    """Never use a variant for a problem again, also in later processes.

    Args:
        problem: The problem.
        variant: Name of the variant.
        reason: What was wrong.
    """
    records = records_of(problem.device)
    record = records.get(problem.id)
    if record is None:
        record = Record(problem.id, problem.structure, problem.text, DEFAULT)
    record.barred[variant] = reason
    if record.choice == variant:
        record.choice = DEFAULT
    if record.any_order == variant:
        record.any_order = DEFAULT
    records.add(record)
    _state.barred += 1
    _state.changed()


def withdraw(problems: Iterable[KernelProblem], reason: str) -> None:
    """Compute problems by their defaults, although other variants were faster alone.

    Args:
        problems: Problems whose variants made a whole program slower.
        reason: What was measured.
    """
    for problem in problems:
        record = records_of(problem.device).get(problem.id)
        if record is not None:
            any_order = None if record.any_order is None else DEFAULT
            records_of(problem.device).add(replace(record, choice=DEFAULT, any_order=any_order, withdrawn=reason))
    _state.barred += 1
    _state.changed()


def choices() -> list[Choice]:
    """What was chosen in this process, the latest last."""
    with _state.lock:
        return list(_state.decisions.values())


def forget() -> None:
    """Drop what this process knows of tuning, as a new process would; the records on disk stay."""
    with _state.lock:
        _state.decisions.clear()
    _state.records.clear()
    _state.unchecked.clear()
    _state.pinned, _state.barred = None, _state.barred + 1
    config.compile_by("num_threads", False)
    _state.changed()


def clear_records() -> int:
    """Remove the records of the devices that this process has used, also on disk; returns their number."""
    count = sum(records.clear() for records in _state.records.values())
    _state.barred += 1
    _state.changed()
    return count


def explain_tuning() -> str:
    """The variants that were chosen in this process: for each problem the candidates, what they took, and why some are barred.

    Returns:
        A text of some lines for each problem; one line if nothing was chosen yet.

    Example:
        >>> import firebrick as fb
        >>> text = fb.explain_tuning()
    """
    found = choices()
    if not found:
        return (
            f"no kernel with variants was chosen in this process (fb.config.tune is {config.tune!r}; with 'off', and with "
            "'cached' before anything was tuned, all kernels are the defaults)"
        )
    lines = []
    for d in found:
        records = records_of(d.problem.device)
        record, barred = records.get(d.problem.id), records.barred(d.problem.structure)
        lines.append(f"{d.problem.text}: {d.variant} ({d.reason})")
        times = record.times if record else {}
        for name in sorted(d.candidates, key=lambda n: times.get(n, float("inf"))):
            took = f"{times[name]:.1f} µs" if name in times else "not measured"
            lines.append(f"  {name}: {f'barred: {barred[name]}' if name in barred else took}")
    return "\n".join(lines)
