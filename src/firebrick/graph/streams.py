"""Random numbers that are not Firebrick's own: the states of the generators of Python, NumPy and PyTorch, and how they are
restored."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def process_generators() -> tuple[Any, ...]:
    """The states of the generators that Python and NumPy have for the whole process."""
    kind, words, *rest = np.random.get_state()  # noqa: NPY002 - it is what a user's code may draw from
    torch = torch_numbers()
    return random.getstate(), (kind, np.asarray(words).tobytes(), *rest), torch and torch[0]().numpy().tobytes()


def torch_numbers() -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
    """How the state of PyTorch's generator is read and set, if PyTorch is imported."""
    torch = sys.modules.get("torch")
    return None if torch is None or not hasattr(torch, "set_rng_state") else (torch.get_rng_state, torch.set_rng_state)


def of_torch(v: Any) -> bool:
    """Whether it is a generator of PyTorch."""
    return type(v).__name__ == "Generator" and type(v).__module__.partition(".")[0] == "torch"


def rewound(get: Callable[[], Any], put: Callable[[Any], None]) -> Callable[[], None]:
    then = get()
    return lambda: put(then)


def ways(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """How the state of a generator of NumPy, Python or PyTorch is read and set."""
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if isinstance(generator, np.random.RandomState) or of_torch(generator):
        return generator.get_state, generator.set_state
    bits: Any = generator.bit_generator
    return (lambda: bits.state), (lambda then: setattr(bits, "state", then))


def state_of(generator: Any) -> Any:
    """The state of a generator, for a key."""
    state = ways(generator)[0]()
    return state.numpy().tobytes() if of_torch(generator) else repr(state)
