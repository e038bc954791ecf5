"""Conformance of an engine: every case held against the reference, and against what Firebrick promises of any result.

Of each case it is checked that values, dtype, shape and device are right however they are read, and read at once; that
operands, earlier results and earlier views stay as they were; that a result shares no memory with its operands that
anyone could notice; that a destination is rebound; and that gradients agree with those in float64. ``testing.repeated``
checks operations that run again and again, which engines run in faster ways.

A check is a generator, which yields the tensors whose values it needs next: those of several cases are read with one wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.backends.fallback import explain_fallbacks
from firebrick.backends.registry import find_device
from firebrick.core.aval import Aval
from firebrick.core.bind import binary, unary
from firebrick.core.config import config
from firebrick.core.dtypes import bfloat16
from firebrick.core.tensor import Tensor
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.declare import Array
from firebrick.testing.cases import Case, cases
from firebrick.testing.checks import (
    Check,
    Run,
    Wrong,
    check_unchanged,
    filled,
    filler,
    one_of,
    overwrite,
    placed,
    require,
    runner,
    same_bits,
)
from firebrick.testing.gradients import compare, has_gradient, pulled, references_kept
from firebrick.testing.repeated import check_repeated
from firebrick.testing.report import Report, Verdict

_TOGETHER = 32
"""Maximum number of cases whose values are read with one wait."""

# reading


def _by_item(t: Tensor) -> Array:
    return np.asarray(t.item()).astype(t.dtype.np).reshape(t.shape)


def _by_dlpack(t: Tensor) -> Array:
    return np.from_dlpack(t)


_WAYS: dict[str, Callable[[Tensor], Array] | None] = {
    "numpy()": lambda t: t.numpy(),
    "DLPack": _by_dlpack,
    "fb.read": None,
    "item()": _by_item,
    "repr": lambda t: np.asarray(repr(t)),
}
"""Ways of reading a tensor; ``fb.read`` is how the values that a check yields are read."""


def _readable(way: str, t: Tensor) -> bool:
    if way == "item()":
        return t.size == 1 and t.dtype.kind != "complex"
    if way == "DLPack":
        if t.dtype is bfloat16 or t.dtype.kind == "storage":  # NumPy knows none of these in DLPack
            return False
        try:
            return t.__dlpack_device__()[0] == 1
        except NotImplementedError:
            return False
    return True


def _read_all(t: Tensor, first: int) -> Check:
    """The values, after checking that every way of reading shows them; way number ``first`` is the first to read."""
    names = list(_WAYS)
    order = [n for n in names[first % len(names) :] + names[: first % len(names)] if _readable(n, t)]
    shown = {}
    for name in order:
        if name != "repr" or name == order[0]:
            by = _WAYS[name]
            shown[name] = (yield [t])[0] if by is None else by(t)
    host = shown.pop("numpy()")
    require(not host.flags.writeable, "numpy() must be read-only")
    text = shown.pop("repr", None)
    if text is not None:
        body = np.array2string(host, separator=", ", prefix="tensor(", threshold=100)
        require(str(text).startswith(f"tensor({body}, dtype={t.dtype.name}"), f"printing shows {text}, not {body}")
    for way, array in shown.items():
        require(array.shape == host.shape, f"{way} shows shape {array.shape}, numpy() {host.shape}")
        require(same_bits(array, host), f"{way} shows other values than numpy()")
    return host


# checking


def _destination(case: Case, operands: tuple[Tensor, ...], avals: tuple[Aval, ...]) -> Tensor | None:
    if case.destination == "none":
        return None
    if case.destination == "aliased":
        return next(t for t in operands if t.aval == avals[0])
    return filler(avals[0], case.device)


def _check(case: Case) -> Check:
    """Check one case; returns the worst deviation of its values and of its gradients, and no ways of ``Verdict.ways``."""
    op, params = case.op, case.sample.params
    arrays, operands = placed(case)
    yield from check_unchanged("building the layout: operand", operands, arrays)
    avals = case.avals[1]
    run = runner(case)
    slope = 0.0
    if has_gradient(op, case.sample):
        found = yield from compare(case, arrays, pulled(case, operands))
        require(found.ok, f"the gradient is off by {found}")
        slope = found.units
        yield from check_unchanged("the gradient: operand", operands, arrays)

    out = _destination(case, operands, avals)
    earlier = (out[...], out.detach()) if out is not None and case.destination == "viewed" else ()
    results = run(operands, out)

    require(len(results) == len(avals), f"{len(results)} results instead of {len(avals)}")
    for t, aval in zip(results, avals, strict=True):
        require(t.aval == aval, f"the result is {t.aval}, not {aval}")
        require(t.device is case.device, f"the result is on {t.device}")
    hosts = []
    for t in results:
        hosts.append((yield from _read_all(t, case.index)))
    kept = tuple(np.array(h) for h in hosts)
    want = run_reference(op, arrays, params)
    flushes = case.device.backend.flushes_denormals(case.device)
    worst = check_results(op, arrays, params, tuple(hosts), want, case.sample.edges, flushes)
    require(worst.ok, f"the result is off by {worst}")

    if out is not None:
        require(results[0] is out, "out= must be the result")
    yield from check_unchanged("the destination's earlier view", earlier, [filled(avals[0])] * len(earlier))
    others = [i for i, t in enumerate(operands) if t is not out]
    yield from check_unchanged("operand", [operands[i] for i in others], [arrays[i] for i in others])
    if out is None:
        yield from _check_apart(case, run, operands, arrays, results, kept)
    return worst.units, slope, frozenset()


def _check_apart(
    case: Case, run: Run, operands: tuple[Tensor, ...], arrays: tuple[Array, ...], results: tuple[Tensor, ...],
    kept: tuple[Array, ...],
) -> Check:  # fmt: skip
    """Check that results and operands share nothing that anyone can notice, and that the fast path gives the same bits."""
    op = case.op
    if not case.compiled and op.fusion == "map" and not case.sample.params and len(operands) < 3:
        fast = binary(op, *operands) if len(operands) == 2 else unary(op, *operands)
        require(same_bits((yield [fast])[0], kept[0]), "the fast path gives other bits than the general one")
    for found, first in zip((yield run(operands, None)), kept, strict=True):
        require(same_bits(found, first), "the same op on the same operands gives other bits the second time")
    for t in run(operands, None):
        overwrite(t)
    yield from check_unchanged("reusing the memory of a result: operand", operands, arrays)
    yield from check_unchanged("reusing the memory of another result: result", results, kept)
    changed = results[0].detach()
    changed[...] = one_of(changed.dtype)
    yield from check_unchanged("assigning to a result: operand", operands, arrays)
    rebound = operands[0].detach()
    rebound[...] = one_of(rebound.dtype)
    yield from check_unchanged("assigning to an operand: operand", operands, arrays)
    yield from check_unchanged("assigning to an operand: result", results, kept)


class _Running:
    """A case that is being checked: what its check waits for, and its verdict at the end."""

    def __init__(self, case: Case) -> None:
        self.case, self.wanted = case, list[Tensor]()
        self.check = check_repeated(case) if case.repeated else _check(case)
        self.verdict: Verdict | None = None
        self.go(lambda: next(self.check))

    def go(self, step: Callable[[], Sequence[Tensor]]) -> None:
        """Go on to the next values that are needed, or to the end. Whatever goes wrong is in the verdict."""
        case, units, slope, ways, message = self.case, 0.0, 0.0, frozenset[str](), ""
        try:
            with config.scope(fallback="silent"):
                self.wanted = list(step())
            return
        except StopIteration as e:
            units, slope, ways = e.value
        except Wrong as e:
            message = str(e)
        except Exception as e:  # noqa: BLE001 - an engine may raise anything, and the verdict says what
            message = f"{type(e).__name__}: {e}"
        self.verdict = Verdict(
            not message, case.op.name, case.dtype, case.sample.name, case.layout, case.destination, units, message, slope,
            case.mode, ways,
        )  # fmt: skip

    def read(self) -> None:
        """Read what the check waits for, and go on."""
        try:
            values = read(self.wanted)
        except Exception as e:  # noqa: BLE001 - the check ends by it
            error = e
            self.go(lambda: self.check.throw(error))
        else:
            self.go(lambda: self.check.send(values))


def _together(cases: Sequence[Case]) -> list[Verdict]:
    """The verdicts of cases that are checked step by step, with one wait for a step of all of them."""
    running = [_Running(case) for case in cases]
    while waiting := [r for r in running if r.verdict is None]:
        try:
            values = iter(read([t for r in waiting for t in r.wanted]))
        except Exception:  # noqa: BLE001 - one of them: each is read for itself
            for r in waiting:
                r.read()
            continue
        for r in waiting:
            found = [next(values) for _ in r.wanted]
            r.go(lambda r=r, found=found: r.check.send(found))  # type: ignore[misc]
    return [r.verdict for r in running if r.verdict is not None]


def _alone(case: Case) -> Verdict:
    return _together([case])[0]


def run_cases(cases: Iterable[Case]) -> Iterator[Verdict]:
    """Check cases, several at a time; a failure of one is not one of those that are checked at the same time.

    Args:
        cases: What ``cases`` yields.

    Returns:
        The verdicts, in the order of the cases. Whatever goes wrong, also an exception, is in them.

    Example:
        >>> from firebrick.testing import cases, run_cases
        >>> all(v.ok for v in run_cases(cases("numpy", ops=["exp"], dtypes=["float64"])))
        True
    """
    cases = iter(cases)
    while some := list(islice(cases, _TOGETHER)):
        verdicts = _together(some)
        failed = [k for k, v in enumerate(verdicts) if not v.ok] if len(some) > 1 else []
        again = {k: _alone(some[k]) for k in failed}
        for k, verdict in enumerate(verdicts):
            if k in again and again[k].ok:
                if any(not v.ok for v in again.values()):
                    verdict = again[k]  # an error of another case ended this one
                else:
                    verdict = replace(verdict, message=f"together with other cases, not alone: {verdict.message}")
            yield verdict


def run_case(case: Case) -> Verdict:
    """Check one case. Whatever goes wrong, also an exception, is in the verdict.

    Args:
        case: What ``cases`` yields.

    Example:
        >>> from firebrick.testing import cases, run_case
        >>> run_case(next(cases("numpy", ops=["exp"], dtypes=["float64"]))).ok
        True
    """
    return _alone(case)


def conformance(
    device: Any,
    ops: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    subset: str = "pairwise",
    seed: int = 0,
    modes: Iterable[str] | None = None,
) -> Report:
    """Compare an engine with the reference, on one of its devices.

    Args:
        device: Device or device string.
        ops: Names of ops; all by default.
        dtypes: Names of dtypes; all that the device stores by default.
        subset: ``"pairwise"`` (minutes), ``"full"`` (many times as long), ``"thin"`` (half of pairwise) or ``"turns"`` (a
            third); see ``cases``.
        seed: Of the samples and of the choice of layouts and destinations.
        modes: ``"eager"`` (each operation at once), ``"jit"`` (by executables of graphs of one operation), ``"repeated"`` and
            ``"repeated jit"`` (the same many times in a row, among calls with other operands); all by default.

    Returns:
        Counts, worst deviations by op, and the failures with their names.

    Example:
        >>> from firebrick.testing import conformance
        >>> conformance("numpy", ops=["add", "matmul"], dtypes=["float32"], subset="turns").ok
        True
    """
    home = find_device(device)
    report = Report(home.name, seed)
    before = {(op, name): n for op, name, n in explain_fallbacks()}
    with references_kept():
        for verdict in run_cases(cases(home, ops, dtypes, subset, seed, modes)):
            report.add(verdict)
    for op, name, n in explain_fallbacks():
        if name == home.name and n > before.get((op, name), 0):
            report.fallbacks.add(op)
    return report
