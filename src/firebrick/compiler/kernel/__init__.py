"""Kernel IR: what one work item of a kernel does, as data that no target owns."""

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.kernel.interpret import interpret
from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
)
from firebrick.compiler.kernel.serialize import from_json, to_json
from firebrick.compiler.kernel.verify import verify

__all__ = [
    "ArrayParameter", "Assign", "Atomic", "Barrier", "Check", "CompareExchange", "Fault", "For", "Function", "If", "Let",
    "ScalarParameter", "SharedArray", "Shuffle", "Statement", "Store", "While", "from_json", "interpret", "to_json", "verify",
]  # fmt: skip
