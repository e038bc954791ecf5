"""Map-style data sets: samples by number, and many samples at once where a data set can.

A loader asks for a whole batch through ``fetch(indices)`` if a data set has it, else sample by sample.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from firebrick.core.lines import warn
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.data.errors import LoaderError, SharedRowsWarning
from firebrick.data.listed import STORED, Computed, digest, drawn, listed
from firebrick.data.order import permutation
from firebrick.random.generator import check_seed

Array = np.ndarray[Any, Any]


def unmasked(name: str, value: Any) -> Array:
    """A value as an array; refused where elements that are hidden or absent would appear as numbers.

    Raises:
        LoaderError: It is a masked array of NumPy, or an array of Arrow with nulls.
    """
    hidden = isinstance(value, np.ma.MaskedArray)
    nulls = getattr(value, "null_count", 0) if type(value).__module__.startswith("pyarrow") else 0
    if hidden or nulls:
        raise LoaderError(
            "data sets hold arrays without a mask or absent values",
            f"{name}: a NumPy masked array" if hidden else f"{name}: an array of Arrow with {nulls} nulls",
            "fill it first: x.filled(value)" if hidden else "fill it first: x.fill_null(value)",
        )
    return np.asarray(value)


class Dataset(Protocol):
    """Anything with a length and samples by number: arrays or numbers, single or in tuples, dicts and dataclasses.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> class Squares:
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def __getitem__(self, index):
        ...         return np.float32(index), np.float32(index**2)
        >>> for x, y in fb.data.DataLoader(Squares(), 2):
        ...     x.tolist(), y.tolist()
        ([0.0, 1.0], [0.0, 1.0])
        ([2.0, 3.0], [4.0, 9.0])
    """

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Sample ``index``, with 0 ≤ index < len.

        Args:
            index: Number of the sample.
        """
        ...


class ArrayDataset:
    """Samples held in NumPy arrays: sample i is the tuple of their i-th rows.

    Args:
        arrays: One or more arrays of equal first axis, such as images [n, height, width] and labels [n]. They are
            neither copied nor written.

    Raises:
        LoaderError: No array, an array without a first axis, or unequal first axes.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import ArrayDataset
        >>> data = ArrayDataset(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
        >>> len(data), data[1]
        (3, (array([2., 3.]), np.int64(1)))
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise LoaderError("an ArrayDataset holds at least one array", "none", "pass images and labels")
        for i, a in enumerate(arrays):
            if isinstance(a, Tensor):
                raise LoaderError(
                    "an ArrayDataset holds NumPy arrays; the loader brings batches to a device",
                    f"arrays[{i}]: a tensor {a.aval} on {a.device}",
                    f"pass arrays[{i}].numpy()",
                )
        self.arrays: tuple[Array, ...] = tuple(unmasked(f"arrays[{i}]", a) for i, a in enumerate(arrays))
        shapes = ", ".join(f"arrays[{i}]: {a.dtype}{list(a.shape)}" for i, a in enumerate(self.arrays))
        if any(a.ndim == 0 for a in self.arrays) or len({len(a) for a in self.arrays}) > 1:
            raise LoaderError(
                "the arrays of an ArrayDataset have one first axis, the samples", shapes, "cut them to one length"
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int, /) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    by_rows = True

    def fetch(self, indices: Array) -> tuple[Array, ...]:
        """The rows ``indices`` (int64 [batch]) of each array, in new arrays.

        Args:
            indices: int64 [batch], each in [0, len).
        """
        return tuple(a.take(indices, 0) for a in self.arrays)


class Subset:
    """Some samples of another data set, by number.

    Args:
        dataset: Where the samples are.
        indices: int64 [n], numbers of samples in it. A long ``range`` is kept as it is, in constant memory.

    Raises:
        LoaderError: An index lies outside the data set.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import ArrayDataset, Subset
        >>> Subset(ArrayDataset(np.arange(10)), [7, 2]).fetch(np.array([0, 1]))
        (array([7, 2]),)
    """

    def __init__(self, dataset: Dataset, indices: Sequence[int] | Array | Computed) -> None:
        self.dataset = dataset
        given = listed(indices)
        shape: tuple[int, ...]
        if isinstance(given, Computed):
            shape, least, most = (len(given),), given.least, given.most
        else:
            if given.size and given.dtype.kind not in "iu":
                raise LoaderError(
                    "a Subset takes the numbers of its samples, as integers",
                    f"dtype {given.dtype}",
                    "for a mask: np.flatnonzero(mask)",
                )
            given = given.astype(np.int64)
            shape, (least, most) = given.shape, (given.min(), given.max()) if given.size else (0, -1)
        self.indices: Any = given
        if len(shape) != 1 or (shape[0] and not (0 <= least <= most < len(dataset))):
            raise LoaderError(
                f"a Subset takes a list of numbers in [0, {len(dataset)})",
                f"shape {shape}" + (f", {least} to {most}" if 0 not in shape else ""),
                "check the indices",
            )

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Any:
        return self.dataset[int(self.indices[index])]

    @property
    def fetch(self) -> Callable[[Array], Any]:
        """``fetch(indices)``: the samples at places ``indices`` (int64 [batch]) of this subset, where its data set has it."""
        own: Callable[[Array], Any] = self.dataset.fetch  # type: ignore[attr-defined]
        return lambda indices: own(self.indices[indices])

    @property
    def fingerprint(self) -> Callable[[], str]:
        """``fingerprint()``: a text that names the samples of the data set, where it has one, and which of them are here."""
        own: Callable[[], str] = self.dataset.fingerprint  # type: ignore[attr-defined]
        return lambda: f"{own()} {digest(self.indices)}"

    @property
    def by_rows(self) -> bool:
        """Whether the data set's ``fetch`` reads each sample independently."""
        return works_by_rows(self.dataset, "fetch")


