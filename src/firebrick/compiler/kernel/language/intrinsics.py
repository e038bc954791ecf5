"""The functions of the kernel language that have no meaning outside of a kernel: indices, shared arrays, barriers, atomics."""

from __future__ import annotations

from typing import Any, NoReturn

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
        axis: Which index alone, a compile-time constant.

    Returns:
        int64, or a tuple of them.
    """
    _inside_only("index")


def group(axis: int | None = None) -> Any:
    """The index of the work item's group in the grid of groups: an int64 for each axis, as a tuple if there are several.

    Args:
        axis: Which index alone, a compile-time constant.

    Returns:
        int64, or a tuple of them.
    """
    _inside_only("group")


def lane() -> Any:
    """The index of the work item in its group, int64: from 0 to the size of the group."""
    _inside_only("lane")


def shared(dtype: Any, shape: Any) -> Any:
    """An array that the items of a group have in common. Its elements have no value before they are stored.

    Args:
        dtype: Of its elements.
        shape: Number of elements, or sizes, all compile-time constants.

    Returns:
        An array, which is indexed like an argument.
    """
    _inside_only("shared")


def registers(value: Any, shape: Any) -> Any:
    """An array of variables of one item. Its indices are compile-time constants, such as the counters of ``unrolled`` loops.

    Args:
        value: The first value of all elements; its dtype is theirs.
        shape: Number of elements, or sizes, all compile-time constants.

    Returns:
        An array, which is indexed like an argument.
    """
    _inside_only("registers")


def barrier() -> None:
    """Wait for the items of the group: what they stored before the barrier, all of them see after it.

    All items of a group execute it, so it is not in a branch or loop whose condition may differ between them.
    """
    _inside_only("barrier")


def unrolled(*bounds: int) -> Any:
    """A loop that is written out for each value of its counter, which is a compile-time constant: like ``range``."""
    _inside_only("unrolled")


def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """Add to an element, as one operation that no other item's comes between.

    Args:
        array: Of 32- or 64-bit integers, shared or ``InOut`` or ``Out`` with a first value. Floats too in a kernel with
            ``deterministic=False``, since the order of additions is not determined.
        index: Integer, or a tuple of them.
        value: What is added.

    Returns:
        The element's value before, of the array's dtype. It depends on the order of the items.
    """
    _inside_only("atomic_add")


def atomic_min(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the smaller of it and a value; see ``atomic_add``."""
    _inside_only("atomic_min")


def atomic_max(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by the larger of it and a value; see ``atomic_add``."""
    _inside_only("atomic_max")


def atomic_and(array: Any, index: Any, value: Any) -> Any:
    """Replace an element by its bits that are in a value too; see ``atomic_add``."""
    _inside_only("atomic_and")


def atomic_or(array: Any, index: Any, value: Any) -> Any:
    """Set the bits of a value in an element; see ``atomic_add``."""
    _inside_only("atomic_or")


def atomic_xor(array: Any, index: Any, value: Any) -> Any:
    """Invert the bits of a value in an element; see ``atomic_add``."""
    _inside_only("atomic_xor")


def atomic_exchange(array: Any, index: Any, value: Any) -> Any:
    """Store a value, and get the one before; see ``atomic_add``."""
    _inside_only("atomic_exchange")


def compare_exchange(array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Store a value if the element has the expected one; returns the element's value before. See ``atomic_add``."""
    _inside_only("compare_exchange")


def shuffle(value: Any, source: Any, width: int) -> Any:
    """The value that another item of the group has: item ``source`` modulo ``width`` of the ``width`` items around this one.

    Args:
        value: What each item offers.
        source: Integer.
        width: A power of two that divides the group, a compile-time constant.

    Returns:
        The other item's value. All items of a group execute it, as a ``barrier``.
    """
    _inside_only("shuffle")


def random_bits(key: Any, position: Any) -> Any:
    """Word ``position`` of the random stream of a key, uint32: the same number on every engine.

    Args:
        key: Array of four uint32 words, as ``Generator.key`` makes them.
        position: Integer, such as the item's index.

    Returns:
        uint32.
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
    """
    _inside_only("random_uniform")


def fma(a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""
    _inside_only("fma")
