"""Connectionist temporal classification: the likelihood of a label sequence over all its alignments with a longer input.

The forward recursion runs in log space over time, for all samples and all positions of the label sequence at once. Zero
probability is a large negative number rather than -inf, so that no gradient is NaN; where no alignment exists the loss is
infinite (or 0), with gradient 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.dtypes import float32, python_scalar
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.functions.checks import check_range, deferred, known_now, staged
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import (
    astype,
    clip,
    equal,
    exp,
    less,
    log,
    logical_and,
    logical_not,
    maximum,
    not_equal,
    where,
)
from firebrick.functions.indexing import in_default_int, take, take_along_axis
from firebrick.functions.losses import check_range_of, check_reduction, operands, reduce_loss
from firebrick.functions.movement import broadcast_to, expand_dims, reshape, squeeze
from firebrick.functions.statistical import mean
from firebrick.functions.windows import pad

_NEVER = -1e30  # the logarithm of zero: finite, and far below any sum of logarithms of probabilities

Lengths = Tensor | Sequence[int]


@answers_arguments
def ctc_loss(
    log_probabilities: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, /, *, blank: int = 0,
    zero_infinity: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-log of the probability of each target sequence, summed over all alignments of it with the input.

    An alignment gives each time step a label or the blank; repeats of a label without a blank between are one.

    Args:
        log_probabilities: Floating tensor [time, batch, classes], as from ``log_softmax``.
        targets: Integer tensor [batch, longest], padded with anything, or all targets one after another [Σ target_lengths].
        input_lengths: Time steps of each sample: integer tensor [batch] or ints, in [0, time].
        target_lengths: Labels of each sample, likewise.
        blank: Class of the blank; no target holds it.
        zero_infinity: Whether a sample without any alignment (its input is too short) has the loss 0 instead of infinity. Its
            gradient is 0 either way.
        reduction: "mean" (of the losses, each divided by its target's length), "sum" or "none".

    Returns:
        0-d tensor, or [batch] for "none".

    Raises:
        OutOfRangeError: A target is no class or the blank, or a length lies outside its axis.

    Source: Graves et al., "Connectionist Temporal Classification", ICML 2006.

    Example:
        >>> import firebrick as fb
        >>> x = fb.log_softmax(fb.zeros((2, 1, 2)))
        >>> round(fb.exp(-fb.ctc_loss(x, fb.asarray([[1]]), [2], [1], reduction="none")).tolist()[0], 4)  # 01, 10, 11 of 4
        0.75
    """
    name = "ctc_loss"
    check_reduction(name, reduction)
    blank = python_scalar(blank)
    given = {"input_lengths": input_lengths, "target_lengths": target_lengths}
    operands(
        name, log_probabilities=log_probabilities, targets=targets, **{k: v for k, v in given.items() if isinstance(v, Tensor)}
    )
    _check(name, log_probabilities, targets, blank)
    time, batch, classes = log_probabilities.shape
    inputs, input_counts = _lengths(name, "input_lengths", input_lengths, batch, log_probabilities)
    outputs, target_counts = _lengths(name, "target_lengths", target_lengths, batch, log_probabilities)
    targets = _padded(name, targets, outputs, target_counts, batch)
    longest = targets.shape[1]
    _check_counts(name, "input_lengths", inputs, input_counts, time)
    _check_counts(name, "target_lengths", outputs, target_counts, longest)
    inputs, outputs, targets = in_default_int(inputs), in_default_int(outputs), in_default_int(targets)
    counted = less(_positions(longest, targets), expand_dims(outputs, axis=1))
    targets = where(counted, targets, 1 if blank == 0 else 0)  # what pads them is never looked at
    if classes > 1:  # with the blank alone, no target holds anything
        check_range_of("targets", name, targets, 0, classes)
    _check_no_blank(name, targets, counted, blank)

    scores = log_probabilities if log_probabilities.dtype.itemsize >= 4 else astype(log_probabilities, float32)
    likelihood = _log_likelihood(scores, targets, inputs, outputs, blank)
    impossible = less(likelihood, 0.5 * _NEVER)  # which NaN is not: it stays
    losses = where(impossible, 0.0 if zero_infinity else float("inf"), -likelihood)
    losses = astype(losses, log_probabilities.dtype, copy=False)
    if reduction == "mean":
        return mean(losses / clip(astype(outputs, losses.dtype), 1.0))
    return reduce_loss(losses, reduction)


