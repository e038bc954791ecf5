"""How a batch is made on the host: samples read, changed, joined, augmented and transformed; the same in every worker.

A ``Job`` says which samples a batch has and all that is random about it, so that who makes it makes no difference. An
``Assembly`` is what workers are sent; a ``Maker`` is one worker's, and holds its place in a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import Any

import numpy as np

from firebrick.core.errors import FirebrickError
from firebrick.data.augment import Augmentation
from firebrick.data.collate import collate as stack
from firebrick.data.dataset import works_by_rows
from firebrick.data.errors import LoaderError, SampleError
from firebrick.data.order import keys_at
from firebrick.data.owning import owned, owned_arrays, unshared
from firebrick.data.stream import IterableDataset
from firebrick.data.structure import LEAF, Structure, structure_of

Array = np.ndarray[Any, Any]
_SEEDS = 0x53414D50  # "SAMP": seeds of samples, apart from the streams of orders


@dataclass(frozen=True, slots=True)
class Job:
    """One batch to make.

    Attributes:
        number: Of the batch in its epoch.
        indices: int64 [rows], which samples; those of a stream are numbered as they come.
        places: int64 [rows], their places in the epoch of the whole loader.
        words: uint32 [rows, words], for the augmentations.
        seed: The loader's.
        epoch: Which.
        at: How many samples of the loader come before it.
        rows: Samples of the whole batch, where this is a part of it; else -1.
        low: The part's first row in it.
    """

    number: int
    indices: Array
    places: Array
    words: Array
    seed: int
    epoch: int
    at: int
    rows: int = -1
    low: int = 0

    def part(self, low: int, high: int) -> Job:
        """Rows of this batch alone."""
        rows = slice(low, high)
        return replace(
            self, indices=self.indices[rows], places=self.places[rows], words=self.words[rows], rows=len(self.indices), low=low
        )

    def owned(self) -> Job:
        """The same batch in arrays of its own, which a data set or augmentation may write into."""
        return replace(self, indices=self.indices.copy(), places=self.places.copy(), words=self.words.copy())


@dataclass(frozen=True, slots=True)
class Made:
    """A batch on the host.

    Attributes:
        arrays: Its leaves.
        structure: What is built over them.
        rows: Its number of samples: fewer than were asked for where a stream ended.
        took: When its making began and ended, by ``time.perf_counter_ns``, which all processes of a machine share.
        worker: Who made it; -1 for the consumer itself.
        samples: The structure of its samples, where the loader stacks them; None where something of the user's joins them.
    """

    arrays: list[Array]
    structure: Structure
    rows: int
    took: tuple[int, int] = (0, 0)
    worker: int = -1
    samples: Structure | None = None


class WorkerInfo:
    """The worker that reads a batch, and its seeds: ``worker_info()`` returns it within a data set or transform.

    Attributes:
        worker: Number of the worker, from 0; 0 also without workers.
        workers: Number of workers; 0 where the loader reads in its own thread.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> class Noise:
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def __getitem__(self, i):
        ...         return np.random.default_rng(fb.data.worker_info().seed).normal()
        >>> first, second = ([batch.tolist() for batch in fb.data.DataLoader(Noise(), 2, seed=0)] for _ in range(2))
        >>> first == second
        True
    """

    def __init__(self, worker: int, workers: int, job: Job) -> None:
        self.worker, self.workers = worker, workers
        self._job = job
        self._row = 0
        self._seeds: Array | None = None

    @property
    def seeds(self) -> Array:
        """A seed for each sample of the batch, uint64 [rows]: functions of the loader's seed, epoch and place alone."""
        if self._seeds is None:
            self._seeds = keys_at(self._job.seed, self._job.epoch, self._job.places, _SEEDS)
        return self._seeds

    @property
    def seed(self) -> int:
        """The seed of the sample that is read or changed now; of the batch's first one, where a whole batch is."""
        return int(self.seeds[self._row])

    def at(self, row: int) -> None:
        """The batch's sample ``row`` is the next one to be read or changed.

        Args:
            row: Number of the sample in its batch, from 0.
        """
        self._row = row


_info: ContextVar[WorkerInfo | None] = ContextVar("worker_info", default=None)


