"""The public names: what ``__all__`` of the public modules lists, and the attributes of ``fb.kernel``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import firebrick as fb

NAMESPACES = (
    "fb", "fb.linalg", "fb.fft", "fb.random", "fb.distributions", "fb.nn", "fb.nn.initial", "fb.optim", "fb.data", "fb.train",
    "fb.models", "fb.distributed", "fb.analog", "fb.testing", "fb.interop.einops", "fb.interop.web", "fb.kernel",
)  # fmt: skip
"""Public modules, in the order in which a name that several of them have is described."""

CONSTANTS = {
    "fb.__array_api_version__": "Version of the Array API standard that this package follows.",
    "fb.__version__": "Version of this package.",
    "fb.bfloat16": "Floating dtype of 16 bits with the range of float32 and 8 bits of precision.",
    "fb.bool": "Dtype of True and False, one byte each.",
    "fb.complex64": "Complex dtype of two float32.",
    "fb.complex128": "Complex dtype of two float64.",
    "fb.e": "Base of the natural logarithm.",
    "fb.float8_e4m3fn": (
        "Dtype of 8-bit floats with 4 bits of exponent and no infinity, for storage: it can be moved and cast, and has no "
        "arithmetic."
    ),
    "fb.float8_e5m2": (
        "Dtype of 8-bit floats with 5 bits of exponent, for storage: it can be moved and cast, and has no arithmetic."
    ),
    "fb.float16": "Floating dtype of 16 bits, IEEE 754 half precision.",
    "fb.float32": "Floating dtype of 32 bits, IEEE 754 single precision.",
    "fb.float64": "Floating dtype of 64 bits, IEEE 754 double precision.",
    "fb.inf": "Positive infinity.",
    "fb.int8": "Signed integer dtype of 8 bits.",
    "fb.int16": "Signed integer dtype of 16 bits.",
    "fb.int32": "Signed integer dtype of 32 bits.",
    "fb.int64": "Signed integer dtype of 64 bits.",
    "fb.nan": "Not a number.",
    "fb.newaxis": "None: an index that adds an axis of size 1, as in ``x[:, fb.newaxis]``.",
    "fb.pi": "Ratio of a circle's circumference to its diameter.",
    "fb.uint8": "Unsigned integer dtype of 8 bits.",
    "fb.uint16": "Unsigned integer dtype of 16 bits.",
    "fb.uint32": "Unsigned integer dtype of 32 bits.",
    "fb.uint64": "Unsigned integer dtype of 64 bits.",
    "fb.optim.Schedule": (
        "Type of schedules: any function of a 0-d tensor, the number of the step from 0, to a 0-d tensor, the learning rate."
    ),
    "fb.testing.DESTINATIONS": (
        "The values of ``out=`` in conformance cases: none; a new tensor; a tensor with a view of it in use; an operand."
    ),
    "fb.testing.EXCLUDED": "Ops without conformance cases, each with the reason.",
    "fb.testing.LAYOUTS": "Memory layouts of the operands in conformance cases.",
}
"""What each constant is: an object that is neither function nor class has no docstring of its own."""


class UndescribedNameError(LookupError):
    """A public name has neither a docstring nor an entry in ``CONSTANTS``."""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        path: As users write it, such as "fb.nn.Linear".
        value: The object.
        same_as: Path of the name under which the object is described, if it has several.
    """

    path: str
    value: Any
    same_as: str | None = None

    @property
    def kind(self) -> str:
        """ "class", "function", "module", or "constant"."""
        if isinstance(self.value, ModuleType):
            return "module"
        if self.path in CONSTANTS:
            return "constant"
        return "class" if isinstance(self.value, type) else "function"

    @property
    def module(self) -> str:
        """Name of the module in which the object is defined; "" for a constant."""
        return "" if self.kind == "constant" else getattr(self.value, "__module__", None) or ""

    @property
    def doc(self) -> str:
        """The docstring; of a class, with the sections of ``__init__``."""
        if self.path in CONSTANTS:
            return CONSTANTS[self.path]
        # callable objects: the docstring that users read is that of the call
        docs = [self.value.__call__ if self.path == "fb.kernel" else self.value]
        if isinstance(self.value, type) and "__init__" in vars(self.value):
            docs.append(self.value.__init__)
        text = "\n\n".join(inspect.cleandoc(d.__doc__) for d in docs if d.__doc__)
        if not text:
            raise UndescribedNameError(f"{self.path} has no docstring; write one, or an entry in CONSTANTS")
        return text


def _listed(module: Any) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    if isinstance(module, ModuleType):  # what it defines itself
        return [
            n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", None) == module.__name__
        ]  # fmt: skip
    return [n for n in dir(module) if not n.startswith("_")]


def _walk() -> Iterator[tuple[str, Any]]:
    for namespace in NAMESPACES:
        module: Any = fb
        for part in namespace.split(".")[1:]:
            module = getattr(module, part)
        if namespace == "fb":
            yield from ((f"fb.{n}", getattr(fb, n)) for n in ("kernel", "op"))
        yield from ((f"{namespace}.{n}", getattr(module, n)) for n in _listed(module))


def public_names() -> list[Name]:
    """All public names.

    Returns:
        The names of each namespace, in the order of its ``__all__``.
    """
    first: dict[int, str] = {}
    found = []
    for path, value in _walk():
        described = path if path in CONSTANTS else first.setdefault(id(value), path)
        found.append(Name(path, value, None if described == path else described))
    return found
