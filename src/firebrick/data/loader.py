"""``DataLoader``: batches of a data set, in a seeded order, always on the loader's device.

A loader is a list of *positions* of the shuffled epoch, a batch size and a device. ``slice`` and ``split`` choose among the
positions, ``to`` changes the device, and each returns a new loader; so they compose in any order, the last device wins,
with one shard as with many, and no loader changes another's order.

Position p of epoch e shows sample f(seed, e, p) (see ``order``), whatever the device, the slice or the number of shards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core import dtypes
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.data.augment import Augmentation, augmentation_words
from firebrick.data.dataset import Dataset, fetch
from firebrick.data.errors import LoaderError
from firebrick.data.order import permutation

Array = np.ndarray[Any, Any]


class DataLoader:
    """Batches of a data set on one device.

    A batch is a tuple of tensors with a leading batch axis (one tensor, if a sample is no tuple), each labelled
    ``batch 12 of loader "train"`` for error messages. Floating arrays come as float32 (see ``dtype``), integers as the
    device's default integer (int64, or int32 where the engine has none), booleans as they are. The last batch may be
    smaller.

    Iterating runs one epoch; the next iteration runs the next one, in another order if ``shuffle``. An iteration left
    early does not count: the same epoch starts again.

    Args:
        dataset: Anything with ``__len__`` and ``__getitem__``; with ``fetch(indices)`` it is asked for whole batches.
        batch_size: Samples a batch, at least 1.
        shuffle: Whether to visit the samples in the seeded order of the epoch, else as stored.
        seed: Seed of the order.
        drop_last: Whether to leave out a smaller last batch.
        device: Where batches are placed; the default device at this moment if None.
        name: What error messages call the loader.
        augment: A random change of the arrays, or a list of them that are applied in order, before ``transform``; which one a
            sample gets depends on seed, epoch and place alone.
        transform: Called as ``transform(*arrays)`` with the batch as NumPy arrays; returns the arrays to place.
        dtype: Floating dtype of floating arrays.

    Raises:
        LoaderError: An empty data set, a batch size below 1, something that does not augment.
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

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        device: Device | str | None = None,
        name: str = "train",
        augment: Augmentation | Sequence[Augmentation] = (),
        transform: Callable[..., Any] | None = None,
        dtype: Any = "float32",
    ) -> None:
        batch_size = _integer("batch_size", batch_size)
        if batch_size < 1:
            raise LoaderError("a batch holds at least one sample", f"batch_size {batch_size}", "choose batch_size=1 or more")
        if len(dataset) == 0:
            raise LoaderError(
                f'loader "{name}" needs at least one sample', "an empty data set", "check where the data come from"
            )
        if drop_last and len(dataset) < batch_size:
            raise _all_dropped(name, len(dataset), batch_size)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.seed = _integer("seed", seed)
        self.drop_last = bool(drop_last)
        self.device = find_device(device)
        self.name = name
        self.augment: tuple[Augmentation, ...] = tuple(augment) if isinstance(augment, Sequence) else (augment,)
        changes: Any = self.augment
        for change in changes:
            if isinstance(change, type) or not (callable(change) and isinstance(getattr(change, "per_sample", None), int)):
                raise LoaderError(
                    "augment is a change of batches with per_sample random words, or a list of such changes",
                    f"{change!r:.80}",
                    "pass e.g. RandomHorizontalFlip(); what is not random goes into transform",
                )
        self.transform = transform
        self.dtype: DType = as_dtype(dtype)
        if self.dtype.kind != "float":
            raise DTypeError(
                "dtype is the dtype of floating arrays", self.dtype.name, 'pass "float32"; integers have their own'
            )
        self._positions: Array | None = None  # of the shuffled epoch; None for all
        self._epoch = 0
        self._position = 0  # samples handed out by the running or last iteration
        self._start = 0  # where the next iteration begins

    # what it gives

    @property
    def samples(self) -> int:
        """Samples an epoch gives, those of a dropped last batch left out."""
        n = len(self.dataset) if self._positions is None else len(self._positions)
        return n // self.batch_size * self.batch_size if self.drop_last else n

    def __len__(self) -> int:
        return (self.samples + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        start, self._start = self._start, 0
        self._position = start
        return self._run(self._epoch, start)

    def _run(self, epoch: int, start: int) -> Iterator[Any]:
        indices, words = self._indices(epoch), self._words(epoch)
        size, end = self.batch_size, self.samples
        for at in range(start, end, size):
            stop = min(at + size, end)
            batch = self._place(indices[at:stop], at // size, words[at:stop])
            self._position = stop
            yield batch
        self._epoch, self._position = epoch + 1, 0

    def first(self) -> Any:
        """The first batch of the present epoch; the cursor stays where it is."""
        first = slice(self.batch_size)
        return self._place(self._indices(self._epoch)[first], 0, self._words(self._epoch)[first])

    def _indices(self, epoch: int) -> Array:
        n = len(self.dataset)
        order = permutation(self.seed, epoch, n) if self.shuffle else np.arange(n)
        return order if self._positions is None else order[self._positions]

    def _words(self, epoch: int) -> Array:
        """The random words of the augmentations, one row for each sample this loader gives."""
        per_sample = sum(a.per_sample for a in self.augment)
        words = augmentation_words(self.seed, epoch, len(self.dataset), per_sample)
        return words if self._positions is None else words[self._positions]

    def _place(self, indices: Array, number: int, words: Array) -> Any:
        arrays = fetch(self.dataset, indices)
        single = not isinstance(arrays, (tuple, list))
        at = 0
        for change in self.augment:
            changed = change(words[:, at : at + change.per_sample], *((arrays,) if single else arrays))
            arrays, at = changed[0] if single else changed, at + change.per_sample
        if self.transform is not None:
            arrays = self.transform(arrays) if single else self.transform(*arrays)
            single = not isinstance(arrays, (tuple, list))
        label = f'batch {number} of loader "{self.name}"'
        placed = [self._tensor(np.asarray(a), label, i) for i, a in enumerate((arrays,) if single else arrays)]
        return placed[0] if single else tuple(placed)

    def _tensor(self, host: Array, label: str, which: int) -> Tensor:
        kind = host.dtype.kind
        if kind == "f" or host.dtype == dtypes.bfloat16.np:
            goal = self.dtype
        elif kind in "iu":
            goal = as_dtype(self.device.backend.default_int(self.device))
            if host.size and not np.can_cast(host.dtype, goal.np):
                limits = np.iinfo(goal.np)
                low, high = int(host.min()), int(host.max())
                if low < limits.min or high > limits.max:
                    raise LoaderError(
                        f"integers of a batch on {self.device} lie in the range of {goal.name}",
                        f"arrays[{which}] of {label}: {low} to {high}",
                        "renumber them in the data set",
                    )
        elif kind in "bc":
            goal = as_dtype(host.dtype)
        else:
            raise LoaderError(
                "a batch holds numbers",
                f"arrays[{which}] of {label}: {host.dtype}{list(host.shape)}",
                "convert them in transform",
            )
        tensor: Tensor = hooks.from_host(host.astype(goal.np, copy=False), self.device)
        tensor.label = label
        return tensor

    # other loaders over the same samples

    def to(self, device: Device | str) -> DataLoader:
        """The same batches on another device; cursor and order are kept.

        Raises:
            DeviceError: The device is unknown or absent.
        """
        made = copy(self)
        made.device = find_device(device)
        return made

    def slice(self, start: int, stop: int | None = None) -> DataLoader:
        """Positions ``start`` to ``stop`` (not included; the end if None) of what this loader gives, after shuffling.

        With ``shuffle`` these are other samples each epoch: to hold out fixed ones, use ``fb.data.holdout``.

        Raises:
            LoaderError: Not 0 ≤ start < stop ≤ samples.
        """
        n = self.samples
        low, high = _integer("start", start), n if stop is None else _integer("stop", stop)
        if not 0 <= low < high <= n:
            raise LoaderError(
                f'a slice of loader "{self.name}" has 0 ≤ start < stop ≤ {n}, its samples',
                f"start {low}, stop {high}",
                "choose positions within it",
            )
        if self.drop_last and high - low < self.batch_size:
            raise _all_dropped(self.name, high - low, self.batch_size)
        return self._select(self._all_positions()[low:high], self.name)

    def split(self, devices: Sequence[Device | str]) -> list[DataLoader]:
        """One loader a device: batch k of this loader is the batches k of all shards, one after the other.

        The rows of a batch are dealt as evenly as can be, the first shards taking one more; a small last batch may have
        none for the last shards, which then give one batch less.

        Raises:
            LoaderError: No device, or more devices than rows in a batch.
            DeviceError: A device is unknown or absent.
        """
        if isinstance(devices, (str, Device)):
            raise LoaderError("split takes a list of devices", repr(devices), f'write ["{devices}"]')
        places = [find_device(d) for d in devices]
        count, size = len(places), self.batch_size
        if not 1 <= count <= size:
            raise LoaderError(
                f'loader "{self.name}" can be split over 1 to {size} devices, the rows of a batch',
                f"{count} devices",
                "name at least one device" if not count else "use fewer devices or a larger batch_size",
            )
        positions = self._all_positions()
        pieces: list[list[Array]] = [[] for _ in places]
        for at in range(0, len(positions), size):
            rows = positions[at : at + size]
            begin = 0
            for rank in range(count):
                end = begin + (len(rows) - rank + count - 1) // count
                pieces[rank].append(rows[begin:end])
                begin = end
        shards = []
        for rank, (device, rows_of_rank) in enumerate(zip(places, pieces, strict=True)):
            shard = self._select(
                np.concatenate(rows_of_rank), f"{self.name}, shard {rank} of {count}" if count > 1 else self.name
            )
            shard.batch_size = (size - rank + count - 1) // count
            shard.device = device
            shards.append(shard)
        return shards

    def _all_positions(self) -> Array:
        n = self.samples
        return np.arange(n) if self._positions is None else self._positions[:n]

    def _select(self, positions: Array, name: str) -> DataLoader:
        made = copy(self)
        made._positions, made.name = positions, name
        made._position = made._start = 0
        return made

    # where it is

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, numbered from 0."""
        epoch = _integer("epoch", epoch)
        if epoch < 0:
            raise LoaderError("epochs are numbered from 0", f"epoch {epoch}", "pass 0 or more")
        self._epoch, self._position, self._start = epoch, 0, 0

    def cursor(self) -> dict[str, int]:
        """Where the iteration stands, to the sample: what ``load_cursor`` takes, plain integers for a checkpoint."""
        return {"epoch": self._epoch, "position": self._position, "samples": self.samples, "seed": self.seed}

    def load_cursor(self, cursor: dict[str, int]) -> None:
        """Go to where ``cursor()`` stood: the next iteration gives the rest of that epoch.

        Raises:
            LoaderError: The cursor is of a loader with another seed or number of samples, hence of another order.
        """
        mine = self.cursor()
        for fact, meaning in (("samples", "samples"), ("seed", "seed")):
            if cursor.get(fact) != mine[fact]:
                raise LoaderError(
                    f'a cursor for loader "{self.name}" comes from one with {meaning} {mine[fact]}',
                    f"{meaning} {cursor.get(fact)}",
                    "resume with the data and seed that the run began with, or start a new run",
                )
        epoch, position = cursor.get("epoch", -1), cursor.get("position", -1)
        if epoch < 0 or not 0 <= position <= self.samples:
            raise LoaderError(
                f"a cursor has an epoch from 0 and a position from 0 to {self.samples}",
                f"epoch {epoch}, position {position}",
                "pass what cursor() gave",
            )
        self._epoch, self._position, self._start = epoch, position, position

    def __repr__(self) -> str:
        return (
            f'DataLoader("{self.name}", {self.samples} samples in {len(self)} batches of {self.batch_size}, on {self.device})'
        )


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise LoaderError(f"{name} is a whole number", repr(value), f"pass {name} as an int") from None


def _all_dropped(name: str, samples: int, batch_size: int) -> LoaderError:
    return LoaderError(
        f'loader "{name}" with drop_last needs a full batch of {batch_size}',
        f"{samples} samples",
        "choose a smaller batch_size, or drop_last=False",
    )