@answers_arguments
def holdout(dataset: Dataset, fraction: float, *, seed: int = 0) -> tuple[Subset, Subset]:
    """Split a data set in two at random: the samples kept, and a ``fraction`` held out (at least one sample each).

    Args:
        dataset: At least two samples.
        fraction: Share held out, between 0 and 1.
        seed: Decides which; the same ones for the same seed and number of samples, everywhere.

    Warns:
        SharedRowsWarning: Samples have rows in common, as windows of a series have: parts of a random split share these rows.

    Returns:
        (kept, held out), each in the data set's order. Of a data set of more than 1,048,576 samples, each is in the order in
        which its samples were drawn, which is computed and takes no memory.

    Raises:
        LoaderError: The fraction is not between 0 and 1, or there are fewer than two samples.
        ConfigError: The seed is no int in [0, 2^64).

    Example:
        >>> import numpy as np
        >>> from firebrick.data import ArrayDataset, holdout
        >>> kept, held = holdout(ArrayDataset(np.arange(10)), 0.2)
        >>> len(kept), len(held)
        (8, 2)
    """
    if not 0 < fraction < 1 or len(dataset) < 2:
        raise LoaderError(
            "holdout needs a fraction between 0 and 1 and at least two samples",
            f"fraction {fraction}, {len(dataset)} samples",
            "use the whole data set without holdout",
        )
    count = min(max(round(fraction * len(dataset)), 1), len(dataset) - 1)
    _warn_of_shared_rows("holdout", dataset)
    held, kept = _parts(dataset, [count, len(dataset) - count], seed)
    return kept, held


