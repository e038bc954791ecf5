"""Random numbers: counter-based generators whose draws are equal on every engine and at any split of a batch."""

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
from firebrick.random.generator import Generator, row_offset

__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "initial_generator",
    "integers",
    "normal",
    "permutation",
    "row_offset",
    "seed",
    "set_state",
    "state",
    "uniform",
]
