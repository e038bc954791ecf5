"""``Template``: a kernel of one kind for all GPUs, with tile sizes as compile-time constants.

It is a Python function in the kernel language, whose types are given to the decorator. Functions that it calls, such as the
expressions of a spec in front of and behind the kernel's own work, are those of the function around it.

A template checks no index: it tests itself what may be outside of an array, and ``valid_for`` says for which problems it is
right. An axis that is read in vectors is two axes, of which the last has the size ``vector``: so the code shows LLVM that the
address of a vector is aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.language.annotations import (
    ArrayType,
    ConstantType,
    Number,
    ParameterType,
    Signature,
    signature_of,
    sizes_of,
)
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.translate import Instance, translate
from firebrick.core.dtypes import DType, dtype


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


def constant(kind: type) -> ConstantType:
    """The type of a compile-time constant: bool, int, float or DType."""
    return ConstantType(kind)


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """What a launch of a template is about.

    Attributes:
        sizes: By the names of the template.
        alignment: Bytes that the addresses of all arrays are multiples of.
    """

    sizes: Mapping[str, int]
    alignment: int = 16


Valid = Callable[[TemplateProblem, Mapping[str, Any]], bool]
"""(problem, compile-time constants) → whether the template computes it."""


@dataclass(frozen=True, eq=False)
class Template:
    """A kernel for GPUs.

    Attributes:
        name: Of its function.
        source: The function.
        signature: Its parameters.
        group: Name of the constant that is the number of items of a group.
        valid: See ``valid_for``.
    """

    name: str
    source: Source
    signature: Signature
    group: str
    valid: Valid
    _programs: dict[Any, KernelProgram] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def valid_for(self, problem: TemplateProblem, **constants: Any) -> bool:
        """Whether the template with these constants computes a problem, of these sizes and this alignment."""
        return self.valid(problem, constants)

    def program(self, dtypes: Mapping[str, str], **constants: Any) -> KernelProgram:
        """The kernel for dtypes and constants.

        Args:
            dtypes: Of the arrays and numbers that the signature gives none.
            **constants: Its compile-time constants.

        Raises:
            KernelCompileError: The function is not in the kernel language, or constants do not fit each other.
        """
        found: dict[str, DType] = {}
        for name, p in self.signature.parameters.items():
            if name in self.signature.static:
                continue
            own = getattr(p, "dtype", None)
            if isinstance(own, DType):
                found[name] = own
            elif isinstance(p, ArrayType) and isinstance(own, str):
                found[name] = found[own]
            elif hasattr(p, "dtype"):
                found[name] = dtype(dtypes[name])
        instance = Instance(tuple(found.items()), tuple(constants.items()), constants[self.group], unchecked=True)
        with self._lock:
            if instance not in self._programs:
                made = translate(self.source, self.signature, instance)
                self._programs[instance] = KernelProgram(self.name, self.signature, instance, made)
            return self._programs[instance]

    def function(self, dtypes: Mapping[str, str], **constants: Any) -> Function:
        """The kernel IR; arguments as of ``program``."""
        return self.program(dtypes, **constants).translated.function


def template(
    types: Mapping[str, ParameterType | type], grid: str, group: str, valid: Valid
) -> Callable[[Callable[..., None]], Template]:  # fmt: skip
    """Make a template of a function.

    Args:
        types: Of its parameters; ``int`` for an integer that sizes depend on.
        grid: Sizes of the grid of groups.
        group: Name of the constant that is the number of items of a group.
        valid: See ``Template.valid_for``.
    """

    def make(function: Callable[..., None]) -> Template:
        function.__annotations__ = dict(types)
        return Template(function.__name__, Source(function), signature_of(function, grid), group, valid)

    return make
