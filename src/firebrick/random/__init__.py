"""Random numbers: counter-based generators whose draws are equal on every engine and at any split of a batch."""

from typing import TYPE_CHECKING
from typing import Any as _Any

import firebrick.functions as _functions  # noqa: F401  before its parts
from firebrick.core.other_names import RANDOM as _NAMES
from firebrick.core.other_names import UnknownNameError as _UnknownNameError
from firebrick.random.continuous import beta, dirichlet, exponential, gamma, gumbel, laplace, truncated_normal
from firebrick.random.defaults import (
    bernoulli,
    default_generator,
    initial_generator,
    integers,
    normal,
    permutation,
    seed,
    set_state,
    state,
    uniform,
)
from firebrick.random.discrete import binomial, categorical, choice, multinomial, poisson
from firebrick.random.generator import Generator, row_offset

__all__ = [
    "Generator",
    "bernoulli",
    "beta",
    "binomial",
    "categorical",
    "choice",
    "default_generator",
    "dirichlet",
    "exponential",
    "gamma",
    "gumbel",
    "initial_generator",
    "integers",
    "laplace",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "row_offset",
    "seed",
    "set_state",
    "state",
    "truncated_normal",
    "uniform",
]


if not TYPE_CHECKING:  # for which an unknown name is an error by itself

    def __getattr__(name: str) -> _Any:
        raise _UnknownNameError("module 'firebrick.random'", name, _NAMES, __all__, "fb.random.{}")
