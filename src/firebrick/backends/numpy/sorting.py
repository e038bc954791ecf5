"""Stable sorts by keys: unsigned integers in the order of the elements, each with the index of its element in its low bits.

No two such keys of a line are equal, so every sort of them is stable, and NumPy's of unsigned integers uses the widest vectors
of the processor. Elements of 64 bits leave no bits for an index unless their keys lie close together: otherwise NumPy's
``argsort`` orders them, and those of equal elements are put in order of their indices afterwards.

NaN has the largest key, and zeros of both signs have one key. In descending order keys are inverted, so that equal elements
are still in the order of their indices. Lines are sorted in blocks that fit into a core's cache, on several threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firebrick.backends.numpy.threads import in_threads
from firebrick.ops import sorting
from firebrick.ops.declare import Array

_FEW = 1 << 12
"""Elements of an array below which NumPy's stable sort takes less time than making keys."""
_BLOCK = 1 << 16
"""Elements of a block of lines: 512 KiB of keys."""
_ALONE = 1 << 15
"""Least elements for which another thread is started."""
_LONG = 1 << 18
"""Least length of a line whose parts are sorted on several threads, and merged."""
_GROUPS = 2
"""Groups of a row's elements for each of the k that are chosen."""


def sort(x: Array, *, axis: int, descending: bool) -> tuple[Array, Array]:
    """Sorted values and the indices they came from."""
    if not _by_keys(x):
        found: tuple[Array, Array] = sorting.sort.reference(x, axis=axis, descending=descending)
        return found
    rows = _lines(x, axis)
    at = np.empty(rows.shape, np.int64)
    values = np.empty_like(rows)

    def block(lines: slice) -> None:
        at[lines] = _order(_keys(rows[lines], descending))
        values[lines] = np.take_along_axis(rows[lines], at[lines], 1)

    _each(block, rows)
    return _back(values, x, axis), _back(at, x, axis)


def sort_values(x: Array, *, axis: int, descending: bool) -> Array:
    """Sorted values: their keys need no indices, unless equal elements have unlike bits, as zeros of unlike signs have."""
    if not _by_keys(x):
        found: Array = sorting.sort_values.reference(x, axis=axis, descending=descending)
        return found
    rows = _lines(x, axis)
    values = np.empty_like(rows)

    def block(lines: slice) -> None:
        part = rows[lines]
        keys = _keys(part, descending)
        if _alike(part):
            values[lines] = _elements(_in_order(keys), x.dtype, descending)
        else:
            values[lines] = np.take_along_axis(part, _order(keys), 1)

    _each(block, rows)
    return _back(values, x, axis)


def top_k(x: Array, *, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """The k first keys in order are chosen before they are sorted."""
    n = x.shape[axis]
    if not _by_keys(x) or not 0 < k < n:
        ordered, at = sort(x, axis=axis, descending=largest)
        return np.take(ordered, range(k), axis), np.take(at, range(k), axis)
    rows = _lines(x, axis)
    at = np.empty((len(rows), k), np.int64)
    values = np.empty((len(rows), k), rows.dtype)

    def block(lines: slice) -> None:
        keys = _keys(rows[lines], largest)
        if _GROUPS * k * 4 > n:
            at[lines] = _first(keys, k)
        else:
            few, places = _candidates(keys, k)
            at[lines] = np.take_along_axis(places, _first(few, k), 1)
        values[lines] = np.take_along_axis(rows[lines], at[lines], 1)

    _each(block, rows)
    return _back(values, x, axis), _back(at, x, axis)


def _by_keys(x: Array) -> bool:
    """Whether an array is sorted by keys: it is not small, and has integers or floating numbers of NumPy's own dtypes."""
    return x.dtype.kind in "iuf" and x.dtype.itemsize <= 8 and x.size >= _FEW


def _lines(x: Array, axis: int) -> Array:
    """The lines along an axis as rows of contiguous memory."""
    rows = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    return rows.reshape(-1, x.shape[axis])


def _back(rows: Array, x: Array, axis: int) -> Array:
    """Rows as lines along an axis of an array of the shape of ``x``, but for the rows' length."""
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(rows.reshape(*rest, rows.shape[1]), -1, axis))


