"""Types of what ``grad`` and ``value_and_grad`` return, for type checkers only.

The result has the parameters of the function, and a gradient has the type of the first argument, or is ``Gradients`` where
that argument is a module or a list, tuple or dict of modules. A checker decides this where the result is called, not where
it is made: so the parameter of a lambda, whose type is unknown, has every attribute, and its gradient is ``Any``.
Nothing here is imported when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, final, overload

from firebrick.core.tensor import Tensor


class Modular(Protocol):
    """A module, as this floor sees it."""

    def trainable_parameters(self) -> Sequence[tuple[str, Tensor]]: ...


P = ParamSpec("P")
X = TypeVar("X")  # the first argument
M = TypeVar("M", bound=Modular | Sequence[Modular] | Mapping[Any, Modular])  # a first argument that holds modules
U_co = TypeVar("U_co", covariant=True)  # the result where the type of the first argument is unknown
G_co = TypeVar("G_co", covariant=True)  # the result where it holds modules
T_co = TypeVar("T_co", covariant=True)  # the result where it is a tensor or a tree of tensors


@final
class _Nothing:
    """No argument has this type, so only an unknown type, ``Any``, is compatible with it."""


class Differentiated(Protocol[X, P, U_co, G_co, T_co]):
    """A function that returns gradients by its first argument. As a method, it differentiates by its object."""

    @overload
    def __call__(
        self: Differentiated[_Nothing, P, U_co, G_co, T_co], argument: Any, /, *args: P.args, **kwargs: P.kwargs
    ) -> U_co: ...
    @overload
    def __call__(self: Differentiated[M, P, U_co, G_co, T_co], argument: M, /, *args: P.args, **kwargs: P.kwargs) -> G_co: ...
    @overload
    def __call__(self: Differentiated[X, P, U_co, G_co, T_co], argument: X, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...

    @overload
    def __get__(self, owner: None, kind: Any = None) -> Differentiated[X, P, U_co, G_co, T_co]: ...
    @overload
    def __get__(self: Differentiated[M, P, U_co, G_co, T_co], owner: M, kind: Any = None) -> Callable[P, G_co]: ...
    @overload
    def __get__(self: Differentiated[X, P, U_co, G_co, T_co], owner: X, kind: Any = None) -> Callable[P, T_co]: ...
