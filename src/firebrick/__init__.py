"""Firebrick: one tensor program, trained and run on any engine.

>>> import firebrick as fb
>>> x = fb.asarray([1.0, 2.0, 3.0])
>>> fb.grad(lambda x: fb.sum(x * x))(x).tolist()
[2.0, 4.0, 6.0]
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firebrick import analog as analog
    from firebrick import data as data
    from firebrick import distributed as distributed
    from firebrick import distributions as distributions
    from firebrick import interop as interop
    from firebrick import models as models
    from firebrick import nn as nn
    from firebrick import ops as ops
    from firebrick import optim as optim
    from firebrick import random as random
    from firebrick import testing as testing
    from firebrick import train as train
    from firebrick.functions import fft as fft
    from firebrick.functions import linalg as linalg
    from firebrick.functions.custom import op as op
    from firebrick.functions.kernels import kernel as kernel
    from firebrick.namespace import *  # noqa: F403
    from firebrick.namespace import __all__ as __all__

# imported when first used, so that `import firebrick` stays quick
_SUBPACKAGES = (
    "analog", "nn", "optim", "data", "distributed", "distributions", "train", "models", "random", "interop", "testing", "ops",
)  # fmt: skip
_CHAPTERS = ("fft", "linalg")  # extensions of the Array API standard
_OWN_OPS = {"kernel": "kernels", "op": "custom"}  # for operations of one's own, which few programs have


def _load() -> None:
    """Put the names of the root into it, except those that somebody has set already. The list of names comes last, as it says
    that all are there."""
    namespace = _import_module("firebrick.namespace")
    for name in namespace.__all__:
        globals().setdefault(name, getattr(namespace, name))
    globals()["__all__"] = namespace.__all__


if not TYPE_CHECKING:  # for a type checker, other names are errors

    def __getattr__(name: str) -> Any:
        if f"firebrick.{name}" in _sys.modules:  # another thread has imported it, and has yet to set it here
            return _import_module(f"firebrick.{name}")
        if "__all__" not in globals() and name not in ("__path__", "__wrapped__"):
            _load()
            if name in globals():
                return globals()[name]
        with _import_module("firebrick.graph.trace").outside():  # what a module makes as it is imported is no part of a graph
            if name in _SUBPACKAGES:
                return _import_module(f"firebrick.{name}")
            if name in _CHAPTERS:
                return _import_module(f"firebrick.functions.{name}")
            if name in _OWN_OPS:
                return getattr(_import_module(f"firebrick.functions.{_OWN_OPS[name]}"), name)
        unknown = _import_module("firebrick.core.other_names")
        raise unknown.UnknownNameError("module 'firebrick'", name, unknown.FUNCTIONS, globals()["__all__"], "fb.{}")


def __dir__() -> list[str]:
    if "__all__" not in globals():
        _load()
    return sorted({name for name in globals() if not name.startswith("_import")})
