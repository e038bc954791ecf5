"""``Verify`` and ``Profile``: decorators around an engine's ``execute`` and ``compile``, switched on for a ``with`` block.

``verify()`` compares every op that runs with its reference and reports the first that differs. ``profile()`` counts calls and
time by op, and records a timeline. While one is on, its engine offers no fast kernels, and its compiled programs are checked or
timed step by step, so nothing runs unseen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from time import perf_counter_ns
from typing import Any

import numpy as np

from firebrick.backends import registry
from firebrick.backends.contract import Backend
from firebrick.compiler import Begin, Executable, Step, build
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.text import printed
from firebrick.core import timeline
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ExecutionError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Op
from firebrick.core.scopes import scope
from firebrick.core.timeline import Event, Timeline, thread_name
from firebrick.ir import Graph, Node, interpret
from firebrick.ops.accuracy import check_results, deviation, run_reference, widen, with_flushed


class Decorator(Backend):
    """An engine around another: it delegates to the inner engine, except for ``execute``."""

    def __init__(self, inner: Backend) -> None:
        super().__init__()
        self.inner = inner
        self.engine, self.platforms, self.seeds = inner.engine, inner.platforms, inner.seeds

    _own = frozenset({
        "_own", "around", "check", "checked", "compile", "count", "engine", "execute", "fast_kernel", "inner", "kept_kernel",
        "name", "platforms", "replays", "report", "seeds",
    })  # fmt: skip

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in type(self)._own:
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
        self.check(op, arrays, params, result if type(result) is tuple else (result,))
        return result

    def check(self, op: Op, arrays: tuple[Any, ...], params: dict[str, Any], results: tuple[Any, ...], where: str = "") -> None:
        """Compare an op's results with the reference's for these operands."""
        want = run_reference(op, arrays, params) if op.program is None else op.program.checked(arrays, params)
        if want is None:
            return
        hosts = tuple(np.asarray(self.inner.to_host(r)) for r in results)
        flushes = bool(results) and self.inner.flushed_denormals(results[0])
        worst = check_results(op, arrays, params, hosts, want, flushes=flushes)
        if not worst.ok:
            operands = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise VerificationError(
                f"{op.shown} on {self.engine}{where} must agree with its reference",
                f"{worst} (operands {operands}, params {params})",
                "do not trust this engine's result; run on another one and report this",
                op=op.shown,
                engine=self.engine,
            )
        self.checked += 1

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        # the second one, whose nodes are run one by one, compiles the bodies of loops through here
        home = device or self.first_device()
        return _Verified(self.inner.compile(graph, device, donate, ready), build(self, graph, home), self, home)


# results of a program may differ from those of its nodes one by one only in how they are rounded: in the order of long sums,
# in values that a fused kernel does not round; where such a difference is amplified, by a few times the effect of one bit of
# the inputs
_PLAN_TOLERANCE, _NUDGES = 256.0, 32.0


class _Verified(Executable):
    """A program that is run as it is, then node by node with every result compared with its reference."""

    def __init__(self, program: Executable, nodes: Executable, verify: Verify, device: Device) -> None:
        self.__dict__.update(program.whole.__dict__)
        self._program, self._nodes, self._verify, self._device = program, nodes, verify, device

    def __call__(self, natives: Sequence[Any], begin: Begin | None = None) -> tuple[Any, ...]:
        backend = self._verify.inner
        before = [self._copy(x) if i in self.writes else x for i, x in enumerate(natives)]
        found = self._program(natives, begin)
        nudged: tuple[Any, ...] = ()
        for position, (got, want) in enumerate(zip(found, self._nodes.stepwise(before, self._step), strict=True)):
            exact, other = (np.asarray(backend.to_host(x)) for x in (want, got))
            shown = with_flushed(other, exact) if backend.flushed_denormals(got) else other
            worst = deviation(shown, widen(exact), _PLAN_TOLERANCE, _largest(exact))
            if not worst.ok:
                nudged = nudged or self._nodes.stepwise([self._nudge(x) for x in before], self._nudged_step)
                if _unsure(other, exact, np.asarray(backend.to_host(nudged[position]))):
                    continue
                v = self.graph.outputs[position]
                group = self._wrong_group(before)
                raise VerificationError(
                    f"output {position} (%{v}) of a program on {self._verify.engine} must equal its nodes' results, one by one",
                    f"{worst}, though each node agrees with its reference" + (f"; wrong is {group}" if group else ""),
                    f"{'its kernel' if group else 'the memory plan'} is wrong: run with fb.disable_jit() and report this with "
                    "executable.explain(source=True)",
                    engine=self._verify.engine,
                )
        return found

    def _wrong_group(self, natives: Sequence[Any]) -> str:
        """The first group of fused nodes whose results differ from its nodes' on these inputs; empty if there is none."""
        found: list[str] = []

        def run(step: Step, operands: tuple[Any, ...]) -> tuple[Any, ...]:
            results, n = step.run(*operands), step.node
            if n.op is FUSED and not found:
                host = self._verify.inner.to_host
                arrays = [np.array(host(x)) for x in operands]
                nudged = [np.array(host(self._nudge(x))) for x in operands]
                wanted, moved = (_interpreted(n.params["body"], xs) for xs in (arrays, nudged))
                for slot, (r, want, other) in enumerate(zip(results, wanted, moved, strict=True)):
                    got = np.asarray(host(r))
                    worst = deviation(got, widen(want), _PLAN_TOLERANCE, _largest(want))
                    if not worst.ok and not _unsure(got, want, other):
                        found.append(f"result {slot} of the group {_described(n)}: {worst}")
                        break
            return results

        self._program.stepwise(natives, run)
        return "".join(found)

    def _nudged_step(self, step: Step, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """A node's results with their last bits changed: rounding between nodes matters too, where sums cancel."""
        n = step.node
        with np.errstate(all="ignore"):
            results = step.run(*operands)
        rounds = n.inputs and n.op.fusion != "move" and not n.op.control  # constants and moved values are exact
        return tuple(map(self._nudge, results)) if rounds else results

    def _nudge(self, native: Any) -> Any:
        """An array with its last bits changed, up or down by turns."""
        x = np.array(self._verify.inner.to_host(native))
        if not as_dtype(x.dtype).is_inexact:
            return native
        way = np.where(np.arange(x.size).reshape(x.shape) % 2, 1.0, -1.0)
        moved = (widen(x) * (1.0 + as_dtype(x.dtype).eps * way)).astype(x.dtype)
        return self._verify.inner.from_host(moved, self._device)

    def _step(self, step: Step, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        n = step.node
        arrays = tuple(np.array(self._verify.inner.to_host(x)) for x in operands)
        results = step.run(*operands)
        if n.op.control is None:
            label = f", {n.label}" if n.label else ""
            where = f" (%{n.first}{label}, {n.line})" if n.line else f" (%{n.first}{label})"
            self._verify.check(n.op, arrays, n.params, results, where)
        return results


def _interpreted(body: Graph, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], ...]:
    """A group's results by the references of its nodes, each rounded to its dtype."""
    made: tuple[np.ndarray[Any, Any], ...] = interpret(body, arrays, lambda op, xs, params: op.reference(*xs, **params))
    return made


def _described(group: Node) -> str:
    """The operations of a group, each with the line that asks for it."""
    return ", ".join(
        f"{n.op.name} ({n.line})" if n.line else n.op.name for n in group.params["body"].nodes if n.op.name != "constant"
    )


def _unsure(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], nudged: np.ndarray[Any, Any]) -> bool:
    """Whether two results differ by no more than a few times the change that other last bits of the inputs cause.

    Where that change makes another integer or bool of a result, or NaN, the result decides nothing.
    """
    if not as_dtype(want.dtype).is_inexact:
        return bool(np.all((got == want) | (nudged != want)))
    a, b, c = widen(got), widen(want), widen(nudged)
    sound = np.isfinite(b)
    if not np.array_equal(a[~sound], b[~sound], equal_nan=True) or not np.isfinite(a[sound]).all():
        return False
    judged = sound & np.isfinite(c)
    moved = np.abs(c[judged] - b[judged]).max(initial=0.0)
    return bool(np.abs(a[judged] - b[judged]).max(initial=0.0) <= _NUDGES * moved)