def _log_likelihood(scores: Tensor, targets: Tensor, inputs: Tensor, outputs: Tensor, blank: int) -> Tensor:
    """log p(target) [batch] by the forward recursion over states blank, l₁, blank, l₂, …, blank."""
    time, batch, _ = scores.shape
    longest = targets.shape[1]
    states = 2 * longest + 1
    # labels stand at the odd states; one may follow the label before it without a blank between if it differs from it
    odd = pad(expand_dims(targets, axis=2), ((0, 0), (0, 0), (1, 0)), value=blank)
    labels = pad(reshape(odd, (batch, 2 * longest)), ((0, 0), (0, 1)), value=blank)
    before = pad(labels[:, : states - 2], ((0, 0), (2, 0)), value=blank) if states > 1 else labels
    may_skip = logical_and(not_equal(labels, blank), not_equal(labels, before))
    place = _positions(states, labels)
    may_skip = logical_and(may_skip, place > 1)  # the first label has none before it
    barred = (1.0 - astype(may_skip, scores.dtype)) * _NEVER
    emitted = take_along_axis(scores, broadcast_to(expand_dims(labels, axis=0), (time, batch, states)), axis=2)
    emitted = clip(emitted, _NEVER)
    first = astype(logical_and(place < 2, place < expand_dims(outputs * 2 + 1, axis=1)), scores.dtype)
    alpha = (1.0 - first) * _NEVER
    if time:
        alpha = alpha + emitted[0]
    for t in range(1, time):
        wide = pad(alpha, ((0, 0), (2, 0)), value=_NEVER)
        one, two = wide[:, 1 : states + 1], wide[:, :states] + barred
        top = maximum(maximum(alpha, one), two).detach()
        moved = log(exp(alpha - top) + exp(one - top) + exp(two - top)) + top + emitted[t]
        alpha = where(expand_dims(inputs > t, axis=1), moved, alpha)
    last = expand_dims(outputs * 2, axis=1)
    at_blank = squeeze(take_along_axis(alpha, last, axis=1), 1)
    at_label = squeeze(take_along_axis(alpha, clip(last - 1, 0), axis=1), 1)
    at_label = where(outputs > 0, at_label, _NEVER)
    top = maximum(at_blank, at_label).detach()
    total = log(exp(at_blank - top) + exp(at_label - top)) + top
    # an input of no steps emits nothing: it is certain for an empty target, impossible for another
    return where(inputs > 0, total, astype(outputs > 0, scores.dtype) * _NEVER)


def _positions(n: int, like: Tensor) -> Tensor:
    """0 … n-1 as [1, n]."""
    return _integers(np.arange(n)[None], like.device)


def _integers(values: np.ndarray[Any, Any], device: Device) -> Tensor:
    """Integers of the device's default dtype."""
    made: Tensor = hooks.from_host(values.astype(as_dtype(device.backend.default_int(device)).np), device)
    return made


def _check(name: str, log_probabilities: Tensor, targets: Tensor, blank: Any) -> None:
    if log_probabilities.ndim != 3 or log_probabilities.dtype.kind != "float":
        raise (ShapeError if log_probabilities.ndim != 3 else DTypeError)(
            f"{name}: log_probabilities is a floating tensor [time, batch, classes]",
            describe("log_probabilities", log_probabilities),
            "reshape or cast it; one sample is a batch of one",
        )
    if targets.ndim not in (1, 2) or (targets.ndim == 2 and targets.shape[0] != log_probabilities.shape[1]):
        raise ShapeError(
            f"{name}: targets is [batch, longest], or all targets one after another",
            f"{describe('targets', targets)} and {describe('log_probabilities', log_probabilities)}",
            "fb.swapaxes(log_probabilities, 0, 1): its axes are [time, batch, classes]"
            if targets.ndim == 2 and targets.shape[0] == log_probabilities.shape[0]
            else "pad the targets to one length; target_lengths says how many labels count",
        )
    if isinstance(blank, bool) or not isinstance(blank, int) or not 0 <= blank < log_probabilities.shape[2]:
        raise ConfigError(f"{name}: blank is a class, in [0, {log_probabilities.shape[2]})", repr(blank), "pass e.g. 0")


