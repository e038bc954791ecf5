"""The functions of the kernel language that have no meaning outside of a kernel: indices, shared arrays, barriers, atomics."""

from __future__ import annotations

from typing import Any, NoReturn

from firebrick.core.docstrings import documented_like
from firebrick.core.errors import UnsupportedError


def _inside_only(name: str) -> NoReturn:
    raise UnsupportedError(
        f"fb.kernel.{name} is part of the kernel language",
        "a call outside of a kernel",
        "call it in a function that @fb.kernel decorates",
    )


def index(axis: int | None = None) -> Any:
    """The index of the work item in the grid: an int64 for each axis, as a tuple if there are several.

    Args:
        axis: The axis whose index is returned, a compile-time constant; all axes by default.

    Returns:
        int64, or a tuple of them.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def double(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
        ...     i = fb.kernel.index()
        ...     out[i] = 2.0 * x[i]
        >>> double(fb.ones(3)).tolist()
        [2.0, 2.0, 2.0]
    """
    _inside_only("index")


def group(axis: int | None = None) -> Any:
    """The index of the work item's group in the grid of groups: an int64 for each axis, as a tuple if there are several.

    Args:
        axis: The axis whose index is returned, a compile-time constant; all axes by default.

    Returns:
        int64, or a tuple of them.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n", group=2)
        ... def groups(out: fb.kernel.Out[fb.int64, "n, 2"], n: int):
        ...     i = fb.kernel.group()
        ...     out[i, fb.kernel.lane()] = i
        >>> groups(n=2).tolist()
        [[0, 0], [1, 1]]
    """
    _inside_only("group")


def lane() -> Any:
    """The index of the work item in its group, int64: from 0 to the size of the group.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n", group=2)
        ... def lanes(out: fb.kernel.Out[fb.int64, "n, 2"], n: int):
        ...     out[fb.kernel.group(), fb.kernel.lane()] = fb.kernel.lane()
        >>> lanes(n=2).tolist()
        [[0, 1], [0, 1]]
    """
    _inside_only("lane")


def shared(dtype: Any, shape: Any) -> Any:
    """An array that all items of a group read and write. Its elements have no value before they are stored.

    Args:
        dtype: Of its elements.
        shape: Number of elements, or sizes, all compile-time constants.

    Returns:
        An array, which is indexed like an argument.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n", group=4)
        ... def reverse(x: fb.kernel.In[fb.float32, "n, 4"], out: fb.kernel.Out[fb.float32, "n, 4"]):
        ...     i, j = fb.kernel.group(), fb.kernel.lane()
        ...     row = fb.kernel.shared(fb.float32, 4)
        ...     row[j] = x[i, j]
        ...     fb.kernel.barrier()
        ...     out[i, j] = row[3 - j]
        >>> reverse(fb.asarray([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[4.0, 3.0, 2.0, 1.0]]
    """
    _inside_only("shared")


def registers(value: Any, shape: Any) -> Any:
    """An array of variables of one item. Its indices are compile-time constants, such as the counters of ``unrolled`` loops.

    Args:
        value: The first value of all elements; its dtype is theirs.
        shape: Number of elements, or sizes, all compile-time constants.

    Returns:
        An array, which is indexed like an argument.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def cubes(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
        ...     i = fb.kernel.index()
        ...     powers = fb.kernel.registers(x[i], 3)
        ...     for k in fb.kernel.unrolled(1, 3):
        ...         powers[k] = powers[k - 1] * x[i]
        ...     out[i] = powers[2]
        >>> cubes(fb.asarray([2.0, 3.0])).tolist()
        [8.0, 27.0]
    """
    _inside_only("registers")


def barrier() -> None:
    """Wait for all items of the group: after it, each of them reads what any of them stored before it.

    All items of a group execute it, so it must not be in a branch or loop whose condition may differ between them.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n", group=4)
        ... def reverse(x: fb.kernel.In[fb.float32, "n, 4"], out: fb.kernel.Out[fb.float32, "n, 4"]):
        ...     i, j = fb.kernel.group(), fb.kernel.lane()
        ...     row = fb.kernel.shared(fb.float32, 4)
        ...     row[j] = x[i, j]
        ...     fb.kernel.barrier()
        ...     out[i, j] = row[3 - j]
        >>> reverse(fb.asarray([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[4.0, 3.0, 2.0, 1.0]]
    """
    _inside_only("barrier")


def unrolled(*bounds: int) -> Any:
    """``range`` for a loop that is unrolled: its body is repeated for each value of the counter, a compile-time constant.

    Args:
        bounds: Stop; start and stop; or start, stop and step. Compile-time constants.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def row_sum(x: fb.kernel.In[fb.float32, "n, 3"], out: fb.kernel.Out[fb.float32, "n"]):
        ...     i = fb.kernel.index()
        ...     total = 0.0
        ...     for k in fb.kernel.unrolled(3):
        ...         total += x[i, k]
        ...     out[i] = total
        >>> row_sum(fb.ones((2, 3))).tolist()
        [3.0, 3.0]
    """
    _inside_only("unrolled")


