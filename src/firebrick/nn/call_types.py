"""Types of a module's call, for type checkers only: a module is called with the arguments of its ``forward``.

``Module.__call__`` annotates ``self`` with these protocols, so a checker reads the signature of the subclass's ``forward``
and neither the subclass nor its user writes a type a second time. Nothing here is imported when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from firebrick.graph.jit import Jit

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Forward(Protocol[P, R_co]):
    """An object with a method ``forward``."""

    @property
    def forward(self) -> Callable[P, R_co]: ...


class CompiledForward(Protocol[P, R]):
    """An object whose ``forward`` is decorated by ``jit``: pyright looks at the decorated function, not at the bound one."""

    forward: Jit[Concatenate[Any, P], R]