@answers_arguments
def random_split(dataset: Dataset, lengths: Sequence[int | float], *, seed: int = 0) -> list[Subset]:
    """Split a data set at random.

    Args:
        dataset: The data set.
        lengths: Numbers of samples that add up to those of the data set, or fractions that add up to 1. Of fractions, the parts
            are rounded down, and the samples left over go to the first parts, one each.
        seed: Decides which; the same ones for the same seed and number of samples, everywhere.

    Warns:
        SharedRowsWarning: Samples have rows in common, as windows of a series have: parts of a random split share these rows.

    Returns:
        A part for each length, each in the data set's order. Of a data set of more than 1,048,576 samples, each is in the order
        in which its samples were drawn, which is computed and takes no memory.

    Raises:
        LoaderError: The lengths do not add up, or one is negative.
        ConfigError: The seed is no int in [0, 2^64).

    Example:
        >>> import numpy as np
        >>> from firebrick.data import ArrayDataset, random_split
        >>> [len(part) for part in random_split(ArrayDataset(np.arange(10)), [0.7, 0.2, 0.1])]
        [7, 2, 1]
    """
    count, given = len(dataset), list(lengths)
    numbers = all(isinstance(n, Real) and not isinstance(n, bool) and n >= 0 for n in given)
    whole = numbers and all(isinstance(n, Integral) for n in given)
    if numbers and not whole and abs(math.fsum(given) - 1.0) < 1e-9:
        parts = [math.floor(f * count + 1e-9) for f in given]
        for i in range(count - sum(parts)):
            parts[i % len(parts)] += 1
    elif whole and sum(given) == count:
        parts = [int(n) for n in given]
    else:
        raise LoaderError(
            f"random_split takes numbers of samples that add up to {count}, or fractions that add up to 1",
            f"{given!r:.80}",
            "pass e.g. [0.8, 0.2]",
        )
    _warn_of_shared_rows("random_split", dataset)
    return _parts(dataset, parts, seed)


def _warn_of_shared_rows(name: str, dataset: Dataset) -> None:
    """Warn if samples of a data set have rows in common, which a random split puts into several parts."""
    chosen: Array | None = None  # the samples, as numbers in the data set that all subsets are of
    base = dataset
    while isinstance(base, Subset):
        indices = base.indices
        if isinstance(indices, Computed) or len(indices) > STORED:  # each sample once, and too many to look at
            return
        chosen = indices if chosen is None else indices[chosen]
        base = base.dataset
    overlap = getattr(base, "overlap", 0)
    if chosen is None:
        shared = overlap > 0 and len(base) > 1
    else:
        shared = len(chosen) > 1 and int(np.diff(np.sort(chosen)).min()) <= overlap
    if not shared:
        return
    if overlap:
        what = f"a sample has rows in common with the next {overlap}"
        remedy = f"split the rows first and make a {type(base).__name__} of each part"
    else:
        what, remedy = "samples occur several times", "split first, then choose or repeat samples of each part"
    warn(
        f"{name} puts rows of one sample into several parts, since {what}: a measure on one part says little about new data. "
        f"To avoid that, {remedy}",
        SharedRowsWarning,
    )


_SPLIT = 0xFFFFFFFF  # an epoch that no training reaches


def _parts(dataset: Dataset, lengths: list[int], seed: int) -> list[Subset]:
    """Part all samples at random."""
    count, seed = len(dataset), check_seed(seed)
    ends = list(itertools.pairwise(itertools.accumulate(lengths, initial=0)))
    if count > STORED:  # to sort a part would need all of it
        return [Subset(dataset, drawn(seed, _SPLIT, count, a, b)) for a, b in ends]
    order = permutation(seed, _SPLIT, count)
    return [Subset(dataset, np.sort(order[a:b])) for a, b in ends]


def works_by_rows(what: Any, method: str) -> bool:
    """Whether a data set, or a change of batches, says by an attribute ``by_rows`` that each row depends on its sample alone.

    What a class says does not hold for one derived from it that writes the method anew.

    Args:
        what: The object.
        method: What it reads or changes batches with.
    """
    if "by_rows" in getattr(what, "__dict__", {}):
        return bool(what.by_rows)
    for kind in type(what).__mro__:
        if "by_rows" in vars(kind):
            return bool(what.by_rows)
        if method in vars(kind):
            return False
    return False