@contextmanager
def reading(job: Job, worker: int = 0, workers: int = 0) -> Iterator[WorkerInfo]:
    """A ``with`` block in which a worker reads a batch, as ``worker_info()`` says."""
    info = WorkerInfo(worker, workers, job)
    with info_scope(lambda outer: info):
        yield info


@contextmanager
def info_scope(change: Callable[[WorkerInfo | None], WorkerInfo | None]) -> Iterator[None]:
    """A ``with`` block in which ``worker_info()`` gives ``change`` of what it gave."""
    token = _info.set(change(_info.get()))
    try:
        yield
    finally:
        _info.reset(token)


def worker_info() -> WorkerInfo | None:
    """The worker that reads, within a data set, ``sample_transform``, ``collate`` or ``transform``; None outside of a loader.

    A data set that draws random numbers takes them from ``numpy.random.default_rng(worker_info().seed)``: they differ by
    sample and epoch, and are the same for any number of workers.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import DataLoader, worker_info
        >>> class Noise:
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def __getitem__(self, index):
        ...         return np.random.default_rng(worker_info().seed).random()
        >>> one = [batch.tolist() for batch in DataLoader(Noise(), 2)]
        >>> one == [batch.tolist() for batch in DataLoader(Noise(), 2, num_workers=2, worker="thread")]
        True
        >>> worker_info() is None
        True
    """
    return _info.get()


PARTS = ("dataset", "sample_transform", "collate", "augment", "transform")


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """What makes batches: a data set and the changes of its samples and batches (see ``DataLoader``)."""

    name: str
    dataset: Any
    sample_transform: Callable[[Any], Any] | None
    collate: Callable[..., Any] | None
    augment: tuple[Augmentation, ...]
    transform: Callable[..., Any] | None

    def same(self, other: Assembly) -> bool:
        """Whether both consist of the same objects."""
        return all(getattr(self, p) is getattr(other, p) for p in PARTS)

    @property
    def by_rows(self) -> bool:
        """Whether each row of a batch depends on its sample alone."""
        changes = [c for c in (*self.augment, self.transform) if c is not None]
        read = works_by_rows(self.dataset, "fetch") if self.whole else self.collate is None
        return read and all(works_by_rows(c, "__call__") for c in changes)

    @property
    def whole(self) -> bool:
        """Whether the data set is asked for whole batches."""
        return self.sample_transform is None and self.collate is None and hasattr(self.dataset, "fetch")


