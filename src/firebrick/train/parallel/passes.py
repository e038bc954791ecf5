"""The forward and backward pass of one share of a batch, whole or in parts, on the model that its device has.

A part of a batch draws the random numbers that the whole batch would have drawn in its rows, so neither the number of devices
nor that of parts changes what dropout drops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from firebrick.autodiff.tape import no_grad
from firebrick.autodiff.transforms import value_and_grad
from firebrick.core.commit import Commit
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.functions.parts import part_of_batch
from firebrick.nn import Module
from firebrick.nn.normalisation import COUNT, RUNNING
from firebrick.random import default_generator, row_offset
from firebrick.train.batches import arguments, batches_of, rows_in, rows_of, tensors_of
from firebrick.train.leaves import as_given
from firebrick.train.parallel.arrivals import Arrivals
from firebrick.train.strategy import Forward, Named, Share, by_name

Found = tuple[Tensor, Any, Named, Named]


@dataclass(frozen=True)
class Pass:
    """Forward and backward on one device's model: ``(loss, extra, gradients by parameter, running statistics by name)``.

    Args:
        fn: ``fn(model, *batch) -> (mean loss, anything)``.
        model: The device's.
        joined: Whether other models share the batch: running statistics are returned.
        arrivals: Who hears of gradients during the backward pass, if somebody does.
    """

    fn: Forward
    model: Module
    joined: bool
    arrivals: Arrivals | None = None

    def __call__(self, batch: Any) -> Found:
        hearing = nullcontext() if self.arrivals is None else self.arrivals.told()
        with hearing, part_of_batch() if self.joined else nullcontext():
            (loss, extra), gradients = value_and_grad(self.fn, has_aux=True)(self.model, *arguments(as_given(batch)))
        buffers = {n: b.detach() for n, b in running_statistics(self.model)} if self.joined else {}
        return loss, extra, by_name(self.model, gradients), buffers


def running_statistics(model: Module) -> list[tuple[str, Tensor]]:
    """The buffers that follow the means of batches, and so are joined as means are."""
    return [(n, b) for n, b in model.named_buffers() if n.rpartition(".")[2] in RUNNING]


def add(total: Named, found: Named, before: float, share: float) -> Named:
    """before · total + share · found, where either may lack a name."""
    out = {n: g * before for n, g in total.items()}
    for n, g in found.items():
        out[n] = out[n] + g * share if n in out else g * share
    return out


def take_share(
    run: Callable[[Any], Found],
    adding: Callable[..., Named],
    model: Module,
    batch: Any,
    rows_before: int | Sequence[int],
    parts: int,
    arrivals: Arrivals | None = None,
    rows: Sequence[Sequence[int]] | None = None,
) -> Share:
    """One device's share of a step.

    Args:
        run: A ``Pass``, or its graph.
        adding: ``add``, or its graph.
        model: The device's.
        batch: The device's rows; those of each batch in a ``BatchGroup``, whose gradients are joined as those of parts are.
            Each batch of a group draws random numbers of its own.
        rows_before: Rows of the whole batch that come before them; of a group, one number for each batch.
        parts: Parts that are run one after the other.
        arrivals: Those of ``run``. Who listens hears, during the last part, of the gradients of all parts.
        rows: Of each batch, those of every device that meets this one in batch norms; the device's own if there is none.
    """
    work = _parts(batch, [rows_before] if isinstance(rows_before, int) else rows_before, parts, rows)
    if len(work) == 1:
        with row_offset(work[0].first), _untracked(arrivals):
            loss, extra, gradients, buffers = run(work[0].batch)
        return Share(loss, (extra,), gradients, work[0].rows, buffers)
    extras: list[Any] = []
    total: Named = {}
    start, mean, statistics = 0, None, _Statistics(model)
    for part in work:
        stop = start + part.rows
        last, before, share = part is work[-1], start / stop, part.rows / stop
        joined = _Joined(arrivals, adding, total, before, share) if last and arrivals is not None else None
        hearing = nullcontext() if arrivals is None else arrivals.heard_by(joined)
        again = drawing_again(model, tensors_of(part.batch)[-1].device, last=part.last)
        with row_offset(part.first), part_of_batch(), again, hearing, _untracked(arrivals):
            loss, extra, gradients, buffers = run(part.batch)
        statistics.take(adding, part.weight, last=part.last)
        extras.append(extra)
        if mean is None:
            total = gradients
        elif joined is None:
            total = adding(total, gradients, before, share)
        else:
            total = joined.found
        with no_grad():
            mean = loss if mean is None else mean * before + loss * share
        start = stop
    assert mean is not None
    return Share(mean, tuple(extras), total, start, {n: b for n, b in statistics.now().items() if n in buffers})


class _Part(NamedTuple):
    """Rows that are run at once.

    Attributes:
        batch: The rows.
        first: Number of the first one in its batch.
        rows: How many.
        last: Whether they are the last of the device's rows of that batch.
        weight: How many rows the batch norms see, of all devices that meet there.
    """

    batch: Any
    first: int
    rows: int
    last: bool
    weight: int


def _parts(
    batch: Any, rows_before: Sequence[int], parts: int, rows: Sequence[Sequence[int]] | None
) -> list[_Part]:  # fmt: skip
    """The parts of a batch, or of each batch in a group."""
    found = []
    for k, (one, before) in enumerate(zip(batches_of(batch), rows_before, strict=True)):
        ends = cuts(rows_in(one), parts)
        met = [cuts(n, parts) for n in (rows[k] if rows is not None else (rows_in(one),))]
        for at, (a, b) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            weight = sum(e[at] - (e[at - 1] if at else 0) for e in met)
            found.append(_Part(one if len(ends) == 1 else rows_of(one, a, b), before + a, b - a, b == ends[-1], weight))
    return found


class _Statistics:
    """The running statistics of a model while it runs the parts of a batch.

    Each part begins with those from before the batch, and the batch leaves the mean of what its parts made of them, weighted by
    rows, as devices that divide a batch do. It counts as one batch.

    Args:
        model: The device's.
    """

    def __init__(self, model: Module) -> None:
        self._means = running_statistics(model)
        self._held = [*(b for _, b in self._means), *(b for n, b in model.named_buffers() if n.rpartition(".")[2] == COUNT)]
        self._begin()

    def _begin(self) -> None:
        self._before = [b.detach() for b in self._held]
        self._found: Named = {}
        self._weight = 0

    def now(self) -> Named:
        """The running means and variances."""
        return {n: b.detach() for n, b in self._means}

    def take(self, adding: Callable[..., Named], weight: int, *, last: bool) -> None:
        """Take what a part has made of them.

        Args:
            adding: ``add``, or its graph.
            weight: Of the part.
            last: Whether it is the last one of its batch.
        """
        if not self._held:
            return
        found = self.now()
        if not (last and not self._found):
            before, self._weight = self._weight, self._weight + weight
            share = weight / self._weight
            with no_grad():
                self._found = adding(self._found, found, before / self._weight, share) if self._found else found
                commit = Commit()
                if last:
                    for n, b in self._means:
                        commit.rebind(b, self._found[n])
                else:
                    for b, old in zip(self._held, self._before, strict=True):
                        commit.rebind(b, old)
                commit.apply()
        if last:
            self._begin()


def _untracked(arrivals: Arrivals | None) -> Any:
    """A ``with`` block for a pass that tells, through which no gradient of the caller's flows: parameters may be tracked."""
    return nullcontext() if arrivals is None else no_grad()