def _each(block: Callable[[slice], None], rows: Array) -> None:
    """Call ``block`` for blocks of rows, on several threads if there are elements enough."""
    step = max(1, _BLOCK // rows.shape[1])
    in_threads(block, [slice(i, i + step) for i in range(0, len(rows), step)], rows.size // _ALONE)


def _keys(x: Array, descending: bool) -> Array:
    """Unsigned integers of the size of the elements, in the order of the elements or, ``descending``, in the reverse order."""
    bits = 8 * x.dtype.itemsize
    wide = np.dtype(f"u{x.dtype.itemsize}")
    sign = wide.type(1 << (bits - 1))
    if x.dtype.kind == "u":
        keys = x.copy()
    elif x.dtype.kind == "i":
        keys = x.view(wide) ^ sign
    else:
        x = x + x.dtype.type(0)  # -0 becomes 0
        signed = x.view(f"i{x.dtype.itemsize}")
        keys = (signed >> (bits - 1)).view(wide)  # all ones for negative numbers, whose order is reversed
        keys |= sign
        keys ^= x.view(wide)
        odd = x != x
        if odd.any():
            keys[odd] = wide.type(-1 % (1 << bits))
    if descending:
        np.invert(keys, out=keys)
    return keys


def _elements(keys: Array, dtype: np.dtype[np.generic], descending: bool) -> Array:
    """The elements that have these keys; of zeros the positive one."""
    bits = 8 * dtype.itemsize
    sign = keys.dtype.type(1 << (bits - 1))
    if descending:
        np.invert(keys, out=keys)
    if dtype.kind == "i":
        keys ^= sign
    elif dtype.kind == "f":
        keys ^= (~keys.view(f"i{dtype.itemsize}") >> (bits - 1)).view(keys.dtype) | sign
    return keys.view(dtype)


def _alike(x: Array) -> bool:
    """Whether elements that are equal in order have equal bits: there is no NaN and no negative zero."""
    if x.dtype.kind != "f":
        return True
    negative_zero = x.view(f"u{x.dtype.itemsize}") == 1 << (8 * x.dtype.itemsize - 1)
    return not (negative_zero.any() or (x != x).any())


def _in_order(keys: Array) -> Array:
    """Rows of keys sorted in place; the parts of long rows on several threads."""
    if keys.shape[1] < _LONG:
        keys.sort(1)
    else:
        for row in keys:
            middle = len(row) // 2
            in_threads(np.ndarray.sort, [row[:middle], row[middle:]], 2)
            row.sort(kind="stable")  # finds two sorted runs, and merges them
    return keys


def _candidates(keys: Array, k: int) -> tuple[Array, Array]:
    """A part of each row's keys, in order of their indices, that has the ``k`` least, and their indices.

    Of the least keys of groups of a row's elements, the k-th is not less than the k-th key of the row.
    """
    rows, n = keys.shape
    groups = _GROUPS * k
    least = keys[:, : n - n % groups].reshape(rows, -1, groups).min(1)
    chosen = keys <= np.partition(least, k - 1, 1)[:, k - 1 : k]
    counts = np.count_nonzero(chosen, 1)
    found = np.flatnonzero(chosen)
    row, place = np.divmod(found, n)
    column = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    # a row of fewer candidates than others is filled up with the largest key, which comes before none of them
    few = np.full((rows, counts.max()), np.iinfo(keys.dtype).max, keys.dtype)
    places = np.zeros(few.shape, np.int64)
    few[row, column] = keys[row, place]
    places[row, column] = place
    return few, places


def _first(keys: Array, k: int) -> Array:
    """The indices of the ``k`` least keys of each row in order, of equal keys the lowest index first."""
    edge = np.partition(keys, k - 1, 1)[:, k - 1 : k]
    chosen = keys <= edge
    if np.count_nonzero(chosen) > k * len(keys):  # of the equals of a k-th key, the first ones
        level = keys == edge
        room = k - np.count_nonzero(chosen ^ level, 1, keepdims=True)
        chosen ^= level & (np.cumsum(level, 1) > room)
    at = (np.flatnonzero(chosen) % keys.shape[1]).reshape(-1, k)
    return np.take_along_axis(at, _order(np.take_along_axis(keys, at, 1)).astype(np.int64, copy=False), 1)


def _order(keys: Array) -> Array:
    """The indices of the keys of each row in order, of equal keys the lowest index first. ``keys`` are overwritten."""
    low = max(1, (keys.shape[1] - 1).bit_length())
    if keys.dtype.itemsize == 8:
        least = keys.min()
        if int(keys.max() - least) >> (64 - low):
            return _order_of_wide(keys)
        keys -= least
        wide = keys
    else:
        wide = keys.astype(np.uint32 if 8 * keys.dtype.itemsize + low <= 32 else np.uint64)
    wide <<= wide.dtype.type(low)
    wide |= np.arange(keys.shape[1], dtype=wide.dtype)
    wide = _in_order(wide)
    wide &= wide.dtype.type((1 << low) - 1)
    return wide.view(np.int64) if wide.dtype.itemsize == 8 else wide


def _order_of_wide(keys: Array) -> Array:
    """``_order`` of keys that leave no bits for an index."""
    if keys.shape[1] < _LONG:
        return _order_by_argsort(keys)
    return np.stack([_merged_order(row) for row in keys])


def _order_by_argsort(keys: Array) -> Array:
    """``_order_of_wide`` on one thread."""
    at = np.argsort(keys, 1)
    ordered = np.take_along_axis(keys, at, 1)
    new = ordered[:, 1:] != ordered[:, :-1]
    tied = np.flatnonzero(~new.all(1))
    if len(tied):  # the number of the element among the unlike ones, with its index, is a key without equals
        number = np.zeros((len(tied), keys.shape[1]), np.uint64)
        np.cumsum(new[tied], 1, out=number[:, 1:])
        number <<= np.uint64(32)
        number |= at[tied].astype(np.uint64)
        number.sort(1)
        at[tied] = (number & np.uint64(0xFFFFFFFF)).view(np.int64)
    return at


def _merged_order(keys: Array) -> Array:
    """``_order_of_wide`` of one long row: its halves are ordered on two threads, and then merged by binary search."""
    middle = len(keys) // 2
    halves = keys[:middle], keys[middle:]
    orders: dict[int, tuple[Array, Array]] = {}
    at = np.empty(len(keys), np.int64)

    def of_half(i: int) -> None:
        found = _order_by_argsort(halves[i][None])[0]
        orders[i] = found, halves[i][found]

    def place(i: int) -> None:
        found, ordered = orders[i]
        before = np.searchsorted(orders[1 - i][1], ordered, "right" if i else "left")  # of equals those of the first half
        at[np.arange(len(found)) + before] = found + i * middle

    in_threads(of_half, (0, 1), 2)
    in_threads(place, (0, 1), 2)
    return at
