"""What a saved state of an optimizer holds, compared with the optimizer that takes it, before anything of it is taken.

A state that someone changed may lack a moment, which would silently begin again from zero, or hold a setting that no
constructor takes. All differences are found first, so that a refused state changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType
from firebrick.core.errors import ConfigError, FirebrickError
from firebrick.core.tensor import Tensor
from firebrick.core.untrusted import shown
from firebrick.nn import StateError

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a tree raises that no ``state_dict`` wrote."""


def wrong_kind(kind: str, state: Mapping[str, Any]) -> StateError:
    """The error of a state that is not of this kind of optimizer."""
    theirs = state.get("optimizer")
    of = f"the state of {shown(theirs)}" if theirs is not None else "a state that names no optimizer"
    return StateError(
        f"{kind}.load_state_dict takes the state of {kind}, since each optimizer keeps moments of its own",
        of,
        "make the optimizer that the state is of, or load the model alone, load_checkpoint(path).load_into(model), and begin "
        "with a new optimizer. Nothing was loaded",
    )


def count(kind: str, name: str, value: Any) -> int:
    """A number of updates: a whole number from 0, or a tensor or array of one.

    Raises:
        StateError: It is none.
    """
    held = value.numpy() if isinstance(value, Tensor) else value
    if isinstance(held, (np.ndarray, np.generic)) and held.size == 1 and held.dtype.kind in "iu":
        held = held.item()
    if type(held) is not int or held < 0:
        raise StateError(
            f"{kind}: {name} of a state is a number of updates",
            f"{value!r:.80}",
            "take it from state_dict(). Nothing was loaded",
        )
    return held


def check_missed(kind: str, missed: Any, names: set[str], step: int) -> dict[str, int]:
    """The numbers of updates in which parameters had no gradient.

    Raises:
        StateError: One is no such number, or of no parameter.
    """
    if not isinstance(missed, Mapping):
        raise StateError(f"{kind}: missed is numbers by parameter", f"{missed!r:.80}", "take it from state_dict()")
    found = {n: count(kind, f"missed[{n!r}]", k) for n, k in missed.items()}
    if wrong := [f"{n}: {k}" for n, k in found.items() if n not in names or k > step]:
        raise StateError(
            f"{kind}: a parameter missed at most the {step} updates done",
            "; ".join(wrong),
            "take the state from state_dict(). Nothing was loaded",
        )
    return found


@dataclass(frozen=True)
class Expected:
    """The moments of a parameter: those that must be there, the shape of each that may be, and the dtype of all."""

    needed: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtype: DType


def check_moments(kind: str, moments: Any, expected: Mapping[str, Expected]) -> None:
    """Compare the moments of a state, by moment and parameter, with those that the parameters have.

    Raises:
        StateError: One is missing, there is one too many, or one has another shape or dtype.
    """
    if not isinstance(moments, Mapping) or not all(isinstance(held, Mapping) for held in moments.values()):
        raise StateError(
            f"{kind}: moments are tensors by moment and parameter", f"{moments!r:.80}", "take it from state_dict()"
        )
    wrong = [f"{m} of {n}: not there" for n, p in expected.items() for m in p.needed if n not in moments.get(m, {})]
    for m, held in moments.items():
        for n, t in held.items():
            p = expected.get(n)
            shape, found = getattr(t, "shape", ()), getattr(getattr(t, "dtype", None), "name", type(t).__name__)
            if p is None or m not in p.shapes:
                wrong.append(f"{m} of {n}: there is no such " + ("parameter" if p is None else "moment"))
            elif tuple(shape) != p.shapes[m]:
                wrong.append(f"{m} of {n}: {list(shape)} for {list(p.shapes[m])}")
            elif found != p.dtype.name:
                wrong.append(f"{m} of {n}: {found} for {p.dtype.name}")
    if wrong:
        raise StateError(
            f"{kind}: moments have the names, shapes and dtypes of the parameters",
            "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""),
            "build the model with the same settings, or begin with a new optimizer. Nothing was loaded",
        )


def check_scale(lr_scale: Any) -> float:
    """A group's factor on the learning rate, as the constructor takes it.

    Raises:
        StateError: It is no finite number from 0.
    """
    if isinstance(lr_scale, bool) or not isinstance(lr_scale, (int, float)) or not (isfinite(lr_scale) and lr_scale >= 0.0):
        raise StateError("lr_scale of a group is a finite number ≥ 0", repr(lr_scale), "take it from state_dict()")
    return float(lr_scale)


def rebuilt(kind: str, what: str, make: Callable[[], Any]) -> Any:
    """What ``make`` makes of a state's values.

    Raises:
        StateError: They are of other kinds than those that it was made of.
    """
    try:
        return make()
    except FirebrickError:
        raise
    except MALFORMED as e:
        raise _refused(kind, what, f"{type(e).__name__}: {e!s:.200}") from e


def check_like_constructor(kind: str, check: Callable[[Any], None], settings: Any) -> None:
    """Settings of a state, checked like those of the constructor.

    Raises:
        StateError: The constructor refuses them.
    """
    try:
        check(settings)
    except ConfigError as e:
        raise _refused(kind, "settings", f"{e.received}, where {e.expected}") from e
    except MALFORMED as e:
        raise _refused(kind, "settings", f"{type(e).__name__}: {e!s:.200}") from e


def _refused(kind: str, what: str, received: str) -> StateError:
    return StateError(
        f"{kind}: a state holds {what} that the constructor takes",
        received,
        "load the model alone, with a new optimizer. Nothing was loaded",
    )
