"""What conformance found: a verdict a case, and the report of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


def named(op: str, dtype: str, sample: str, layout: str, destination: str, mode: str) -> str:
    """What a case is called: ``add float32 'row' strided out=aliased jit``."""
    out = "" if destination == "none" else f" out={destination}"
    return f"{op} {dtype} {sample!r} {layout}{out}{'' if mode == 'eager' else f' {mode}'}"


@dataclass(frozen=True)
class Verdict:
    """The result of one conformance case.

    Attributes:
        ok: Whether it holds.
        op: Name of the op.
        dtype: Dtype of the operands.
        sample: Name of the sample.
        layout: Memory layout of the operands.
        destination: What ``out=`` was.
        units: The worst deviation, in units of eps · scale.
        message: What was expected and received; empty if it holds.
        gradient_units: The worst deviation of the gradient.
        mode: One of ``cases.MODES``.
        ways: How the engine ran the operation when it was repeated: by a "plan", by a "fast" kernel, and its gradient rule as a
            "replay" or in a "whole pass"; empty in other modes.

    Example:
        >>> from firebrick.testing import cases, run_case
        >>> run_case(next(cases("numpy", ops=["exp"], dtypes=["float64"]))).ok
        True
    """

    ok: bool
    op: str
    dtype: str
    sample: str
    layout: str
    destination: str
    units: float
    message: str = ""
    gradient_units: float = 0.0
    mode: str = "eager"
    ways: frozenset[str] = frozenset()

    def __str__(self) -> str:
        state = f"ok, {self.units:.3g} units" if self.ok else f"FAILED: {self.message}"
        return f"{named(self.op, self.dtype, self.sample, self.layout, self.destination, self.mode)}: {state}"


@dataclass
class Report:
    """The results of a run of ``conformance``.

    Attributes:
        device: Name of the device.
        seed: Seed of the samples.
        checked: Number of cases.
        worst: The worst deviation of each op, in units of eps · scale.
        worst_gradient: The same of its gradient.
        failures: Cases that failed.
        fallbacks: Ops that ran on the host, because the engine lacks them.
        ways: The ops that ran in each of the ways of ``Verdict.ways``.

    Example:
        >>> from firebrick.testing import conformance
        >>> report = conformance("numpy", ops=["add"], dtypes=["float32"], subset="turns")
        >>> report.ok, report.failures
        (True, [])
    """

    device: str
    seed: int
    checked: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    worst_gradient: dict[str, float] = field(default_factory=dict)
    failures: list[Verdict] = field(default_factory=list)
    fallbacks: set[str] = field(default_factory=set)
    ways: dict[str, set[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return self.checked > 0 and not self.failures

    @property
    def failed_ops(self) -> set[str]:
        """Names of the ops with failures."""
        return {v.op for v in self.failures}

    def add(self, verdict: Verdict) -> None:
        """Count one verdict.

        Args:
            verdict: Of one case.
        """
        self.checked += 1
        for way in verdict.ways:
            self.ways.setdefault(way, set()).add(verdict.op)
        if not verdict.ok:
            self.failures.append(verdict)
            return
        self.worst[verdict.op] = max(self.worst.get(verdict.op, 0.0), verdict.units)
        self.worst_gradient[verdict.op] = max(self.worst_gradient.get(verdict.op, 0.0), verdict.gradient_units)

    def _lines(self, most: int) -> Iterator[str]:
        yield f"{self.device}, seed {self.seed}: {self.checked} cases, {len(self.failures)} failed"
        for name in sorted(self.failed_ops):
            found = [v for v in self.failures if v.op == name]
            yield f"{name}: {len(found)} failed, for example"
            yield from (f"  {v}" for v in found[:most])
        if self.fallbacks:
            yield f"ran on the host: {', '.join(sorted(self.fallbacks))}"

    def __str__(self) -> str:
        return "\n".join(self._lines(3))
