"""``KernelProgram``: a translated kernel with what a call needs: sizes, results, the interpreter, errors of its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from firebrick.compiler.kernel.interpret import interpret
from firebrick.compiler.kernel.language.annotations import NumberType, Signature, size_name
from firebrick.compiler.kernel.language.coverage import stores_all
from firebrick.compiler.kernel.language.reports import assertion_error, index_error, limit_error, loop_lines
from firebrick.compiler.kernel.language.size_binding import bound_sizes
from firebrick.compiler.kernel.language.translate import Instance, Translated
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.dtypes import DType
from firebrick.core.errors import FirebrickError

Array = np.ndarray[Any, Any]
_LAUNCHES = 256
"""Maximum number of calls whose sizes are kept."""


@dataclass(frozen=True, slots=True)
class LaunchSizes:
    """The sizes of one call.

    Attributes:
        scalars: A number for each scalar of the kernel's function.
        grid: Sizes of the grid; that of a group last, if there are groups.
        results: Shape and dtype of each result.
    """

    scalars: dict[str, int]
    grid: tuple[int, ...]
    results: tuple[Aval, ...]


@dataclass(frozen=True, eq=False)
class KernelProgram:
    """A kernel for certain dtypes, for all sizes.

    Attributes:
        name: For messages.
        signature: Its parameters.
        instance: Their dtypes.
        translated: Its kernel IR.
    """

    name: str
    signature: Signature
    instance: Instance
    translated: Translated

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Parameters that a call has an array for, numbers among them, in order."""
        static = self.signature.static
        return tuple(
            n for n, p in self.signature.given.items()
            if n not in static and (isinstance(p, NumberType) or n in self.signature.arrays)
        )  # fmt: skip

    @cached_property
    def filled(self) -> dict[str, bool | int | float]:
        """The value of all elements of a result before the launch: 0 where some may not be stored."""
        found: dict[str, bool | int | float] = {}
        for name, array in self.signature.results.items():
            sizes = [size_name(name, a, s) for a, s in enumerate(array.sizes)]
            whole = sizes == [s.text for s in self.signature.grid]
            function, shape = self.translated.function, self.translated.shapes[name]
            if array.role == "Out" and (array.initial is not None or not (whole and stores_all(function, name, shape))):
                found[name] = array.initial or 0
        return found

    @cached_property
    def unset(self) -> tuple[str, ...]:
        """The results whose elements have no values before the launch."""
        return tuple(n for n, a in self.signature.results.items() if a.role == "Out" and a.initial is None)

    @property
    def limit_site(self) -> int:
        """The site of the fault of a loop that passes the limit of rounds."""
        return len(self.translated.sites)

    def dtype(self, name: str) -> DType:
        """The dtype of an array or number."""
        return dict(self.instance.dtypes)[name]

    @cached_property
    def _launches(self) -> dict[Any, LaunchSizes]:
        """Sizes of some calls before."""
        return {}

    def sizes(self, shapes: Sequence[tuple[int, ...]], statics: Mapping[str, int]) -> LaunchSizes:
        """The sizes of a call.

        Args:
            shapes: Of the operands.
            statics: Integers that sizes depend on.

        Raises:
            ShapeError: Shapes do not fit the annotations, or each other.
        """
        key = tuple(shapes), tuple(statics.items())
        found = self._launches.get(key)
        if found is None:
            if len(self._launches) >= _LAUNCHES:
                self._launches.clear()
            found = self._launches[key] = self._sizes(shapes, statics)
        return found

    def _sizes(self, shapes: Sequence[tuple[int, ...]], statics: Mapping[str, int]) -> LaunchSizes:
        integers = {n: v for n, v in dict(self.instance.constants).items() if type(v) is int} | dict(statics)
        operands = {n: Aval(tuple(s), self.dtype(n)) for n, s in zip(self.operands, shapes, strict=True)}
        found = bound_sizes(self.signature, operands, integers, self.name)
        results = tuple(Aval(shape, self.dtype(n)) for n, shape in found.results.items())
        grid = (*found.grid, self.instance.group) if self.instance.group else found.grid
        return LaunchSizes({s.name: found.known[s.name] for s in self.translated.function.scalars}, grid, results)

    def buffers(self, operands: Sequence[Array], results: Sequence[Array]) -> list[Array]:
        """The arrays of the kernel's function in order, flat; an ``InOut`` argument has been copied to its result."""
        given = dict(zip(self.operands, operands, strict=True)) | dict(zip(self.signature.results, results, strict=True))
        return [given[a.name].reshape(-1) for a in self.translated.function.arrays]

    def prepared(self, operands: Sequence[Array], sizes: LaunchSizes, new: Callable[[Aval], Array]) -> list[Array]:
        """New arrays for the results, with the values that they have before the launch."""
        given = dict(zip(self.operands, operands, strict=True))
        made = []
        for (name, array), aval in zip(self.signature.results.items(), sizes.results, strict=True):
            out = new(aval)
            if array.role == "InOut":
                out[...] = given[name]
            elif name in self.filled:
                out.fill(self.filled[name])
            made.append(out)
        return made

    def interpreted(self, operands: Sequence[Array], statics: Mapping[str, int], checked: bool = False) -> tuple[Array, ...]:
        """The results by the interpreter of kernel IR.

        Args:
            operands: Arrays.
            statics: Integers that sizes depend on.
            checked: Whether races, and reads of what was not written, are looked for.

        Raises:
            OutOfRangeError: A check fails.
        """
        sizes = self.sizes([x.shape for x in operands], statics)
        flat = [np.ascontiguousarray(x) for x in operands]
        results = self.prepared(flat, sizes, lambda a: np.zeros(a.shape, a.dtype.np))
        function = self.translated.function
        arrays = dict(zip([a.name for a in function.arrays], self.buffers(flat, results), strict=True))
        fault = interpret(function, arrays, sizes.scalars, sizes.grid, config.kernel_loop_limit, checked, unset=self.unset)
        if fault is not None:
            raise self.error(fault.site, fault.payload, sizes.scalars)
        return tuple(results)

    def error(self, site: int, payload: int, scalars: Mapping[str, int]) -> FirebrickError:
        """The error of a check that failed.

        Args:
            site: Number of the check.
            payload: The index that is out of range, or the number of a loop.
            scalars: Of the launch.
        """
        if site == self.limit_site:
            return limit_error(self.name, loop_lines(self.translated.function)[payload])
        at = self.translated.sites[site]
        if not at.array:
            return assertion_error(self.name, at.size, at.line)
        return index_error(self.name, at.array, at.axis, scalars.get(at.size, at.size), at.line, payload)