def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """Add to an element atomically: no other item reads or writes it in between.

    Args:
        array: Of 32- or 64-bit integers, shared or ``InOut`` or ``Out`` with a first value. Floats too in a kernel with
            ``deterministic=False``, since the order of additions is not determined.
        index: Integer, or a tuple of them.
        value: The number to add.

    Returns:
        The element's value before, of the array's dtype. It depends on the order of the items.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def total(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.atomic_add(out, 0, x[fb.kernel.index()])
        >>> total(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [16]
    """
    _inside_only("atomic_add")


@documented_like(atomic_add)
def atomic_min(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the minimum of it and a value, atomically; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def smallest(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 100]):
        ...     fb.kernel.atomic_min(out, 0, x[fb.kernel.index()])
        >>> smallest(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [3]
    """
    _inside_only("atomic_min")


@documented_like(atomic_add)
def atomic_max(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the maximum of it and a value, atomically; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def largest(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.atomic_max(out, 0, x[fb.kernel.index()])
        >>> largest(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [7]
    """
    _inside_only("atomic_max")


@documented_like(atomic_add)
def atomic_and(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the bitwise "and" of it and a value, atomically; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def common(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 7]):
        ...     fb.kernel.atomic_and(out, 0, x[fb.kernel.index()])
        >>> common(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [2]
    """
    _inside_only("atomic_and")


@documented_like(atomic_add)
def atomic_or(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the bitwise "or" of it and a value, atomically; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def union(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.atomic_or(out, 0, x[fb.kernel.index()])
        >>> union(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [7]
    """
    _inside_only("atomic_or")


@documented_like(atomic_add)
def atomic_xor(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the bitwise "exclusive or" of it and a value, atomically; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def parity(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.atomic_xor(out, 0, x[fb.kernel.index()])
        >>> parity(fb.asarray([6, 3, 7], dtype=fb.int32)).tolist()
        [2]
    """
    _inside_only("atomic_xor")


@documented_like(atomic_add)
def atomic_exchange(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by a value atomically, and return the one before; see ``atomic_add``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def store(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.atomic_exchange(out, 0, x[fb.kernel.index()])
        >>> store(fb.asarray([5], dtype=fb.int32)).tolist()
        [5]
    """
    _inside_only("atomic_exchange")


def compare_exchange(array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Replace an element by a value if it equals another, atomically; returns the value before. See ``atomic_add``.

    Args:
        array: As for ``atomic_add``.
        index: Integer, or a tuple of them.
        expected: The value that is replaced; any other stays.
        value: The value to store.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n")
        ... def replace(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "1", 0]):
        ...     fb.kernel.compare_exchange(out, 0, 0, x[fb.kernel.index()])
        >>> replace(fb.asarray([5], dtype=fb.int32)).tolist()
        [5]
    """
    _inside_only("compare_exchange")


def shuffle(value: Any, source: Any, width: int) -> Any:
    """The value of another item of the group: of item ``source`` modulo ``width`` in this item's block of ``width`` items.

    Args:
        value: The value of this item, which others may read.
        source: Integer.
        width: A power of two that divides the group, a compile-time constant.

    Returns:
        The other item's value. All items of a group execute it, as a ``barrier``.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel(grid="n", group=4)
        ... def neighbour(x: fb.kernel.In[fb.float32, "n, 4"], out: fb.kernel.Out[fb.float32, "n, 4"]):
        ...     i, j = fb.kernel.group(), fb.kernel.lane()
        ...     out[i, j] = fb.kernel.shuffle(x[i, j], j + 1, 4)
        >>> neighbour(fb.asarray([[1.0, 2.0, 3.0, 4.0]])).tolist()
        [[2.0, 3.0, 4.0, 1.0]]
    """
    _inside_only("shuffle")


def random_bits(key: Any, position: Any) -> Any:
    """Word ``position`` of the random stream of a key, uint32: the same number on every engine.

    Args:
        key: Array of four uint32 words, as ``Generator.key`` makes them.
        position: Integer, such as the item's index.

    Returns:
        uint32.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def bits(key: fb.kernel.In[fb.uint32, "4"], out: fb.kernel.Out[fb.uint32, "n"], n: int):
        ...     i = fb.kernel.index()
        ...     out[i] = fb.kernel.random_bits(key, i)
        >>> bits(fb.random.Generator(0).key(), n=3).shape
        (3,)
    """
    _inside_only("random_bits")


def random_uniform(key: Any, position: Any, dtype: Any = None) -> Any:
    """Number ``position`` of a stream of uniform numbers in [0, 1); see ``random_bits``.

    Args:
        key: Array of four uint32 words.
        position: Integer.
        dtype: float32, the default, or float64.

    Returns:
        A number of the dtype.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def uniform(key: fb.kernel.In[fb.uint32, "4"], out: fb.kernel.Out[fb.float32, "n"], n: int):
        ...     i = fb.kernel.index()
        ...     out[i] = fb.kernel.random_uniform(key, i)
        >>> x = uniform(fb.random.Generator(0).key(), n=3)
        >>> fb.all(x < 1.0).item()
        True
    """
    _inside_only("random_uniform")


def fma(a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once.

    Args:
        a: Number.
        b: Number of the same dtype.
        c: Number of the same dtype.

    Example:
        >>> import firebrick as fb
        >>> @fb.kernel
        ... def line(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
        ...     i = fb.kernel.index()
        ...     out[i] = fb.kernel.fma(x[i], 2.0, 1.0)
        >>> line(fb.asarray([1.0, 2.0])).tolist()
        [3.0, 5.0]
    """
    _inside_only("fma")
