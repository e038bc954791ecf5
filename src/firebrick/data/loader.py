"""``DataLoader``: batches of a data set, in a seeded order, always on the loader's device.

A loader is a choice of *positions* of the shuffled epoch, a batch size and a device. ``slice`` and ``split`` choose among the
positions, ``to`` and ``sharded`` change the devices, and each returns a new loader; so they compose in any order, the last
device wins, with one shard as with many, and no loader changes another's order. Positions and their samples are computed for
some batches at a time, so an epoch starts at once and takes no memory, however long it is.

Position p of epoch e shows sample f(seed, e, p) (see ``samplers``), whatever the device, the slice, the number of shards or of
workers. Here is what is asked for and in which order; ``assembly`` makes batches, ``workers`` make them ahead, ``placing``
brings them to devices.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core import timeline
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError, FirebrickError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.timeline import HOST
from firebrick.data.assembly import Assembly, Job, Made, Maker
from firebrick.data.augment import Augmentation, augmentation_words
from firebrick.data.dataset import Dataset
from firebrick.data.errors import LoaderError, UnknownLengthError, all_dropped
from firebrick.data.identity import Facts, Fingerprint, check_cursor, check_form, digest_of, order_of_stream
from firebrick.data.iteration import Iteration
from firebrick.data.order import BLOCK, SORTED
from firebrick.data.placing import Divide, Placing, places_of
from firebrick.data.positions import Positions, Shard, Slice
from firebrick.data.samplers import (
    BucketSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedSampler,
    checked_order,
    computes_positions,
)
from firebrick.data.stream import IterableDataset
from firebrick.data.structure import Structure
from firebrick.data.workers import MOST, MOST_AHEAD, Here, Pool

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose variables have defaults

    Batch = TypeVar("Batch", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")

Array = np.ndarray[Any, Any]


class DataLoader(Generic[Batch]):
    """Batches of a data set on one device.

    A batch has the structure of a sample: a tuple, dict or dataclass, nested in any way, or a single value. Its leaves are
    tensors with a leading batch axis, each labelled ``batch 12 of loader "train"`` for error messages. Floating arrays come as
    float32 (see ``dtype``), integers as the device's default integer (int64, or int32 where the engine has none), booleans as
    they are. The last batch may be smaller.

    Iterating runs one epoch; the next iteration runs the next one, in another order if ``shuffle``. An iteration left
    early does not count: the same epoch starts again. It ends its workers when it ends or is left.

    Args:
        dataset: Anything with ``__len__`` and ``__getitem__``, or an ``IterableDataset``; with ``fetch(indices)`` it is asked
            for whole batches, unless ``sample_transform`` or ``collate`` wants samples.
        batch_size: Number of samples in a batch, at least 1.
        shuffle: Whether to visit the samples in the seeded order of the epoch, else as stored.
        sampler: Another order: called as ``sampler(seed, epoch)``, returns the numbers of the epoch's samples; ``Sampler`` says
            how one computes them by position.
        seed: Seed of the order.
        drop_last: Whether to leave out a smaller last batch.
        device: Device of the batches; the present default device if None.
        name: Name of the loader in error messages.
        sample_transform: Called with each sample as the data set gives it; returns the sample to join.
        collate: Called with the list of a batch's samples; returns its arrays. ``fb.data.collate``, which stacks, if None.
        augment: A random change of the arrays, or a list of them that are applied in order, before ``transform``; which one a
            sample gets depends on seed, epoch and place alone. Of a dict, a dataclass or nested tuples it gets all arrays in
            the order in which a sample has them.
        transform: Called as ``transform(*arrays)`` with the entries of a batch that is a tuple, else as ``transform(batch)``,
            with NumPy arrays; returns the arrays to place, in any structure. One that treats each row by itself may say so with
            an attribute ``by_rows = True``: ranks that share batches then read their own rows alone.
        dtype: Floating dtype of floating arrays.
        num_workers: Workers that make batches ahead of use; 0 to make each when it is asked for.
        worker: ``"thread"``, for what waits or computes without the GIL, or ``"process"``, for Python code; processes need
            a data set and functions that pickle. Batches are the same bits for any number of workers of either kind.
        prefetch: Batches made ahead of use, over all workers; two for each worker if None.
        keep_workers: Whether workers outlive an epoch, to serve the next ones of this loader; ``close()`` ends them, as do the
            end of the loader and of the program.

    Raises:
        LoaderError: An empty data set, a batch size below 1, something that does not augment, a sampler that gives no numbers
            of samples, an unknown kind of worker; in an iteration, what workers meet (``SampleError``, ``WorkerDiedError``).
        DeviceError: The device is unknown or absent.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import ArrayDataset, DataLoader
        >>> loader = DataLoader(ArrayDataset(np.arange(5.0), np.arange(5)), batch_size=2, device="cpu:1")
        >>> [(x.tolist(), y.tolist()) for x, y in loader]
        [([0.0, 1.0], [0, 1]), ([2.0, 3.0], [2, 3]), ([4.0], [4])]
        >>> x, y = loader.slice(1, 3).to("cpu:2").first()
        >>> x.tolist(), x.device, x.label
        ([1.0, 2.0], Device('cpu:2'), 'batch 0 of loader "train"')
    """

    @answers_arguments
    def __init__(
        self,
        dataset: Dataset | IterableDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
        device: Device | str | None = None,
        name: str = "train",
        sample_transform: Callable[[Any], Any] | None = None,
        collate: Callable[..., Any] | None = None,
        augment: Augmentation | Sequence[Augmentation] = (),
        transform: Callable[..., Any] | None = None,
        dtype: Any = "float32",
        num_workers: int = 0,
        worker: str = "thread",
        prefetch: int | None = None,
        keep_workers: bool = False,
    ) -> None:
        batch_size = _integer("batch_size", batch_size)
        if batch_size < 1:
            raise LoaderError("a batch holds at least one sample", f"batch_size {batch_size}", "choose batch_size=1 or more")
        self.name, self.dataset, self.batch_size = name, dataset, batch_size
        self.seed = _integer("seed", seed)
        if not 0 <= self.seed < 1 << 64:
            raise LoaderError("seed is an int in [0, 2^64)", repr(seed), "pass e.g. 0")
        self.shuffle, self.sampler = _switch("shuffle", shuffle), sampler
        self._count, self._order = self._arranged()
        self.drop_last = _switch("drop_last", drop_last)
        if self.drop_last and self._count is not None and self._count < batch_size:
            raise all_dropped(name, self._count, batch_size)
        place = find_device(device)
        self.augment: tuple[Augmentation, ...] = tuple(augment) if isinstance(augment, Sequence) else (augment,)
        changes: Any = self.augment
        for change in changes:
            if isinstance(change, type) or not (callable(change) and isinstance(getattr(change, "per_sample", None), int)):
                raise LoaderError(
                    "augment is a change of batches with per_sample random words, or a list of such changes",
                    f"{change!r:.80}",
                    "pass e.g. RandomHorizontalFlip(); what is not random goes into transform",
                )
        self.sample_transform, self.collate, self.transform = sample_transform, collate, transform
        self.dtype: DType = as_dtype(dtype)
        if self.dtype.kind != "float":
            raise DTypeError(
                "dtype is the dtype of floating arrays", self.dtype.name, 'pass "float32"; integers have their own'
            )
        self._set_devices((place,), None)
        self.num_workers, self.worker, self.keep_workers = (
            _integer("num_workers", num_workers),
            worker,
            _switch("keep_workers", keep_workers),
        )
        self.prefetch = 2 * self.num_workers if prefetch is None else _integer("prefetch", prefetch)
        if not 0 <= self.num_workers <= MOST or worker not in ("thread", "process"):
            raise LoaderError(
                f'a loader has 0 to {MOST} workers, of kind "thread" or "process"',
                f"num_workers {num_workers}, worker {worker!r}",
                'pass e.g. num_workers=2, worker="process"',
            )
        if not self.num_workers <= self.prefetch <= MOST_AHEAD * self.num_workers:
            raise LoaderError(
                f"workers make 1 to {MOST_AHEAD} batches each ahead of use",
                f"prefetch {prefetch} with {num_workers} workers",
                "leave prefetch out, or choose workers",
            )
        self._pool: Pool | None = None  # kept from one epoch to the next
        self._positions: Positions | None = None  # of the shuffled epoch; None for all
        self._deal = 1, 0  # between how many the batches are dealt, and which of them this is
        self._epoch = 0
        self._position = 0  # samples handed out by the running or last iteration
        self._start = 0  # where the next iteration begins
        self._digest: tuple[int, bool, Facts] = -1, True, {}  # an epoch, and what is known of its order
        self._like: tuple[int, Structure] | None = None  # a sample, and the structure of all
        self._data = Fingerprint()  # shared with the loaders made of this one

    def _arranged(self) -> tuple[int | None, Sampler | None]:
        """The number of samples of an epoch (None if unknown) and their order (None of a stream)."""
        sized = hasattr(type(self.dataset), "__len__")
        stream = isinstance(self.dataset, IterableDataset)
        if not stream and not (sized and hasattr(type(self.dataset), "__getitem__")):
            raise LoaderError(
                "a data set has __len__ and __getitem__, or is an IterableDataset",
                f"{type(self.dataset).__name__}",
                "wrap arrays in ArrayDataset; give what can only be read from its beginning the base IterableDataset",
            )
        if stream and (self.shuffle or self.sampler is not None):
            raise LoaderError(
                "a stream has one order, its own",
                f'loader "{self.name}" of a stream with shuffle or a sampler',
                "shuffle within a buffer: dataset.shuffled(buffer_size=1000)",
            )
        if self.shuffle and self.sampler is not None:
            raise LoaderError("an order comes from shuffle or a sampler", "both", "leave out shuffle=True")
        n = len(self.dataset) if sized else None  # type: ignore[arg-type]
        if n == 0:
            raise LoaderError(
                f'loader "{self.name}" needs at least one sample', "an empty data set", "check where the data come from"
            )
        if stream or n is None:
            return n, None
        if self.sampler is None:
            return n, RandomSampler(n) if self.shuffle else SequentialSampler(n)
        who = f'the sampler of loader "{self.name}"'
        if isinstance(self.sampler, type) or not callable(self.sampler):
            raise LoaderError(
                f"{who} is a function of seed and epoch, or a sampler made of its numbers", f"{self.sampler!r:.60}",
                "data.SubsetSampler(indices) draws those of a list; a sampler of PyTorch is written as a function",
            )  # fmt: skip
        if not computes_positions(self.sampler):
            self._check_size(who, n)
            return len(checked_order(who, self.sampler(self.seed, 0), end=n)), self.sampler
        sampler: Any = self.sampler
        count = _integer(f"samples of {who}", sampler.samples)
        if count < 1 or getattr(sampler, "limit", 0) > n:
            raise LoaderError(
                f"{who}: numbers of samples are whole numbers in [0, {n}), at least one: int64 [n]",
                f"{count} numbers from 0 to {getattr(sampler, 'limit', 0) - 1}" if count > 0 else f"{count} numbers",
                "check them",
            )
        self._check_size(who, n)
        self._numbers(sampler, 0, np.arange(min(count, 1024)))
        return count, sampler

    def _check_size(self, who: str, n: int) -> None:
        """See that a sampler that was made of something of each sample has it of each."""
        if isinstance(self.sampler, BucketSampler | WeightedSampler) and self.sampler.size != n:
            things = "weights" if isinstance(self.sampler, WeightedSampler) else "lengths"
            raise LoaderError(
                f"{who} is made of {things}, one for each sample", f"{self.sampler.size} {things} for {n} samples",
                "give weight 0 to those that are not to be drawn" if things == "weights" else "load a Subset of the data set",
            )  # fmt: skip

    def _numbers(self, sampler: Any, epoch: int, positions: Array) -> Array:
        """What a sampler that computes positions gives for some."""
        found = sampler.at(self.seed, epoch, positions)
        if self.sampler is None:  # it is one of ours
            ours: Array = found
            return ours
        checked = checked_order(f'the sampler of loader "{self.name}"', found, end=len(self.dataset))  # type: ignore[arg-type]
        if len(checked) != len(positions):
            raise LoaderError(
                f'the sampler of loader "{self.name}" gives a number for each position it is asked for',
                f"{len(checked)} numbers for {len(positions)} positions in epoch {epoch}",
                "let at(seed, epoch, positions) return int64 of the shape of positions",
            )
        return checked

    # what it gives

    @property
    def samples(self) -> int:
        """Number of samples in an epoch, without those of a dropped last batch.

        Raises:
            UnknownLengthError: The data set is a stream without a length.
        """
        n = self._count if self._positions is None else len(self._positions)
        if n is None:
            raise UnknownLengthError(
                f'loader "{self.name}" knows its number of samples from the length of the stream',
                f"{type(self.dataset).__name__} without __len__",
                "give it a __len__",
            )
        return n // self.batch_size * self.batch_size if self.drop_last else n

    def __len__(self) -> int:
        return (self.samples + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        start, self._start = self._start, 0
        self._position = start
        return Iteration(self.name, self._run(self._epoch, start))

    def _run(self, epoch: int, start: int) -> Generator[Any, None, None]:
        source = self._source()
        staged: deque[tuple[int, Any]] = deque()  # the position after a batch and the batch, or the error in its place
        ahead = int(any(not d.backend.host_memory(d) for d in self.devices))  # a copy to a device overlaps with its work
        finished = False
        try:
            source.begin(self._jobs(epoch, start))
            while staged or self._stage(source, staged):
                while len(staged) <= ahead and source.ready() and self._stage(source, staged):
                    pass
                position, batch = staged.popleft()
                if isinstance(batch, FirebrickError):
                    raise batch
                self._position = position
                yield batch
            finished = True
        finally:
            if finished and self.keep_workers and isinstance(source, Pool) and self._pool is None:
                self._pool = source
            else:
                source.close()
        self._epoch, self._position = epoch + 1, 0

    def _source(self) -> Here | Pool:
        """Who makes the batches of an iteration."""
        assembly = self._assembly()
        if not self.num_workers:
            return Here(assembly)
        kept, self._pool = self._pool, None
        if kept is not None:
            if kept.assembly.same(assembly):
                return kept
            kept.close()
        return Pool(assembly, self.num_workers, self.worker, self.prefetch)

    def _stage(self, source: Here | Pool, staged: deque[tuple[int, Any]]) -> bool:
        """Place the next batch ahead of use; False after the last. An error waits for its turn too."""
        try:
            begun = perf_counter_ns()
            taken = source.take()
            if taken is None:
                return False
            job, made = taken
            if timeline.active:
                self._record(job, made, begun)
            if isinstance(made, FirebrickError):
                raise made
            rows, size = made.rows, len(job.indices)
            if rows < size and self._stream_ended(job, rows):
                return False
            with timeline.span(f"place batch {job.number}", "loader", self.device.name):
                placed = self._place(made, job)
            staged.append((job.at + (rows if job.rows < 0 else job.rows), placed))
        except FirebrickError as e:
            staged.append((0, e))
        return True

    def _record(self, job: Job, made: Made | FirebrickError, begun: int) -> None:
        """Add the making of a batch, and the wait for it, to the timeline."""
        facts: dict[str, Any] = {"loader": self.name, "samples": len(job.indices)}
        own = not isinstance(made, Made) or made.worker < 0
        timeline.record(
            f"{'make' if own else 'wait for'} batch {job.number}", "loader" if own else "wait", HOST, begun, **facts
        )
        if isinstance(made, Made) and not own:
            start, end = made.took
            thread = f'worker {made.worker} of loader "{self.name}"'
            timeline.record(f"make batch {job.number}", "loader", HOST, start, end_ns=end, thread=thread, **facts)

    def _stream_ended(self, job: Job, rows: int) -> bool:
        """Whether a batch that a stream could not fill is left out."""
        if self._count is not None:
            raise LoaderError(
                f'the stream of loader "{self.name}" gives {self._count} samples, its length',
                f"{int(job.places[0]) + rows} samples in epoch {job.epoch}",
                "correct its __len__, or leave it out",
            )
        if not rows and not job.places[0]:
            raise LoaderError(
                f'loader "{self.name}" needs at least one sample', "an empty stream", "check where the data come from"
            )
        return not rows or self.drop_last

    def first(self) -> Batch:
        """The first batch of the present epoch; the cursor stays where it is."""
        job = next(self._jobs(self._epoch, 0), None)
        if job is None:
            raise LoaderError(
                f'loader "{self.name}" has a batch', f"none of its {len(self)} batches is dealt to it", "deal to fewer"
            )
        made = Maker(self._assembly())(job)
        if made.rows < len(job.indices) and self._stream_ended(job, made.rows):
            raise all_dropped(self.name, made.rows, self.batch_size)
        batch: Batch = self._place(made, job)
        return batch

    def close(self) -> None:
        """End the workers that ``keep_workers`` kept; the loader can still be used."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _assembly(self) -> Assembly:
        return Assembly(self.name, self.dataset, self.sample_transform, self.collate, self.augment, self.transform)

    def _jobs(self, epoch: int, start: int) -> Iterator[Job]:
        """What is to be made of an epoch from a position on: its batches, or the rows of them that one rank takes."""
        own = self._placing.only is not None and self._order is not None and self._assembly().by_rows
        jobs = self._batches(epoch, start)
        return map(self._placing.part, jobs) if own else jobs

    def _batches(self, epoch: int, start: int) -> Iterator[Job]:
        """The batches of an epoch from a position on that are dealt to this loader."""
        size, per_sample = self.batch_size, sum(a.per_sample for a in self.augment)
        of, which = self._deal
        end = None if self._order is None and self._count is None else self.samples
        order = self._order_of(epoch)
        if self._order is not None and not computes_positions(self._order):  # a cursor shall not call the sampler again
            self._digest = epoch, True, self._facts_of(order, True)
        block = max(BLOCK // size, 1) * size  # whole batches
        for begin in count(start, size) if end is None else range(start, end, block):
            until = begin + size if end is None else min(begin + block, end)
            places = np.arange(begin, until)
            if self._positions is not None:
                places = self._positions(places)
            indices = order(places)
            words = augmentation_words(self.seed, epoch, places, per_sample)
            for at in range(begin, until, size):
                rows = slice(at - begin, at - begin + size)
                if at // size % of == which:
                    yield Job(at // size, indices[rows], places[rows], words[rows], self.seed, epoch, at)

    def _order_of(self, epoch: int) -> Callable[[Array], Array]:
        """The numbers of the samples at positions of an epoch."""
        if self._order is None:
            return lambda positions: positions
        if computes_positions(self._order):
            return lambda positions: self._numbers(self._order, epoch, positions)
        return self._checked(self._order(self.seed, epoch), epoch).__getitem__

    def _checked(self, order: Any, epoch: int) -> Array:
        found = checked_order(f'the sampler of loader "{self.name}"', order, end=len(self.dataset))  # type: ignore[arg-type]
        if len(found) != self._count:
            raise LoaderError(
                f'the sampler of loader "{self.name}" gives as many samples in each epoch',
                f"{self._count} in epoch 0, {len(found)} in epoch {epoch}",
                "let it give one number of samples",
            )
        return found

    def _place(self, made: Made, job: Job) -> Any:
        if made.samples is not None:
            first, structure = self._like = self._like or (int(job.indices[0]), made.samples)
            if structure is not made.samples and not structure.like(made.samples):
                raise LoaderError(
                    f'the samples of loader "{self.name}" have one structure',
                    f"{structure} in sample {first} and {made.samples} in sample {int(job.indices[0])}",
                    "let the data set give the same keys and fields in each sample, or change them in sample_transform",
                )
        return self._placing(made, job, f'batch {job.number} of loader "{self.name}"')

    # other loaders over the same samples

    def to(self, device: Device | str) -> DataLoader:
        """The same batches on another device; cursor and order are kept.

        Args:
            device: Device or device string.

        Raises:
            DeviceError: The device is unknown or absent.
        """
        made = copy(self)
        made._set_devices((find_device(device),), None)
        return made

    def sharded(self, devices: Sequence[Device | str], divide: Divide, *, only: int | None = None) -> DataLoader:
        """The same batches, each divided over several devices: a list with one entry for each device.

        An entry is a batch of consecutive rows on its device, labelled ``rows 32 to 63 of batch 12 of loader "train"``, or None
        where a device has no rows. Samples, length, cursor and order are this loader's.

        Args:
            devices: At least one.
            divide: How many rows of a batch of ``rows`` each device takes: ``divide(rows)`` gives one number for each device,
                0 or more, that sum to ``rows``. It is called for each batch.
            only: The one piece to place, where others are those of other processes: batches are then ``Portion(rows, piece)``,
                with the rows of the whole batch and this piece, or None. No more than its rows are read where each row depends
                on its sample alone: samples are stacked, or read by the ``fetch`` of a data set with ``by_rows = True``, and
                ``augment`` and ``transform`` say the same of themselves.
                Else the whole batch is, so that what is done to it does not depend on how it is divided.

        Raises:
            LoaderError: No device, or no piece ``only``; in an iteration, numbers that do not divide the batch.
            DeviceError: A device is unknown or absent.

        Example:
            >>> import numpy as np
            >>> from firebrick.data import ArrayDataset, DataLoader
            >>> loader = DataLoader(ArrayDataset(np.arange(5.0)), 4).sharded(["cpu:0", "cpu:1"], lambda rows: [1, rows - 1])
            >>> [[piece and piece[0].tolist() for piece in batch] for batch in loader]
            [[[0.0], [1.0, 2.0, 3.0]], [[4.0], None]]
        """
        places = places_of("sharded", devices)
        if not places:
            raise LoaderError("a batch is divided over at least one device", "none", "name at least one device")
        if only is not None and not 0 <= _integer("only", only) < len(places):
            raise LoaderError(f"only is the number of a piece, 0 to {len(places) - 1}", f"only {only}", "pass the rank")
        made = copy(self)
        made._set_devices(places, divide, only)
        return made

    def dealt(self, count: int, number: int) -> DataLoader:
        """Every ``count``-th batch of this loader, from batch ``number`` on: what one of ``count`` processes evaluates.

        A batch is the same one whoever gets it; samples, length and cursor are this loader's.

        Args:
            count: Number of processes.
            number: Which of them, from 0.

        Raises:
            LoaderError: Not 0 ≤ number < count.

        Example:
            >>> import numpy as np
            >>> from firebrick.data import ArrayDataset, DataLoader
            >>> loader = DataLoader(ArrayDataset(np.arange(7)), 2)
            >>> [[x.tolist() for (x,) in loader.dealt(3, number)] for number in range(3)]
            [[[0, 1], [6]], [[2, 3]], [[4, 5]]]
        """
        if not 0 <= _integer("number", number) < _integer("count", count):
            raise LoaderError(
                "batches are dealt to numbers from 0 up to their count", f"number {number} of {count}", "pass rank and size"
            )
        made = copy(self)
        of, which = self._deal
        made._deal = of * count, which + of * number
        return made

    def slice(self, start: int, stop: int | None = None) -> DataLoader:
        """Positions ``start`` to ``stop`` (not included; the end if None) of what this loader gives, after shuffling.

        With ``shuffle`` these are other samples each epoch: to hold out fixed ones, use ``fb.data.holdout``.

        Args:
            start: First position.
            stop: Position after the last; None for the end.

        Raises:
            LoaderError: Not 0 ≤ start < stop ≤ samples.
        """
        self._check_choice("slice")
        n = self.samples
        low, high = _integer("start", start), n if stop is None else _integer("stop", stop)
        if not 0 <= low < high <= n:
            raise LoaderError(
                f'a slice of loader "{self.name}" has 0 ≤ start < stop ≤ {n}, its samples',
                f"start {low}, stop {high}",
                "choose positions within it",
            )
        if self.drop_last and high - low < self.batch_size:
            raise all_dropped(self.name, high - low, self.batch_size)
        return self._select(self._all_positions().part(Slice(low, high - low)), self.name)

    def split(self, devices: Sequence[Device | str]) -> list[DataLoader]:
        """One loader a device: batch k of this loader is the batches k of all shards, one after the other.

        The rows of a batch are dealt as evenly as can be, the first shards taking one more; a small last batch may have
        none for the last shards, which then give one batch less.

        Args:
            devices: Devices or device strings.

        Raises:
            LoaderError: No device, or more devices than rows in a batch.
            DeviceError: A device is unknown or absent.
        """
        self._check_choice("split")
        places = places_of("split", devices)
        count, size = len(places), self.batch_size
        if not 1 <= count <= size:
            raise LoaderError(
                f'loader "{self.name}" can be split over 1 to {size} devices, the rows of a batch',
                f"{count} devices",
                "name at least one device" if not count else "use fewer devices or a larger batch_size",
            )
        positions, shards = self._all_positions(), []
        for rank, device in enumerate(places):
            part = Shard(len(positions), size, count, rank)
            shard = self._select(positions.part(part), f"{self.name}, shard {rank} of {count}" if count > 1 else self.name)
            shard.batch_size = part.batch_size
            shard._set_devices((device,), None)
            shards.append(shard)
        return shards

    def _set_devices(self, devices: tuple[Device, ...], divide: Divide | None, only: int | None = None) -> None:
        self._placing = Placing(devices, divide, self.dtype, only)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Where batches are placed: one device, or those that they are divided over."""
        return self._placing.devices

    @property
    def device(self) -> Device:
        """Where batches are placed; the first device, if they are divided over several."""
        return self.devices[0]

    def _check_choice(self, what: str) -> None:
        """Raise LoaderError unless samples can be chosen by number."""
        if self._deal != (1, 0):
            raise LoaderError(
                f"{what} chooses among all batches",
                f'loader "{self.name}", of which every {self._deal[0]}th batch is dealt',
                f"call {what} first, then dealt",
            )
        if self._order is None:
            raise LoaderError(
                f"{what} chooses samples by number",
                f'loader "{self.name}" of a stream',
                "choose within the stream; sharded(devices, divide) divides its batches",
            )

    def _all_positions(self) -> Positions:
        """The positions of all samples it gives: those of a dropped last batch are left out."""
        positions = Positions(self._count or 0) if self._positions is None else self._positions
        n = self.samples
        return positions if n == len(positions) else positions.part(Slice(0, n))

    def _select(self, positions: Positions, name: str) -> DataLoader:
        made = copy(self)
        made._positions, made.name, made._digest = positions, name, (-1, True, {})
        made._position = made._start = 0
        return made

    # where it is

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, numbered from 0.

        Args:
            epoch: Number of the epoch, from 0.
        """
        epoch = _integer("epoch", epoch)
        if epoch < 0:
            raise LoaderError("epochs are numbered from 0", f"epoch {epoch}", "pass 0 or more")
        self._go_to(epoch, 0)

    @property
    def position(self) -> int:
        """Number of samples of the running epoch that were returned."""
        return self._position

    def cursor(self) -> dict[str, Any]:
        """Where the iteration stands, to the sample: what ``load_cursor`` takes, plain values for a checkpoint.

        It counts what was handed out, not what workers made ahead. ``samples`` is -1 of a stream without a length. ``order``
        has the kind of the order and a digest of that of the epoch, ``data`` the data set's length and a digest of a few of
        its samples as they are before any change, which are read once for all cursors.
        """
        samples = self.samples if self._positions is not None or self._count is not None else -1
        return {
            "epoch": self._epoch, "position": self._position, "samples": samples, "seed": self.seed,
            "batch_size": self.batch_size, "order": self._order_facts(), "data": self._data.of(self.dataset),
        }  # fmt: skip

    def _order_facts(self, whole: bool | None = None) -> Facts:
        """What is known of the order of the present epoch.

        Args:
            whole: Whether all numbers are digested; if None, unless they are many and computed by position.
        """
        if self._order is None:
            return {"kind": order_of_stream(self.dataset), "digest": ""}  # type: ignore[arg-type]
        if whole is None:
            whole = not computes_positions(self._order) or len(self._all_positions()) <= SORTED
        if self._digest[:2] != (self._epoch, whole):
            self._digest = self._epoch, whole, self._facts_of(self._order_of(self._epoch), whole)
        return self._digest[2]

    def _facts_of(self, order: Callable[[Array], Array], whole: bool) -> Facts:
        kind = "as stored"
        if self.shuffle:
            kind = "shuffled" if (self._count or 0) <= SORTED else "shuffled by a keyed permutation"
        elif self.sampler is not None:
            kind = f"sampler {getattr(self.sampler, '__qualname__', type(self.sampler).__name__)}"
        positions = self._all_positions()
        facts = {"kind": kind, **digest_of(len(positions), lambda at: order(positions(at)), whole=whole)}
        if not whole and callable(own := getattr(self._order, "fingerprint", None)):
            facts["settings"] = str(own())
        return facts

    def load_cursor(self, cursor: dict[str, Any]) -> None:
        """Go to where ``cursor()`` stood: the next iteration gives the rest of that epoch.

        A cursor without order and data, as earlier versions saved it, and one of samples that cannot be compared are taken
        with an ``UncheckedCursorWarning``.

        Args:
            cursor: What ``cursor()`` of a loader returned.

        Raises:
            LoaderError: It is no cursor; or it is of a loader with another seed, number of samples, order or data, and all
                differences are listed. The batch size may differ.
        """
        check_form(cursor)
        there = copy(self)
        there.set_epoch(max(cursor.get("epoch", 0), 0))
        found = there.cursor()
        if saved := cursor.get("order"):
            found["order"] = there._order_facts(whole="compared" not in saved)  # earlier versions digest every order whole
        check_cursor(self.name, cursor, found)
        self._digest = there._digest
        self._go_to(cursor["epoch"], cursor["position"])

    def again(self) -> None:
        """Go back to where the iteration stands: the next one begins with the sample after the last that was handed out."""
        self._go_to(self._epoch, self._position)

    def _go_to(self, epoch: int, position: int) -> None:
        self._epoch, self._position, self._start = epoch, position, position

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}  # a copy has workers of its own

    def __repr__(self) -> str:
        devices = ", ".join(d.name for d in self.devices)
        known = self._positions is not None or self._count is not None
        what = (
            f"{self.samples} samples in {len(self)} batches of {self.batch_size}" if known else f"batches of {self.batch_size}"
        )
        return f'DataLoader("{self.name}", {what}, on {devices})'


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise LoaderError(f"{name} is a whole number", repr(value), f"pass {name} as an int") from None


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise LoaderError(f"{name} is True or False", repr(value), f"pass {name}=True or leave it out")