class _Joined:
    """Hears of the gradients of a last part, and passes them on joined with those of the parts before: ``add``, by buckets."""

    def __init__(
        self, arrivals: Arrivals, adding: Callable[..., Named], total: Named, before: float, share: float
    ) -> None:  # fmt: skip
        self._arrivals, self._listener = arrivals, arrivals.listener
        self._adding, self._total, self._before, self._share = adding, total, before, share
        self.found: Named = {}

    def __call__(self, bucket: int, gradients: Named) -> None:
        earlier = {n: self._total[n] for n in self._arrivals.buckets[bucket] if n in self._total}
        joined = self._adding(earlier, gradients, self._before, self._share)
        self.found.update(joined)
        if self._listener is not None:
            self._listener(bucket, joined)


def together(*passes: list[Share]) -> list[Share]:
    """The shares of several backward passes of one step, as of their sum: for loops of your own with several losses.

    Args:
        passes: What ``strategy.grads`` returned for the same batch, several times.

    Returns:
        Shares whose ``extra`` holds that of each pass.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Share, together
        >>> first, second = (Share(fb.asarray(1.0), (), {"w": fb.ones(2)}, 4) for _ in range(2))
        >>> (share,) = together([first], [second])
        >>> share.loss.item(), share.gradients["w"].tolist()
        (2.0, [2.0, 2.0])
    """
    joined = []
    for shares in zip(*passes, strict=True):
        total: Named = {}
        for share in shares:
            total = add(total, share.gradients, 1.0, 1.0)
        with no_grad():
            loss = sum((s.loss for s in shares[1:]), shares[0].loss)
        joined.append(Share(loss, tuple(s.extra for s in shares), total, shares[0].samples, shares[-1].buffers))
    return joined


def cuts(rows: int, parts: int) -> list[int]:
    """Where parts of rows end that are as equal as can be; none is empty."""
    parts = min(parts, rows)
    return [rows * (i + 1) // parts for i in range(parts)]


@contextmanager
def drawing_again(model: Module, device: Device, *, last: bool) -> Iterator[None]:
    """A ``with`` block after which the generators are where they were, so that the next part of a batch draws from the same
    keys; after the last part they stay moved."""
    if last:
        yield
        return
    generators = [*model.generators().values(), default_generator(device)]
    before = [g.mark() for g in generators]
    try:
        yield
    finally:
        for g, mark in zip(generators, before, strict=True):
            g.return_to(mark)


@contextmanager
def put_back(models: Sequence[Module], *, always: bool = False) -> Iterator[None]:
    """A ``with`` block after whose failure, or ``always``, generators and buffers of models are as they were before it."""
    generators = [g for m in models for g in m.generators().values()]
    generators += [default_generator(d) for d in {p.device: None for m in models for _, p in m.named_parameters()}]
    before = [g.mark() for g in generators]
    buffers = [(b, b.detach()) for m in models for _, b in m.named_buffers()]
    failed = True
    try:
        yield
        failed = False
    finally:
        if failed or always:
            for g, mark in zip(generators, before, strict=True):
                g.return_to(mark)
            with no_grad():
                for b, value in buffers:
                    b._rebind(value)