def _largest(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The largest finite magnitude of an inexact array, as the scale of its errors."""
    if not as_dtype(x.dtype).is_inexact:
        return None
    sizes = np.abs(widen(x))
    return np.full(x.shape, np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


@dataclass
class Row:
    """One op's share of a profile.

    Attributes:
        calls: How often it ran.
        time_ns: Nanoseconds of the host's clock, from each call until its result was there.
        bytes: Bytes that it reads and writes; 0 of a loop or a branch.
        flops: Floating-point operations; 0 of a loop or a branch. Of a kernel they are counted from its statements: of
            an ``if`` the larger side, of a loop whose number of rounds depends on values 32 rounds.
        device_calls: Calls that were also timed by the clock of their device.
        device_ns: Nanoseconds of the kernels of these calls by that clock.
    """

    calls: int = 0
    time_ns: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    device_calls: int = 0
    device_ns: int = 0


@dataclass
class Report:
    """What ran inside ``profile()``, by engine and op, and when.

    Attributes:
        rows: By (engine, op): calls, time, bytes and floating-point operations.
        timeline: Every call, by device and thread.
    """

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)

    def save_timeline(self, path: str | os.PathLike[str]) -> Path:
        """Write the timeline as JSON that ``chrome://tracing`` and https://ui.perfetto.dev open.

        Args:
            path: The file; it is replaced if there is one.

        Returns:
            The path.

        Raises:
            OSError: It cannot be written.
        """
        return self.timeline.save(path)

    def __str__(self) -> str:
        order = sorted(self.rows.items(), key=lambda kv: -kv[1].time_ns)
        width = max([18, *(len(_cut(op)) for _, op in self.rows)])
        clocks = any(r.device_calls == r.calls for r in self.rows.values())
        kernels = f" {'kernels ms':>10}" if clocks else ""
        lines = [f"{'op':<{width}} {'engine':<8} {'calls':>7} {'ms':>10}{kernels} {'GB/s':>7} {'GFLOP/s':>8}"]
        for (engine, op), r in order:
            by_device = r.device_calls == r.calls
            seconds = max(r.device_ns if by_device else r.time_ns, 1) / 1e9
            kernels = f" {f'{r.device_ns / 1e6:.3f}' if by_device else '':>10}" if clocks else ""
            rates = f" {r.bytes / seconds / 1e9:>7.2f} {r.flops / seconds / 1e9:>8.2f}" if r.bytes or r.flops else ""
            lines.append(f"{_cut(op):<{width}} {engine:<8} {r.calls:>7} {r.time_ns / 1e6:>10.3f}{kernels}{rates}".rstrip())
        return "\n".join(lines)


_SHOWN = 60


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"


class Profile(Decorator):
    """Counts calls and time of every op, or of every kernel of a program, waiting for each.

    Args:
        inner: The engine.
        report: Where they are counted.
        kernels: Whether programs run their own kernels, else the operations that they were made of.
    """

    _own = Decorator._own | {"_ahead", "_by_host_clock", "_device", "from_host", "kernels", "read", "sync", "to_host"}

    def __init__(self, inner: Backend, report: Report, kernels: bool = False) -> None:
        super().__init__(inner)
        self.report, self.kernels = report, kernels
        self._ahead: dict[str, int] = {}  # of devices: what the host's clock is ahead of theirs

    def _device(self) -> str:
        """The device whose work this thread asks for, if it is one of this engine's; else the engine."""
        found = timeline.here.device
        return found if found.split(":")[0] == self.engine else self.engine

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        return self.count(op, inputs, params, lambda: self.inner.execute(op, inputs, params, out), op.name, self._device())

    def count(
        self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], run: Callable[[], Any], name: str, device: str,
        **details: Any,
    ) -> Any:  # fmt: skip
        """The result of ``run``, which is waited for and added to the report."""
        start = perf_counter_ns()
        made, launches = self.inner.timed(hooks.find_device(device), run)
        end = perf_counter_ns()
        outs = [self.inner.describe(r) for r in (made if type(made) is tuple else (made,))]
        # what the rounds of a loop compute is not counted
        cost = Cost(0.0, 0.0) if op.control else op.cost([self.inner.describe(x) for x in inputs], outs, params)
        row = self.report.rows.setdefault((self.engine, name), Row())
        row.calls += 1
        row.time_ns += end - start
        row.bytes += cost.bytes
        row.flops += cost.flops
        facts = {"results": ", ".join(map(str, outs)), "bytes": cost.bytes, "flops": cost.flops, **details}
        category = "kernel" if "spec" in details else "op"
        self.report.timeline.add(Event(name, category, device, thread_name(), start, end, facts))
        begun = self._by_host_clock(device, launches, start, end)
        if begun:
            row.device_calls += 1
            row.device_ns += sum(end - begin for begin, end in begun)
        for k, (first, last) in enumerate(begun):
            text = f"{name} {k + 1} of {len(begun)}" if len(begun) > 1 else name
            self.report.timeline.add(Event(text, "launch", device, "kernels", first, last, {"clock": device}))
        return made

    def _by_host_clock(self, device: str, launches: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
        """When launches within a call began and ended by the host's clock; none if a device's clock shows more time than the
        call took, or runs backwards."""
        if not launches or any(first > last for first, last in launches):
            return []
        least, most = start - min(first for first, _ in launches), end - max(last for _, last in launches)
        if least > most:
            return []
        ahead = self._ahead[device] = min(max(self._ahead.get(device, most), least), most)
        return [(first + ahead, last + ahead) for first, last in launches]

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        home = device or self.first_device()
        with timeline.span(f"compile {len(graph.nodes)} nodes", "compile"):
            program = self.inner.compile(graph, home).whole if self.kernels else build(self, graph, home)
        return _Profiled(program, self, home.name)

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> Any:
        with timeline.span("from host", "transfer", device.name, bytes=array.nbytes):
            return self.inner.from_host(array, device)

    def to_host(self, native: Any) -> np.ndarray[Any, Any]:
        with timeline.span("to host", "transfer", self._device(), bytes=self.inner.describe(native).nbytes):
            return self.inner.to_host(native)

    def read(self, natives: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        size = sum(self.inner.describe(n).nbytes for n in natives)
        with timeline.span(f"read {len(natives)} arrays", "transfer", self._device(), bytes=size):
            return self.inner.read(natives)

    def sync(self, device: Device) -> None:
        with timeline.span("sync", "wait", device.name):
            self.inner.sync(device)


class _Profiled(Executable):
    """A program run step by step with a clock; it writes no input."""

    def __init__(self, program: Executable, profile: Profile, device: str) -> None:
        self.__dict__.update(program.__dict__)
        self._program, self._profile, self._device = program, profile, device
        self._described: dict[int, tuple[str, dict[str, Any]]] = {}

    def __call__(self, natives: Sequence[Any], begin: Begin | None = None) -> tuple[Any, ...]:
        timeline.here.device = self._device  # also of what this thread reads next
        with timeline.span(f"program of {len(self.graph.nodes)} nodes", "program", self._device):
            return self._program.stepwise(natives, self._step)

    def _step(self, step: Step, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        n = step.node
        name, details = self._of(n)
        if n.op.control is None or self._profile.kernels:
            results: tuple[Any, ...]
            results = self._profile.count(n.op, operands, n.params, lambda: step.run(*operands), name, self._device, **details)
            return results
        start = perf_counter_ns()
        results = step.run(*operands)  # the operations of a body are counted themselves
        timeline.record(name, "op", self._device, start, **details)
        return results

    def _of(self, n: Node) -> tuple[str, dict[str, Any]]:
        """A node's name and the facts about it."""
        found = self._described.get(n.first)
        if found is None:
            details: dict[str, Any] = {"line": n.line} if n.line and n.op is not FUSED else {}
            name = n.op.name
            if n.op is FUSED:
                body: Graph = n.params["body"]
                counts = Counter(m.op.name for m in body.nodes if m.op.name != "constant")
                name = ", ".join(f"{op} × {c}" if c > 1 else op for op, c in counts.items()) or "constants"
                lines = [m.line for m in body.nodes if m.line]
                details = {"spec": printed(spec_of(body)), "lines": "; ".join(dict.fromkeys(lines))}
            elif self._profile.kernels and n.op.name != "constant":
                details = {"spec": f"{n.op.name}({', '.join(f'{k}={v!r:.80}' for k, v in n.params.items())})", **details}
            found = self._described[n.first] = name, details
        return found


@contextmanager
def _installed(wrap: Callable[[Backend], Decorator], engines: tuple[str, ...]) -> Iterator[None]:
    if not engines:
        registry.find_device(None)  # at the beginning of a program no engine is in use yet
    own: dict[str, Decorator] = {}

    def end() -> None:
        with _changing:
            for engine, decorator in own.items():
                _swap(engine, _without(decorator, registry.backend(engine)))

    try:
        with _changing:
            for engine in engines or tuple(registry._backends):
                own[engine] = wrap(registry.backend(engine))
                _swap(engine, own[engine])
        yield
        end()
    except BaseException:  # Ctrl-C within ``end``, too
        end()
        raise


_changing = RLock()


def _without(decorator: Decorator, top: Backend) -> Backend:
    """An engine's backend without one of its decorators: blocks of several threads may end in any order."""
    if top is decorator:
        return decorator.inner
    if isinstance(top, Decorator):
        top.inner = _without(decorator, top.inner)
    return top


def _swap(engine: str, to: Backend) -> None:
    assert to.engine == engine
    registry.register_backend(to)


@scope
def verify(*engines: str) -> Iterator[None]:
    """Compare every op with its reference inside this block, on all engines in use or those named.

    Args:
        engines: Names of engines, such as "cpu"; by default that of the default device, and those in use when the block begins.

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


@scope
def profile(*engines: str, kernels: bool = False) -> Iterator[Report]:
    """Count calls and time of every op inside this block, on all engines in use or those named.

    The report has a timeline too: operations, kernels, transfers, waits, batches of loaders and steps of a ``Learner``, by
    device and thread. Each operation is waited for, and programs run step by step, so the whole takes longer than without.

    Args:
        engines: Names of engines, such as "cpu"; by default that of the default device, and those in use when the block begins.
        kernels: Whether compiled programs run their own kernels, whose specifications are in the timeline; a loop or a branch
            is one row then, without rates. Else the operations that they were compiled from run one by one.

    Yields:
        The report: ``rows`` by (engine, op), each with ``calls``, ``time_ns``, ``bytes`` and ``flops``; printed, it is a table.
        ``save_timeline(path)`` writes the timeline for ``chrome://tracing`` and https://ui.perfetto.dev.

    Raises:
        DeviceError: There is no such engine.

    Example:
        >>> import firebrick as fb
        >>> with fb.profile() as report:
        ...     y = fb.exp(fb.ones(3))
        >>> report.rows["cpu", "exp"].calls
        1
        >>> [event.name for event in report.timeline.events if event.category == "op"]
        ['exp']
    """
    report = Report()

    def end() -> None:
        if report.timeline in timeline.active:
            timeline.active.remove(report.timeline)

    with _installed(lambda inner: Profile(inner, report, kernels), engines):
        try:
            timeline.active.append(report.timeline)
            yield report
            end()
        except BaseException:  # Ctrl-C within ``end``, too
            end()
            raise
