"""Conformance of operations that are repeated: plans, fast kernels, and gradient rules and passes that run as programs.

After a few calls with operands of the same shapes and dtypes, an engine may keep what it found out about them
(``core.planned``, ``Op.fast``, ``graph.replays``, ``graph.whole_passes``). What it keeps must serve these operands alone, and
read what they hold now. So a case runs until all of this is there, then with other values, in other layouts, with one
tensor as several operands, with other parameters, shapes, dtypes, and on another device. Each result is held against the
reference and, in every bit and in how its memory is accounted for, against the general path.

What is kept is dropped when a setting changes, so all calls are made before the first values are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from firebrick.backends.registry import find_device
from firebrick.core import planned
from firebrick.core.bind import binary, unary
from firebrick.core.config import config
from firebrick.core.errors import DeviceMismatchError
from firebrick.core.tensor import Tensor
from firebrick.graph.replays import RULES
from firebrick.graph.whole_passes import MORE, PASSES
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.declare import Array
from firebrick.testing.cases import Case
from firebrick.testing.checks import Check, check_unchanged, one_of, overwrite, placed, require, runner, same_bits
from firebrick.testing.gradients import compare, has_gradient, pulled
from firebrick.testing.layouts import LAYOUTS

PULLS = planned.BEFORE + MORE + 2
"""Backward passes after which a pass of one operation runs as a function."""

UNALIASED = {
    "linear_recurrence": "it overflows where its coefficients are as large as its terms",
    "searchsorted": "one of its operands is sorted, the other is not",
}
"""Ops whose operands are never one tensor, each with the reason."""


@dataclass
class _Call:
    """Operands of an operation, and what its calls with them gave: results, and the first and the last gradients."""

    case: Case
    arrays: tuple[Array, ...]
    operands: tuple[Tensor, ...]
    results: list[tuple[Tensor, ...]] = field(default_factory=list)
    gradients: list[tuple[Tensor, ...]] = field(default_factory=list)

    def go(self) -> None:
        self.results.append(runner(self.case)(self.operands, None))

    def pull(self) -> None:
        self.gradients[1:] = [pulled(self.case, self.operands)]


def _on(case: Case) -> _Call:
    return _Call(case, *placed(case))


def _calls(case: Case) -> Iterator[_Call]:
    """Those of the case, then those with other operands."""
    first = _on(case)
    yield first
    at = LAYOUTS.index(case.layout)
    layouts = LAYOUTS[at + 1 :] + LAYOUTS[: at + 1]
    for layout in layouts[:2]:
        yield _on(replace(case, layout=layout))
    if aliased := _aliased(first):
        yield aliased
    for other, layout in zip(case.others, layouts, strict=False):
        if not case.compiled or repr(other.params) == repr(case.sample.params):
            yield _on(replace(case, sample=other, layout=layout))
    home = case.device
    if home.index == 0 and home.backend.device_count(home.platform) > 1:
        yield _on(replace(case, device=find_device(home.name.rpartition(":")[0] + ":1")))


def _aliased(call: _Call) -> _Call | None:
    """The call with one tensor as all operands of a group, such as both of ``add``, that have the same shape and dtype."""
    op, kinds = call.case.op, [(call.case.op.operand(i).group, t.aval) for i, t in enumerate(call.operands)]
    last = {kind: i for i, kind in enumerate(kinds)}
    which = [last[kind] if kind[0] else i for i, kind in enumerate(kinds)]
    if op.name in UNALIASED or not op.operands or which == list(range(len(kinds))):
        return None
    return _Call(call.case, tuple(call.arrays[i] for i in which), tuple(call.operands[i] for i in which))


def _ways(call: _Call) -> set[str]:
    """How the operation runs from now on, of "plan" and "fast"."""
    op, params, operands, found = call.case.op, call.case.sample.params, call.operands, set[str]()
    try:
        plan = op.plans.get(planned.key_of(op, operands, params))
    except (AttributeError, TypeError, ValueError):
        plan = None
    if type(plan) is planned.OpPlan and plan.settings is config.compiled_with:
        made = planned.run(plan, op, operands, params)
        require(made is not None, "the plan gives no result, or none of the planned shape and dtype")
        call.results.append(made if isinstance(made, tuple) else (made,))
        found.add("plan")
    if op.fusion == "map" and not params and len(operands) < 3:
        kernel, _ = op.fast.get((call.case.device, *[t.dtype for t in operands]), (None, None))
        if kernel is not None and operands[0].shape and len({t.shape for t in operands}) == 1:
            found.add("fast")
    return found


def _go_fast(call: _Call) -> None:
    op, operands = call.case.op, call.operands
    call.results.append((binary(op, *operands) if len(operands) == 2 else unary(op, *operands),))


def _repeat(calls: Sequence[_Call]) -> set[str]:
    """Make all calls; returns how the operation and its rule ran."""
    first, *others = calls
    case = first.case
    for _ in range(planned.BEFORE + 2):
        first.go()
    ways = set() if case.compiled else _ways(first)
    for call in others:
        call.go()
    first.go()
    if "fast" in ways:
        for call in calls:
            _go_fast(call)
    if has_gradient(case.op, case.sample):
        for _ in range(PULLS if case.device.backend.replays and not case.compiled else 2):
            first.pull()
        ways |= {way for way, kept in (("replay", RULES), ("whole pass", PASSES)) if len(kept)}
        for call in others:
            if has_gradient(case.op, call.case.sample):
                call.pull()
        first.pull()
    for call in (first, *others[-1:]):
        if len(call.operands) > 1 and call.case.device is not others[-1].case.device:
            try:
                runner(case)((call.operands[0], *others[-1].operands[1:]), None)
            except DeviceMismatchError:
                continue
            require(False, "operands on two devices were taken")
    return ways


def check_repeated(case: Case) -> Check:
    """Check a case whose operation is repeated; returns the worst deviations of values and of gradients, and how it ran."""
    calls = list(_calls(case))
    first = calls[0]
    ways = _repeat(calls)
    kind = type(first.results[0][0].storage.data)
    for t in (t for call in calls for results in call.results for t in results):
        require(type(t.storage.data) is kind, f"a repeated result is held as {type(t.storage.data)}, not {kind}")
    for t in runner(case)(first.operands, None):
        overwrite(t)
    changed, rebound = first.results[-1][0].detach(), first.operands[0].detach()
    changed[...] = one_of(changed.dtype)
    rebound[...] = one_of(rebound.dtype)
    units = slope = 0.0
    hosts = []
    for call in calls:
        hosts.append((yield from _check_results(call)))
        units = max(units, hosts[-1][0])
    for call in calls:
        yield from check_unchanged("operand", call.operands, call.arrays)
    if first.gradients:
        found = yield from compare(case, first.arrays, first.gradients[0])
        require(found.ok, f"the gradient is off by {found}")
        slope = found.units
    for call, (_, kept) in zip(calls, hosts, strict=True):
        yield from _check_general(call, kept)
    return units, slope, frozenset(ways)


def _check_results(call: _Call) -> Check:
    """Hold the results of calls with the same operands against the reference; returns the worst deviation and the values."""
    case, count = call.case, len(call.case.avals[1])
    op, params = case.op, case.sample.params
    for results in call.results:
        require(len(results) == count, f"{len(results)} results instead of {count}")
        for t, aval in zip(results, case.avals[1], strict=True):
            require(t.aval == aval, f"a repeated result is {t.aval}, not {aval}")
            require(t.device is case.device, f"a repeated result is on {t.device}")
    found = iter((yield [t for results in call.results for t in results]))
    rounds = [tuple(islice(found, count)) for _ in call.results]
    flushes = case.device.backend.flushes_denormals(case.device)
    want = run_reference(op, call.arrays, params)
    worst = check_results(op, call.arrays, params, rounds[0], want, case.sample.edges, flushes)
    require(worst.ok, f"a repeated result is off by {worst}")
    for k, again in enumerate(rounds[1:], 2):
        for a, b in zip(again, rounds[0], strict=True):
            require(same_bits(a, b), f"call {k} of {len(rounds)} with the same operands gives other bits than the first")
    return worst.units, rounds[0]


def _check_general(call: _Call, kept: tuple[Array, ...]) -> Check:
    """Hold results and gradients against the general path: bits, the engine's kind of array, and whose memory it is."""
    general = runner(call.case)(call.operands, None)
    slopes = pulled(call.case, call.operands) if call.gradients else ()
    found = yield [*general, *slopes, *(g for gradients in call.gradients for g in gradients)]
    for a, b in zip(found, kept, strict=False):
        require(same_bits(a, b), "the general path gives other bits than the repeated operation")
    found = found[len(general) :]
    for at in range(len(slopes), len(found)):
        require(
            same_bits(found[at], found[at % len(slopes)]), "a repeated gradient has other bits than that of the general path"
        )
    backend = call.case.device.backend
    for results in call.results:
        for t, g in zip(results, general, strict=True):
            held = backend.describe(t.storage.data)
            require(held == t.aval, f"a repeated result is held as {held}, not {t.aval}")
            root, own = (None if s.storage.base is None else s.storage.root for s in (t, g))
            require(root is own, "a repeated result views other memory than that of the general path")
            require(t.storage.nbytes == g.storage.nbytes, f"a repeated result counts {t.storage.nbytes} bytes as its own")