class Maker:
    """One worker's hand: ``maker(job)`` is the batch.

    Args:
        assembly: What to do.
        worker: Its number, from 0.
        workers: How many there are; 0 for the consumer itself.
    """

    def __init__(self, assembly: Assembly, worker: int = 0, workers: int = 0) -> None:
        self.assembly, self.worker, self.workers = assembly, worker, workers
        self._streams = isinstance(assembly.dataset, IterableDataset)
        self._stream: Iterator[Any] = iter(())
        self._at = (-1, 0)  # epoch of the stream, and the number of its next sample

    def __call__(self, job: Job) -> Made:
        """The batch.

        Raises:
            SampleError: A sample cannot be read, or a change fails; the cause is the error of whoever failed.
        """
        begun = perf_counter_ns()
        with reading(job, self.worker, self.workers) as info:
            made = self._make(job, info)
        return replace(made, took=(begun, perf_counter_ns()), worker=self.worker if self.workers else -1)

    def _make(self, job: Job, info: WorkerInfo) -> Made:
        do = self.assembly
        if not len(job.indices):  # a part without rows
            return Made([], LEAF, 0)
        like: Structure | None = None
        if do.whole:
            rows = len(job.indices)
            batch = self._attempt(job, "reading its samples", do.dataset.fetch, job.indices)
        else:
            samples = self._samples(job, info)
            rows = len(samples)
            if not rows:
                return Made([], LEAF, 0)
            batch = self._attempt(job, "joining its samples", do.collate or stack, samples)
            like = structure_of(batch) if do.collate is None else None
        structure, arrays = _taken_apart(batch)
        if do.whole:
            self._attempt(job, "reading its samples", _check_rows, arrays, rows)
        at, changed, batch = 0, None, None
        for change in do.augment:
            words = job.words[:rows, at : at + change.per_sample]
            changed = self._attempt(job, "augmenting it", change, words, *arrays)
            structure, arrays = self._attempt(job, "augmenting it", _changed, structure, len(arrays), changed)
            at += change.per_sample
        if do.transform is not None:
            batch = structure.build(iter(arrays))
            arrays, changed = [], None
            batch = self._attempt(job, "transforming it", do.transform, *(batch if isinstance(batch, tuple) else (batch,)))
            structure, arrays = _taken_apart(batch)
        made = [np.asarray(a) for a in arrays]
        arrays, changed, batch = [], None, None  # who holds them beside the list, changes them
        return Made(owned_arrays(made), structure, rows, samples=like)

    def _samples(self, job: Job, info: WorkerInfo) -> list[Any]:
        """The batch's samples, one by one; fewer where a stream ends."""
        change, samples = self.assembly.sample_transform, []
        read = partial(self._next, job.epoch) if self._streams else self.assembly.dataset.__getitem__
        row = -1
        try:
            for row, index in enumerate(job.indices.tolist()):
                info.at(row)
                sample = read(index)
                if sample is _END:
                    break
                samples.append(owned(sample if change is None else change(unshared(sample))))
        except Exception as e:  # whatever it is, it is named and raised
            index = int(job.indices[row])
            raise _failed(self.assembly.name, job, e, f"reading sample {index}", sample=index) from e
        info.at(0)
        return samples

    def _next(self, epoch: int, index: int) -> Any:
        """Sample ``index`` of a stream, or ``_END``."""
        where, at = self._at
        if where != epoch or at > index:
            self._stream, at = iter(self.assembly.dataset.stream(epoch, index)), index
        sample = next(islice(self._stream, index - at, None), _END)
        self._at = (epoch, index + 1)
        return sample

    def _attempt(self, job: Job, doing: str, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as e:  # whatever it is, it is named and raised
            raise _failed(self.assembly.name, job, e, doing) from e


def _taken_apart(batch: Any) -> tuple[Structure, list[Any]]:
    """The structure of a batch and its arrays; a list of arrays is a tuple."""
    if isinstance(batch, list):
        batch = tuple(batch)
    structure = structure_of(batch)
    return structure, structure.leaves(batch)


def _check_rows(arrays: Sequence[Any], rows: int) -> None:
    """See that ``fetch`` gave a row for each number that it was asked for."""
    shapes = [np.shape(a) for a in arrays]
    if any(shape[:1] != (rows,) for shape in shapes):
        raise LoaderError(
            f"fetch of {rows} numbers gives arrays of {rows} rows",
            f"shapes {', '.join(str(list(shape)) for shape in shapes)}",
            "return the samples of just these numbers, in their order",
        )


def _changed(structure: Structure, count: int, arrays: Any) -> tuple[Structure, list[Any]]:
    """A batch after an augmentation; a tuple of arrays may have another number of them, any other structure stays."""
    found = list(arrays)
    if structure.flat:
        structure = Structure(tuple, (), (LEAF,) * len(found))
    elif len(found) != count:
        raise LoaderError(
            f"an augmentation of a batch {structure} returns as many arrays as it is given: {count}",
            f"{len(found)} arrays",
            "return those that it does not change too; transform may change the structure",
        )
    return structure, found


_END: Any = object()


def _failed(name: str, job: Job, error: Exception, doing: str, **context: int) -> SampleError:
    """The error of a batch, of which ``error`` is the cause."""
    text, remedy = str(error), "mend what raised, or leave the sample out"
    if isinstance(error, FirebrickError):
        if "row" in error.context:
            context["sample"] = int(job.indices[error.context["row"]])
            doing += f", of which sample {context['sample']} differs,"
        text, remedy = f"{error.expected}; received {error.received}", error.remedy
    first = ", ".join(str(i) for i in job.indices[:8].tolist()) + (", …" if len(job.indices) > 8 else "")
    return SampleError(
        f'batch {job.number} of loader "{name}" (samples {first}) can be made',
        f"{doing} raised {type(error).__name__}: {text}",
        remedy,
        batch=job.number,
        **context,
    )