def _lengths(name: str, key: str, given: Any, batch: int, beside: Tensor) -> tuple[Tensor, np.ndarray[Any, Any] | None]:
    """Lengths as a tensor beside the scores, and on the host (None on the meta device, and for a tensor inside a trace)."""
    if isinstance(given, (list, tuple)) and any(isinstance(n, Weak) for n in given):
        given = asarray(given, device=beside.device)
    if isinstance(given, Tensor):
        if not given.dtype.is_integer:
            raise DTypeError(f"{name}: {key} need an integer dtype", describe(key, given), "cast them to fb.int64")
        if given.shape != (batch,):
            raise ShapeError(f"{name}: {key} is [{batch}], one number a sample", describe(key, given), "reshape it")
        return given, None if given.device.engine == "meta" or deferred(given) else hooks.to_host(given)
    if isinstance(given, (list, tuple)):
        given = [python_scalar(n) for n in given]
    if not isinstance(given, list) or any(isinstance(n, bool) or not isinstance(n, int) for n in given):
        raise not_a_tensor(name, key, given, None)
    if len(given) != batch:
        raise ShapeError(f"{name}: {key} holds {batch} numbers, one a sample", f"{len(given)} numbers", "pass one for each")
    counts = np.asarray(given, np.int64)
    return _integers(counts, beside.device), counts


def _check_counts(name: str, key: str, lengths: Tensor, counts: np.ndarray[Any, Any] | None, most: int) -> None:
    if counts is None:
        check_range(name, key, lengths, 0, most + 1, "check the lengths")
    elif counts.size and (int(counts.min()) < 0 or int(counts.max()) > most):
        raise OutOfRangeError(
            f"{name}: {key} lie in [0, {most}]", f"{key} from {int(counts.min())} to {int(counts.max())}", "check the lengths"
        )


def _padded(name: str, targets: Tensor, lengths: Tensor, counts: np.ndarray[Any, Any] | None, batch: int) -> Tensor:
    """Targets as [batch, longest], from rows or from one after another."""
    if targets.ndim == 2:
        return targets
    if counts is None:
        remedy = "pad the targets to [batch, longest], or have target_lengths as Python ints"
        known_now(name, "where each target begins", "target_lengths", lengths, remedy)
        raise UnsupportedError(
            f"{name}: on the meta device targets are [batch, longest]", describe("targets", targets), "pad the targets"
        )
    if int(counts.sum()) != targets.shape[0] or (counts.size and int(counts.min()) < 0):
        raise ShapeError(
            f"{name}: targets one after another are as many as target_lengths add up to",
            f"{describe('targets', targets)} and lengths that add up to {int(counts.sum())}",
            "check the lengths, or pad the targets to [batch, longest]",
        )
    longest = int(counts.max(initial=0))
    if not targets.shape[0]:
        return reshape(targets, (batch, 0)) if batch == 0 else broadcast_to(reshape(targets, (1, 0)), (batch, 0))
    starts = np.cumsum(counts) - counts
    places = np.minimum(starts[:, None] + np.arange(longest)[None], targets.shape[0] - 1)
    return reshape(take(targets, _integers(places.reshape(-1), targets.device)), (batch, longest))


def _check_no_blank(name: str, targets: Tensor, counted: Tensor, blank: int) -> None:
    def error() -> OutOfRangeError:
        return OutOfRangeError(
            f"{name}: no target is the blank, {blank}",
            describe("targets", targets) + f", which holds {blank} within target_lengths",
            "keep one class for the blank alone, and name it with blank=",
        )

    if targets.device.engine == "meta" or staged(lambda: logical_not(logical_and(equal(targets, blank), counted)), error):
        return
    if bool(((hooks.to_host(targets) == blank) & hooks.to_host(counted)).any()):
        raise error()
