"""``pad_lengths``: sequences of any length, computed by a few compiled graphs, as each is padded to one of a few sizes."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any

import numpy as np

from firebrick.core.errors import ArgumentError, ConfigError, FirebrickError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.journal import Journal
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import python_numbers, whole
from firebrick.core.tensor import Tensor
from firebrick.core.trees import flatten, tree_map, unflatten
from firebrick.functions.indexing import take
from firebrick.functions.movement import concat
from firebrick.functions.ranges import arange
from firebrick.functions.windows import pad
from firebrick.graph.jit import Jit, disable_jit

LENGTH = "length"
"""The parameter through which the function gets the length."""
NEAR = 64
"""Results for two paddings may differ by this many units of precision, relative to the largest."""
_ROUGHLY = {8: 1e-8, 4: 1e-3, 2: 0.05, 1: 0.5}
"""By bytes of a float: the fraction of the largest element by which a result may differ from that without padding, which adds
up other numbers of terms."""


class PaddingError(FirebrickError, ValueError):
    """The elements with which a sequence was padded have changed results."""


@answers_arguments
def length_sizes(longest: int, *, count: int = 8, shortest: int = 16) -> tuple[int, ...]:
    """Sizes for ``pad_lengths``: powers of two from ``shortest`` on, and ``longest``; at most ``count``.

    Args:
        longest: Maximum length.
        count: Maximum number of sizes. With fewer sizes than there are powers of two, the smallest are left out.
        shortest: Smallest size.

    Raises:
        ConfigError: A number is less than 1.

    Example:
        >>> import firebrick as fb
        >>> fb.length_sizes(2048)
        (16, 32, 64, 128, 256, 512, 1024, 2048)
        >>> fb.length_sizes(1000, count=3)
        (256, 512, 1000)
    """
    longest, count, shortest = (
        whole("length_sizes", name, value, least=1)
        for name, value in (("longest", longest), ("count", count), ("shortest", shortest))
    )
    sizes, n = [longest], 1 << max(0, (shortest - 1).bit_length())
    while n < longest:
        sizes.append(n)
        n *= 2
    return tuple(sorted(sizes)[-count:])


@answers_arguments
def pad_lengths(
    sizes: Sequence[int], *, axis: int = 0, arguments: str | Sequence[str] = (), result_axis: int | None = None,
    value: float = 0, check: bool = True,
) -> Callable[[Callable[..., Any]], PaddedFunction]:  # fmt: skip
    """Call a function under ``jit`` with sequences that are padded to the next of a few sizes: one graph for each size.

    The function gets the true length as the keyword argument ``length``, an int, and masks what lies behind it:
    ``fb.arange(x.shape[axis]) < length``. The first call with each size runs the function for two paddings and compares the
    results, and what it changed, and once without ``jit`` for the sequence as it is. So a forgotten mask, or a mean over the
    padded length, is an error rather than a wrong result. A function that draws random numbers is compared for two paddings
    only.

    Args:
        sizes: Sizes along ``axis``, ascending; ``fb.length_sizes(longest)`` gives powers of two.
        axis: The axis of the sequences' elements.
        arguments: Names of the parameters whose tensors, also in nested containers, are padded; by default the first one.
        result_axis: The axis along which tensors of the result are cut to the length; None to leave them as they are.
        value: The padding's elements.
        check: Whether the first call with each size compares.

    Returns:
        A decorator. What it returns is called as the function, without ``length``.

    Raises:
        ConfigError: Sizes that are not ascending ints ≥ 1.
        ArgumentError: The function has no parameter ``length``, or none of the named ones.
        ShapeError: At a call: a sequence is longer than the largest size, or two have unlike lengths, or a tensor of the
            result is not as long as the padded sequence along ``result_axis``.
        PaddingError: At the first call with a size: results depend on the padding, or are not those without it.

    Example:
        >>> import firebrick as fb
        >>> @fb.pad_lengths((4, 8))
        ... @fb.jit
        ... def mean(x, length):
        ...     return fb.sum(fb.where(fb.arange(len(x)) < length, x, 0.0)) / length
        >>> [mean(fb.ones(n)).item() for n in (1, 3, 4, 7)], mean.function.traces
        ([1.0, 1.0, 1.0, 1.0], 2)
    """
    found = python_numbers(tuple(sizes))
    if not found or any(type(n) is not int or n < 1 for n in found) or list(found) != sorted(set(found)):
        raise ConfigError("sizes are ascending ints ≥ 1", repr(sizes), "pass such sizes, as fb.length_sizes(2048) gives them")
    names = (arguments,) if isinstance(arguments, str) else tuple(arguments)
    return lambda function: PaddedFunction(function, found, axis, names, result_axis, value, check)


class PaddedFunction:
    """A function of padded sequences, as ``pad_lengths`` makes it.

    Attributes:
        function: The function that it calls.
        sizes: Sizes to which sequences are padded.
    """

    def __init__(
        self, function: Callable[..., Any], sizes: tuple[int, ...], axis: int, arguments: tuple[str, ...],
        result_axis: int | None, value: float, check: bool,
    ) -> None:  # fmt: skip
        self.function, self.sizes = function, sizes
        self._axis, self._result_axis, self._value, self._check = axis, result_axis, value, check
        self._checked: set[int] = set()
        update_wrapper(self, function, updated=())
        signature = inspect.signature(function)
        rest = [p for name, p in signature.parameters.items() if name != LENGTH]
        if len(rest) == len(signature.parameters):
            raise ArgumentError(
                f"a function under pad_lengths has a parameter {LENGTH!r}", f"{_name(function)}{signature}",
                f"add it, and mask elements behind it: fb.arange(x.shape[{axis}]) < length",
            )  # fmt: skip
        self._signature = signature.replace(parameters=rest)
        self.__signature__ = self._signature
        self._names = arguments or tuple(p.name for p in rest if p.name != "self")[:1]
        if missing := [n for n in self._names if n not in self._signature.parameters]:
            raise ArgumentError(
                f"arguments names parameters of {_name(function)}{self._signature}", ", ".join(missing), "check the names"
            )

    def __repr__(self) -> str:
        return f"<{_name(self.function)} of lengths padded to {', '.join(map(str, self.sizes))}>"

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._signature.bind(*args, **kwargs)
        found = [(name, *flatten(given.arguments[name])) for name in self._names if name in given.arguments]
        tensors = [t for _, leaves, _ in found for t in leaves if isinstance(t, Tensor)]
        length = self._length(tensors)
        at = bisect_left(self.sizes, length)
        if at == len(self.sizes):
            raise ShapeError(
                f"{_name(self.function)} takes sequences of at most {self.sizes[-1]} elements",
                f"{length} along axis {self._axis}", "add a larger size, or cut the sequence",
            )  # fmt: skip
        size = self.sizes[at]

        def run(fill: Callable[[Tensor, int], Tensor]) -> Any:
            call = self._signature.bind(*args, **kwargs)
            for name, leaves, structure in found:
                padded = [fill(t, size) if isinstance(t, Tensor) else t for t in leaves]
                call.arguments[name] = unflatten(structure, padded)
            return self.function(*call.args, **call.kwargs, **{LENGTH: length})

        # a function without jit may print or read; and a trace around this call runs what it traces once
        compare = self._check and 0 < length < size and size not in self._checked and isinstance(self.function, Jit)
        if compare and hooks.trace() is None:
            result = self._compared(run, size, length)
            self._checked.add(size)
        else:
            result = self._cut(run(self._padded), size, length)
        return result

    def _length(self, tensors: list[Tensor]) -> int:
        if not tensors:
            raise ShapeError(f"{', '.join(self._names)}: tensors to pad", "none", "pass tensors, or name others in arguments=")
        for t in tensors:
            if not -t.ndim <= self._axis < t.ndim:
                raise ShapeError(
                    f"sequences along axis {self._axis}",
                    f"a tensor of shape {t.shape}",
                    "name the arguments that have that axis",
                )
        lengths = {t.shape[self._axis] for t in tensors}
        if len(lengths) > 1:
            raise ShapeError(
                f"{', '.join(self._names)}: sequences of one length along axis {self._axis}",
                ", ".join(str(t.shape) for t in tensors), "pad those within a batch first; fb.data.pad_collate does so",
            )  # fmt: skip
        return lengths.pop()

    def _widths(self, t: Tensor, size: int) -> list[tuple[int, int]]:
        axis = self._axis % t.ndim
        return [(0, size - n if k == axis else 0) for k, n in enumerate(t.shape)]

    def _padded(self, t: Tensor, size: int) -> Tensor:
        if t.shape[self._axis] == size:
            return t
        return pad(t, self._widths(t, size), value=bool(self._value) if t.dtype.kind == "bool" else self._value)

    def _repeated(self, t: Tensor, size: int) -> Tensor:
        """The sequence, padded with its own elements, floats among them changed."""
        length = t.shape[self._axis]
        at = arange(length, size, device=t.device) % length
        behind = take(t, at, axis=self._axis)
        return concat([t, behind * 2.0 + 1.0 if t.dtype.is_floating else behind], axis=self._axis)

    def _cut(self, result: Any, size: int, length: int) -> Any:
        axis = self._result_axis
        if axis is None:
            return result

        def cut(t: Any) -> Any:
            if not isinstance(t, Tensor):
                return t
            if not -t.ndim <= axis < t.ndim or t.shape[axis] != size:
                raise ShapeError(
                    f"tensors of the result have {size} elements along result_axis={axis}, as the padded sequence has",
                    f"shape {t.shape}", "return sequences alone, or leave result_axis out and cut what is one",
                )  # fmt: skip
            return t[(slice(None),) * (axis % t.ndim) + (slice(0, length),)]

        return tree_map(cut, result)

    def _compared(self, run: Callable[[Callable[[Tensor, int], Tensor]], Any], size: int, length: int) -> Any:
        """The result, after a run with another padding, and one without padding or ``jit``, that leave nothing behind."""
        _, others, drawn = self._tried(lambda: self._cut(run(self._repeated), size, length), keep=None)
        whole: list[Any] = []
        if not drawn:  # fewer elements are other random numbers
            with disable_jit():
                unpadded, _, drawn = self._tried(lambda: run(lambda t, size: t), keep=None)
            whole = [] if drawn else _arrays(unpadded)
        result, _, _ = self._tried(lambda: self._cut(run(self._padded), size, length), keep=others, like=whole)
        return result

    def _tried(self, body: Callable[[], Any], keep: list[Any] | None, like: Sequence[Any] = ()) -> tuple[Any, list[Any], bool]:
        """Run and collect all values that result, and whether random numbers were drawn; restored afterwards, unless they
        equal those of ``keep``, and results are near ``like``."""
        journal = Journal(draws=True)
        journal.enter()
        done = False
        try:
            result = body()
            changed = [t for known, _ in journal._noted.values() if (t := known()) is not None]
            values = _arrays(result) + [t.numpy() for t in changed]
            if keep is not None:
                self._check_equal(keep, values)
                self._check_similar(like, values)
                done = True
            return result, values, bool(journal._draws)
        finally:
            journal.leave()
            if not done:
                journal.restore()

    def _check_similar(self, whole: Sequence[Any], values: list[Any]) -> None:
        for number, (x, y) in enumerate(zip(whole, values, strict=False)):  # changed state comes last, in another order
            if x.shape == y.shape and not _near(x, y, _ROUGHLY[x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1)]):
                raise PaddingError(
                    f"the results of {_name(self.function)} are those of the sequence without padding",
                    f"value {number} of those that it returns, of shape {y.shape}, is another one without padding",
                    f"divide by `length`, not by x.shape[{self._axis}], and count positions from the first element",
                )  # fmt: skip

    def _check_equal(self, others: list[Any], values: list[Any]) -> None:
        for number, (x, y) in enumerate(zip(others, values, strict=True)):
            if not _near(x, y):
                raise PaddingError(
                    f"the results of {_name(self.function)} do not depend on the elements behind `length`",
                    f"value {number} of those that it returns or changes, of shape {y.shape}, does",
                    f"mask them: fb.where(fb.arange(x.shape[{self._axis}]) < length, …), or a mask for attention and losses",
                )  # fmt: skip


def _arrays(result: Any) -> list[Any]:
    """The values of the tensors of a result."""
    return [t.numpy() for t in flatten(result)[0] if isinstance(t, Tensor)]


def _near(x: Any, y: Any, within: float | None = None) -> bool:
    """Whether arrays are near each other: within ``NEAR`` units of precision, or a fraction of the largest element."""
    if x.shape != y.shape:
        return False
    if x.dtype.kind in "biu":
        return bool((x == y).all())
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = x.astype(wide), y.astype(wide)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        eps = 2.0 ** -(52 if x.dtype.itemsize == 8 and wide is np.float64 else 23 if x.dtype.itemsize >= 4 else 7)
        limit = (NEAR * eps if within is None else within) * float(np.abs(b)[finite].max(initial=0.0))
        return bool((same | (finite & (np.abs(a - b) <= limit))).all())


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__)
