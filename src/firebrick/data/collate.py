"""Samples to batches: what has one shape is stacked, what is ragged is padded and comes with its lengths.

Samples are trees (see ``structure``): the batch is the same tree over stacked arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.backends.numpy.dlpack import imported
from firebrick.core.settings import python_numbers
from firebrick.core.tensor import Tensor
from firebrick.data.dataset import unmasked
from firebrick.data.errors import LoaderError
from firebrick.data.structure import Structure, structure_of

Array = np.ndarray[Any, Any]


def collate(samples: Sequence[Any]) -> Any:
    """Stack samples along a new first axis, leaf by leaf.

    Args:
        samples: At least one: arrays or numbers, or tuples, dicts and dataclasses of them, nested in any way; all of one
            structure, with leaves of one shape each. A list within a sample is an array; a sample that is a list, a tuple.

    Returns:
        One array [batch, …], or a tuple, dict or dataclass of them, as the samples are. A mapping comes as a dict. A dataclass
        is made without its constructor.

    Raises:
        LoaderError: They differ in structure, shape or kind of dtype: integers beside floats, say.

    Example:
        >>> from firebrick.data import collate
        >>> collate([([1.0, 2.0], 0), ([3.0, 4.0], 1)])
        (array([[1., 2.],
               [3., 4.]]), array([0, 1]))
        >>> collate([{"size": 1.0, "label": 0}, {"size": 2.0, "label": 1}])
        {'size': array([1., 2.]), 'label': array([0, 1])}
    """
    samples = [tuple(s) if isinstance(s, list) else s for s in samples]
    structure = structure_of(samples[0])
    if structure.flat and all(isinstance(s, tuple) and len(s) == len(structure.parts) for s in samples):
        columns = list(zip(*samples, strict=True))  # the usual samples, faster
    elif (
        structure.kind is dict and structure.shallow and all(type(s) is dict and s.keys() == samples[0].keys() for s in samples)
    ):
        columns = [tuple(s[k] for s in samples) for k in structure.keys]
    else:
        columns = list(zip(*_leaves(structure, samples), strict=True))
    if not columns:
        raise LoaderError("a sample holds arrays or numbers", f"{structure}", "let the data set give some")
    made = []
    for at, column in enumerate(columns):
        try:
            made.append(_stacked(column))
        except (LoaderError, ValueError, TypeError) as e:
            _leaves(structure, samples)  # raises what differs, if it is more than a shape
            path = "" if structure.kind is None or structure.flat else f" of sample{structure.paths()[at]}"
            if isinstance(e, LoaderError):
                raise LoaderError(e.expected, e.received + path, e.remedy) from None
            shown = _shapes(column if path else samples)
            raise LoaderError(
                "the samples of a batch have one structure and one shape",
                f"{e}: {shown}{path}",
                "pad or crop them in the data set's __getitem__ or in sample_transform, or pass collate=pad_collate",
            ) from None
    return structure.build(iter(made))


def _leaves(structure: Structure, samples: Sequence[Any]) -> list[list[Any]]:
    """The leaves of each sample.

    Raises:
        LoaderError: One has another structure; its row is in the context.
    """
    found = []
    for row, sample in enumerate(samples):
        try:
            found.append(structure.leaves(sample))
        except LoaderError:
            raise LoaderError(
                "the samples of a data set have one structure",
                f"{structure} in sample 0 of the batch and {structure_of(sample)} in sample {row}",
                "let the data set give the same keys and fields in each sample, or change them in sample_transform",
                row=row,
            ) from None
    return found


def pad_collate(
    samples: Sequence[Any], columns: Sequence[int] = (0,), value: float = 0, sizes: Sequence[int] = ()
) -> tuple[Array, ...]:
    """Pad the first axis of sequences to the longest of the batch; each padded array is followed by the lengths.

    Other columns are stacked. To choose columns or value: ``collate=functools.partial(pad_collate, columns=(0, 1), value=-1)``.
    With ``sizes``, batches have few shapes, and compiled functions of them few graphs; see ``fb.pad_lengths``.

    Args:
        samples: At least one: tuples of values, or single sequences. What is padded is [length, …] with … of one shape.
        columns: Which values of a tuple are sequences to pad.
        value: Value of the padding.
        sizes: Ascending lengths, of which the smallest is taken that holds the longest of the batch, as
            ``fb.length_sizes(2048)`` gives them; by default that of the longest.

    Returns:
        Arrays in the order of the columns: for a padded one [batch, size, …] and then int64 [batch], its lengths.

    Raises:
        LoaderError: Samples differ in structure, or in shape beyond the padded axis; a column is not there; a sequence is
            longer than all sizes, or sizes are not ascending.

    Example:
        >>> from firebrick.data import pad_collate
        >>> pad_collate([([1, 2, 3], 0), ([4], 1)])
        (array([[1, 2, 3],
               [4, 0, 0]]), array([3, 1]), array([0, 1]))
        >>> pad_collate([([1, 2, 3], 0), ([4], 1)], sizes=(2, 4, 8))[0].shape
        (2, 4)
    """
    sizes = python_numbers(tuple(sizes))
    if any(type(n) is not int or n < 1 for n in sizes) or list(sizes) != sorted(set(sizes)):
        raise LoaderError("sizes are ascending ints ≥ 1", f"{sizes!r}", "pass such sizes, as fb.length_sizes(2048) gives them")
    rows = [s if isinstance(s, tuple) else (s,) for s in samples]  # a list, or an array, is one sequence
    width = len(rows[0])
    if any(len(r) != width for r in rows) or not all(0 <= c < width for c in columns):
        raise LoaderError(
            f"samples of one structure with the columns {list(columns)} to pad",
            f"samples of {sorted({len(r) for r in rows})} values",
            "name columns that each sample has",
        )
    made: list[Array] = []
    for at, column in enumerate(zip(*rows, strict=True)):
        if at in columns:
            made += _padded([_array(v) for v in column], value, sizes)
        else:
            made.append(collate(column))
    return tuple(made)


def _stacked(values: Sequence[Any]) -> Array:
    """Values of one shape and one kind of dtype as one array."""
    arrays = [_array(v) for v in values]
    if len({a.dtype for a in arrays}) > 1:
        _check_kinds(arrays)
    return np.stack(arrays)


def _array(value: Any) -> Array:
    """A value of a sample as an array, also a tensor of PyTorch of a dtype that NumPy alone has not."""
    if hasattr(value, "__dlpack__") and not isinstance(value, (np.ndarray, np.generic, Tensor)):
        try:
            return imported(value)
        except (BufferError, RuntimeError, TypeError, ValueError):  # what has no DLPack may still have __array__
            pass
    return unmasked("a value of a sample", value)


def _check_kinds(arrays: Sequence[Array]) -> None:
    kinds = [_kind(a.dtype) for a in arrays]
    if len(set(kinds)) > 1 or _kind(np.result_type(*arrays)) != kinds[0]:  # int64 and uint64 would become float64
        other = next(i for i, a in enumerate(arrays) if _kind(np.result_type(arrays[0], a)) != kinds[0] or kinds[i] != kinds[0])
        raise LoaderError(
            "the samples of a batch have one kind of dtype: nothing changes its kind without being told to",
            f"{arrays[0].dtype} in sample 0 of the batch and {arrays[other].dtype} in sample {other}",
            "convert them in the data set's __getitem__ or in sample_transform",
        )


def _kind(dtype: np.dtype[Any]) -> str:
    """What may be stacked without a change of meaning: signed and unsigned integers, floats of all widths."""
    return {"u": "i", "V": "f"}.get(dtype.kind, dtype.kind)  # NumPy knows bfloat16 as "V"


def _padded(values: list[Array], value: float, sizes: Sequence[int]) -> tuple[Array, Array]:
    if any(v.ndim == 0 for v in values) or len({v.shape[1:] for v in values}) > 1:
        raise LoaderError(
            "what pad_collate pads is [length, …], alike but for the length", _shapes(values), "name other columns to pad"
        )
    _check_kinds(values)
    lengths = np.array([len(v) for v in values], np.int64)
    size = longest = int(lengths.max())
    if sizes:
        size = next((n for n in sizes if n >= longest), 0)
        if size < longest:
            raise LoaderError(
                f"sequences of at most {sizes[-1]} elements", f"{longest} in sample {int(lengths.argmax())} of the batch",
                "add a larger size, or cut the sequence",
            )  # fmt: skip
    dtype = np.result_type(*values)
    if dtype.kind in "iub" and not _holds(dtype, value):
        raise LoaderError(f"pad_collate: value is a number that {dtype} has", f"value={value!r:.40}", "pass e.g. value=0")
    out = np.full((len(values), size, *values[0].shape[1:]), value, dtype)
    for row, v in zip(out, values, strict=True):
        row[: len(v)] = v
    return out, lengths


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a number is one of an integer dtype, or of bool."""
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(low <= value <= high and value == int(value))


def _shapes(samples: Sequence[Any]) -> str:
    """The structures of the first samples that differ from each other."""
    seen = dict.fromkeys("(" + ", ".join(_shape(v) for v in s) + ")" if isinstance(s, tuple) else _shape(s) for s in samples)
    return "shapes " + " and ".join(list(seen)[:3])


def _shape(value: Any) -> str:
    try:
        return str(list(np.shape(value)))
    except ValueError:
        return "ragged"
