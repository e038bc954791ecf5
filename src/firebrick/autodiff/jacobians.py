"""``fb.jacobian`` and ``fb.hessian``: all derivatives of a function of tensors, by ``vmap`` over directions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from firebrick.autodiff.forward import jvp
from firebrick.autodiff.linear import Linear
from firebrick.autodiff.transforms import check_function, check_primals, grad, nothing_to_differentiate
from firebrick.autodiff.vmap import vmap
from firebrick.core import trees
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.journal import all_or_none
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.ops.casts import complex_
from firebrick.ops.movement import permute, reshape

MODES = ("reverse", "forward")


@answers_arguments
def jacobian(fn: Callable[..., Any], *, mode: str = "reverse") -> Callable[..., Any]:
    """A function that returns the derivatives of all elements of ``fn``'s result by all elements of its first argument.

    For a result of shape [m] and an argument of shape [n] this is the matrix [m, n]; in general its shape is that of the
    result, then that of the argument. ``"reverse"`` takes a backward pass for each element of the result, ``"forward"`` a
    tangent for each element of the argument, all of them at once by ``vmap``: choose it for an argument smaller than the
    result. A real argument of a complex result has complex derivatives, the same in both modes. For complex arguments the two
    are those of ``fb.vjp`` of the unit cotangents, and of ``fb.jvp`` in the real unit directions.

    Args:
        fn: Function of a tensor or a tree of tensors, and other arguments, that returns a tensor or a tree of tensors.
        mode: ``"reverse"`` or ``"forward"``.

    Returns:
        A function of the same arguments. It returns, in the structure of the result, for each tensor there the structure of the
        first argument with a Jacobian for each tensor.

    Raises:
        ConfigError: There is no such mode.

    Example:
        >>> import firebrick as fb
        >>> fb.jacobian(lambda x: x * fb.sum(x))(fb.asarray([1.0, 2.0])).tolist()
        [[4.0, 1.0], [2.0, 5.0]]
    """
    check_function("jacobian", fn)
    if mode not in MODES:
        raise ConfigError("a Jacobian is taken in the mode reverse or forward", repr(mode), "use one of these", op="jacobian")
    of = _reverse if mode == "reverse" else _forward

    @wraps(fn)
    def derivatives(argument: Any, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = trees.flatten(argument)
        if not leaves:
            raise nothing_to_differentiate(argument)
        check_primals("jacobian", argument, "argument")

        def flat(*values: Tensor) -> Any:
            return fn(trees.unflatten(spec, list(values)), *args, **kwargs)

        table, structure = all_or_none(lambda: of(flat, leaves))
        return trees.unflatten(structure, [trees.unflatten(spec, row) for row in table])

    return derivatives


@answers_arguments
def hessian(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns the second derivatives of ``fn`` by its first argument: forward mode over a gradient.

    Args:
        fn: Function of a tensor or a tree of tensors, and other arguments, that returns a real scalar tensor.

    Returns:
        A function of the same arguments. For an argument of shape [n] it returns a matrix [n, n]; for a tree, in its structure,
        trees of that structure.

    Example:
        >>> import firebrick as fb
        >>> fb.hessian(lambda x: x[0] ** 2.0 * x[1])(fb.asarray([1.0, 3.0])).tolist()
        [[6.0, 2.0], [2.0, 0.0]]
    """
    return jacobian(grad(fn), mode="forward")


def _units(like: Tensor) -> Tensor:
    """One tensor for each element, in which it is 1 and the others 0: [size, *shape]."""
    made: Tensor = hooks.from_host(np.eye(like.size, dtype=like.dtype.np), like.device)
    rows: Tensor = reshape(made, shape=(like.size, *like.shape))
    return rows


def _reverse(flat: Callable[..., Any], leaves: list[Tensor]) -> tuple[list[list[Tensor]], Any]:
    """Rows: for each result, and each of its elements, the gradients."""
    at = Linear(flat, leaves)
    table = []
    for k, y in enumerate(at.results):

        def gradients(g: Tensor, k: int = k) -> list[Tensor]:
            return at.pull([g if i == k else None for i in range(len(at.results))])

        units = _units(y)
        rows = vmap(gradients)(units)
        if y.dtype.kind == "complex":  # a real argument has the real part of a cotangent: that of i is the imaginary part
            turned = vmap(gradients)(units * 1j)
            rows = [complex_(g, i) if x.dtype.kind == "float" else g for g, i, x in zip(rows, turned, leaves, strict=True)]
        table.append([reshape(g, shape=(*y.shape, *x.shape)) for g, x in zip(rows, leaves, strict=True)])
    return table, at.spec


def _forward(flat: Callable[..., Any], leaves: list[Tensor]) -> tuple[list[list[Tensor]], Any]:
    """Columns: for each argument, and each of its elements, the tangents."""
    columns, structure = [], None
    for k, x in enumerate(leaves):

        def tangents(t: Tensor, k: int = k) -> Any:
            return jvp(lambda v: flat(*leaves[:k], v, *leaves[k + 1 :]), (leaves[k],), (t,))[1]

        found, structure = trees.flatten(vmap(tangents)(_units(x)))
        columns.append([_as_last(t, x.shape) for t in found])
    return [list(row) for row in zip(*columns, strict=True)], structure


def _as_last(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[size, …] as […, *shape]."""
    made: Tensor = reshape(permute(t, axes=(*range(1, t.ndim), 0)), shape=(*t.shape[1:], *shape))
    return made
