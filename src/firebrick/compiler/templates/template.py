"""``Template``: a kernel of one kind for all GPUs, with tile sizes as compile-time constants.

It is a Python function in the kernel language, whose types are given to the decorator. Functions that it calls, such as the
expressions of a spec in front of and behind the kernel's own work, are those of the function around it.

A template checks no index: it tests itself what may be outside of an array, and ``valid_for`` tests with the operands of a
launch whether it computes all of it. An axis that is read in vectors is two axes, of which the last has the size ``vector``: so
the code shows LLVM that the address of a vector is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.language.annotations import (
    ArrayTuple,
    ArrayType,
    ConstantType,
    Number,
    ParameterType,
    Signature,
    signature_of,
    sizes_of,
)
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.kernel.language.size_binding import bound_sizes
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.translate import Instance, translate
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, dtype
from firebrick.core.errors import OperandError, ShapeError
from firebrick.scalar.storage import STORAGE, computed

_MOST_ITEMS = 1024
"""Items of a group, at most, on every GPU."""
_WIDEST = 16
"""Bytes of the widest access to memory."""


def operand(of: DType | str | None, sizes: str) -> ArrayType:
    """The type of an array that a template reads.

    Args:
        of: Its dtype; the name of another parameter for the dtype of that; None for that of the argument.
        sizes: Names of its sizes, separated by commas.
    """
    return ArrayType("In", of, sizes_of(sizes))


def result(of: DType | str, sizes: str, initial: Number | None = None) -> ArrayType:
    """The type of an array that a template writes; ``initial`` is the value of its elements before, if they have one."""
    return ArrayType("Out", of, sizes_of(sizes), initial)


def constant(kind: type, least: int = 1) -> ConstantType:
    """The type of a compile-time constant: bool, int, float or DType; an int is at least ``least``."""
    return ConstantType(kind, least if kind is int else None)


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """The operands of a launch, and the memory of the GPU.

    Attributes:
        arrays: Shape and dtype of each array, results among them, and of each number that no size depends on, which has no
            axes.
        integers: Value of each number that sizes depend on.
        alignment: Bytes that the addresses of all arrays are multiples of.
        shared_bytes: Bytes of shared memory that a group may have.
    """

    arrays: Mapping[str, Aval]
    integers: Mapping[str, int]
    alignment: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class TemplateSizes:
    """The sizes of a launch whose operands fit the template's signature.

    Attributes:
        sizes: Value of each size, of each integer constant, and of each number that sizes depend on, by name.
        constants: Value of each constant, by name.
        elements: Number of elements of the largest array, where empty axes are taken as axes of one element.
    """

    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    elements: int


Valid = Callable[[TemplateSizes], bool]
"""Whether a template computes a launch of these sizes, all of which it has."""


def holds(first: float, launch: TemplateSizes) -> bool:
    """Whether the dtype that is computed in, ``of``, has a number: integers have no infinity."""
    of = launch.constants["of"]
    return of.kind == "float" or (float(first).is_integer() and np.iinfo(of.np).min <= first <= np.iinfo(of.np).max)


def whole_subgroups(launch: TemplateSizes) -> bool:
    """Any sizes; groups of whole subgroups of 32 items."""
    return launch.sizes["group_size"] % 32 == 0


@dataclass(frozen=True, eq=False)
class Template:
    """A kernel for GPUs.

    Attributes:
        name: Of its function.
        source: The function.
        signature: Its parameters.
        group: Name of the constant that is the number of items of a group.
        valid: What its own sizes and constants must fulfil; the rest of ``valid_for`` is the same for all templates.
        floating: Whether it computes in floating dtypes only.
    """

    name: str
    source: Source
    signature: Signature
    group: str
    valid: Valid
    floating: bool
    _programs: dict[Any, KernelProgram] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def valid_for(self, problem: TemplateProblem, **constants: Any) -> bool:
        """Whether the template with these constants computes all of a problem.

        It does not if shapes, dtypes or alignment contradict the signature, or if the template's own conditions do not hold.

        Args:
            problem: The operands of a launch: all arrays and numbers of the signature.
            **constants: All compile-time constants.

        Raises:
            OperandError: An operand or a constant is missing, or there is one that the template does not have.
            KernelCompileError: The functions that the template calls do not fit the dtypes.
        """
        self._check_names("operands", self._dtypes, problem.arrays)
        self._check_names("integers that sizes depend on", self.signature.static, problem.integers)
        self._check_constants(constants)
        integers = {n: v for n, v in constants.items() if type(v) is int} | dict(problem.integers)
        least = {n: p.least or 0 for n, p in self.signature.parameters.items() if isinstance(p, ConstantType)}
        if any(v < least.get(n, 0) for n, v in integers.items()) or constants[self.group] > _MOST_ITEMS:
            return False
        arguments = {n: problem.arrays[n] for n in self._dtypes if n in self.signature.given}
        try:
            found = bound_sizes(self.signature, arguments, integers, self.name)
        except ShapeError:
            return False
        groups = prod(found.grid)
        elements = max(prod(max(1, n) for n in a.shape) for a in problem.arrays.values())
        return (
            all(problem.arrays[n].shape == shape for n, shape in found.results.items())
            and self._dtypes_fit(problem.arrays, constants)
            and self._aligned(problem, constants)
            and groups < 1 << 31  # the number of a group is an int32, that of an item of the launch a uint32
            and groups * constants[self.group] < 1 << 32
            and self.valid(TemplateSizes(found.known, constants, elements))
            and self._shared_bytes(problem.arrays, constants) <= problem.shared_bytes
        )

    def program(self, dtypes: Mapping[str, str], **constants: Any) -> KernelProgram:
        """The kernel for dtypes and constants.

        Args:
            dtypes: Of the arrays and numbers that the signature gives none.
            **constants: Its compile-time constants.

        Raises:
            OperandError: A dtype or a constant is missing, or there is a constant that the template does not have.
            KernelCompileError: The function is not in the kernel language, or constants do not fit each other.
        """
        self._check_constants(constants)
        self._check_names("dtypes", [n for n, own in self._dtypes.items() if own is None], dtypes, more=True)
        found: dict[str, DType] = {}
        for name, own in self._dtypes.items():
            found[name] = own if isinstance(own, DType) else dtype(dtypes[name]) if own is None else found[own]
        instance = Instance(tuple(found.items()), tuple(constants.items()), constants[self.group], unchecked=True)
        with self._lock:
            if instance not in self._programs:
                made = translate(self.source, self.signature, instance)
                self._programs[instance] = KernelProgram(self.name, self.signature, instance, made)
            return self._programs[instance]

    def function(self, dtypes: Mapping[str, str], **constants: Any) -> Function:
        """The kernel IR; arguments as of ``program``."""
        return self.program(dtypes, **constants).translated.function

    @cached_property
    def _dtypes(self) -> dict[str, DType | str | None]:
        """The dtype of each array, and of each number that no size depends on: its own, that of another, or any."""
        parameters, static = self.signature.parameters, self.signature.static
        return {n: p.dtype for n, p in parameters.items() if not isinstance(p, ConstantType) and n not in static}

    def _check_names(self, what: str, wanted: Iterable[str], given: Iterable[str], more: bool = False) -> None:
        wanted, given = list(wanted), list(given)
        if not set(wanted) <= set(given) or (len(wanted) < len(given) and not more):
            raise OperandError(
                f"{self.name} has the {what} {', '.join(wanted) or 'none'}", ", ".join(given) or "none", "pass each of them",
                op=self.name,
            )  # fmt: skip

    def _check_constants(self, constants: Mapping[str, Any]) -> None:
        kinds = {n: p.kind for n, p in self.signature.parameters.items() if isinstance(p, ConstantType)}
        self._check_names("constants", kinds, constants)
        for name, kind in kinds.items():
            if type(constants[name]) is not kind:
                raise OperandError(
                    f"{self.name}: the constant {name} is of type {kind.__name__}", repr(constants[name]), "convert it",
                    op=self.name,
                )  # fmt: skip

    def _dtypes_fit(self, arrays: Mapping[str, Aval], constants: Mapping[str, Any]) -> bool:
        """Whether dtypes are those of the signature, and the one that is computed in, ``of``, holds what is converted to it."""
        of = constants.get("of")
        if of is not None and of.kind not in (("float",) if self.floating else ("float", "int", "uint")):
            return False
        # operands of functions are not converted: an integer stays one
        unconverted = {n for names in self.signature.tuples.values() for n in names}
        for name, own in self._dtypes.items():
            found = arrays[name].dtype
            if own is not None and found is not (own if isinstance(own, DType) else arrays[own].dtype):
                return False
            if found.name not in STORAGE:
                return False
            held = dtype(computed(found.name))
            if of is None or isinstance(own, DType) or (name in unconverted and held.kind != "float"):
                continue
            unchanged = name in self.signature.results or name not in self.signature.arrays
            if not (held is of if unchanged else np.can_cast(held.np, of.np)):
                return False
        return True

    def _aligned(self, problem: TemplateProblem, constants: Mapping[str, Any]) -> bool:
        """Whether the addresses of arrays are those of their elements, or vectors."""
        for name, array in self.signature.arrays.items():
            last = array.sizes[-1] if array.sizes else None
            count = constants["vector"] if last is not None and last.text == "vector" else 1
            if problem.alignment < 1 or problem.alignment % min(_WIDEST, count * problem.arrays[name].dtype.itemsize):
                return False
        return True

    def _shared_bytes(self, arrays: Mapping[str, Aval], constants: Mapping[str, Any]) -> int:
        """Bytes of the shared arrays of a group, each of which begins at a multiple of the widest access."""
        function = self.function({n: arrays[n].dtype.name for n in self._dtypes}, **constants)
        return sum(-(-dtype(a.dtype).itemsize * a.extent // _WIDEST) * _WIDEST for a in function.shared)


def template(
    types: Mapping[str, ParameterType | ArrayTuple | type], grid: str, group: str, valid: Valid, floating: bool = False
) -> Callable[[Callable[..., None]], Template]:  # fmt: skip
    """Make a template of a function.

    Args:
        types: Of its parameters; ``int`` for an integer that sizes depend on.
        grid: Sizes of the grid of groups.
        group: Name of the constant that is the number of items of a group.
        valid: What the template's own sizes and constants must fulfil.
        floating: Whether it computes in floating dtypes only.
    """

    def make(function: Callable[..., None]) -> Template:
        function.__annotations__ = dict(types)
        return Template(function.__name__, Source(function), signature_of(function, grid), group, valid, floating)

    return make
