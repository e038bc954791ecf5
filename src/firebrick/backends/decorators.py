"""``Verify`` and ``Profile``: decorators around an engine's ``execute``, switched on for a ``with`` block.

``verify()`` holds every op that runs against its reference and names the first that differs. ``profile()`` counts calls and
time by op. While one is on, its engine offers no fast kernels, so nothing escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from firebrick.backends import registry
from firebrick.backends.contract import Backend
from firebrick.core.dtypes import DType
from firebrick.core.errors import ExecutionError
from firebrick.core.op import Op
from firebrick.ops.accuracy import check_results, run_reference


class Decorator(Backend):
    """An engine around another: everything is the inner engine's, except ``execute``."""

    def __init__(self, inner: Backend) -> None:
        super().__init__()
        self.inner = inner
        self.engine, self.platforms, self.seeds = inner.engine, inner.platforms, inner.seeds

    def __getattribute__(self, name: str) -> Any:
        own = (
            "inner",
            "execute",
            "fast_kernel",
            "name",
            "around",
            "engine",
            "platforms",
            "seeds",
            "report",
            "checked",
        )
        if name in own or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "inner"), name)

    def name(self, device: Any) -> str:
        return f"{type(self).__name__.lower()}<{self.inner.name(device)}>"

    def fast_kernel(self, op: Op, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        return None

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        return self.inner.execute(op, inputs, params, out)


class VerificationError(ExecutionError):
    """An op's result is not its reference's."""


class Verify(Decorator):
    """Checks every result against the reference."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.checked = 0

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        arrays = tuple(np.array(self.inner.to_host(x)) for x in inputs)
        result = self.inner.execute(op, inputs, params, out)
        results = result if type(result) is tuple else (result,)
        want = run_reference(op, arrays, params)
        hosts = tuple(np.asarray(self.inner.to_host(r)) for r in results)
        worst = check_results(op, arrays, params, hosts, want)
        if not worst.ok:
            operands = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise VerificationError(
                f"{op.name} on {self.engine} must agree with its reference",
                f"{worst} (operands {operands}, params {params})",
                "do not trust this engine's result; run on another one and report this",
                op=op.name,
                engine=self.engine,
            )
        self.checked += 1
        return result


@dataclass
class Row:
    """One op's share of a profile; time is wall-clock nanoseconds."""

    calls: int = 0
    time_ns: int = 0
    bytes: float = 0.0
    flops: float = 0.0


@dataclass
class Report:
    """What ran inside ``profile()``, by engine and op."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def __str__(self) -> str:
        order = sorted(self.rows.items(), key=lambda kv: -kv[1].time_ns)
        lines = [f"{'op':<18} {'engine':<8} {'calls':>7} {'ms':>10} {'GB/s':>7} {'GFLOP/s':>8}"]
        for (engine, op), r in order:
            seconds = max(r.time_ns, 1) / 1e9
            lines.append(
                f"{op:<18} {engine:<8} {r.calls:>7} {r.time_ns / 1e6:>10.3f} {r.bytes / seconds / 1e9:>7.2f} "
                f"{r.flops / seconds / 1e9:>8.2f}"
            )
        return "\n".join(lines)


class Profile(Decorator):
    """Counts calls and time of every op, waiting for each."""

    def __init__(self, inner: Backend, report: Report) -> None:
        super().__init__(inner)
        self.report = report

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        start = perf_counter_ns()
        result = self.inner.execute(op, inputs, params, out)
        results = result if type(result) is tuple else (result,)
        outs = [self.inner.describe(r) for r in results]
        spent = perf_counter_ns() - start
        cost = op.cost([self.inner.describe(x) for x in inputs], outs, params)
        row = self.report.rows.setdefault((self.engine, op.name), Row())
        row.calls += 1
        row.time_ns += spent
        row.bytes += cost.bytes
        row.flops += cost.flops
        return result


@contextmanager
def _installed(wrap: Callable[[Backend], Decorator], engines: tuple[str, ...]) -> Iterator[None]:
    chosen = engines or tuple(registry._backends)
    before = {e: registry.backend(e) for e in chosen}
    try:
        for engine, inner in before.items():
            _swap(engine, wrap(inner))
        yield
    finally:
        for engine, inner in before.items():
            _swap(engine, inner)


def _swap(engine: str, to: Backend) -> None:
    assert to.engine == engine
    registry.register_backend(to)


@contextmanager
def verify(*engines: str) -> Iterator[None]:
    """Hold every op against its reference inside this block, on all engines in use or those named.

    Args:
        engines: Names of engines, such as "cpu"; by default those in use when the block begins.

    Raises:
        VerificationError: From the op that differs, with both values and how far apart they are.
        DeviceError: There is no such engine.

    Example:
        >>> import firebrick as fb
        >>> with fb.verify():
        ...     y = fb.exp(fb.ones(3))
    """
    with _installed(Verify, engines):
        yield


@contextmanager
def profile(*engines: str) -> Iterator[Report]:
    """Count calls and time of every op inside this block, on all engines in use or those named.

    Args:
        engines: Names of engines, such as "cpu"; by default those in use when the block begins.

    Yields:
        The report: ``rows`` by (engine, op), each with ``calls``, ``time_ns``, ``bytes`` and ``flops``; printed, it is a table.

    Raises:
        DeviceError: There is no such engine.

    Example:
        >>> import firebrick as fb
        >>> with fb.profile() as report:
        ...     y = fb.exp(fb.ones(3))
        >>> report.rows["cpu", "exp"].calls
        1
    """
    report = Report()
    with _installed(lambda inner: Profile(inner, report), engines):
        yield report
