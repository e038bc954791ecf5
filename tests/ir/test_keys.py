"""Keys of parameters: equal for equal values, whichever objects they are, and for no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firebrick.ir.keys import key_of

VALUES: list[Any] = [
    10**9, 10**9 + 1, 1, True, 0, False, "a text", "another", None, 0.0, -0.0, 1.0, 1j, complex(0.0, -0.0), (1, 2), [1, 2],
    (1, (2,)),
    {"a": 1}, {"b": 1}, slice(1, 2), slice(1, 2, 1), np.zeros(2), np.zeros(2, np.float32), np.zeros((2, 1)), np.ones(100),
    np.zeros(100),
]  # fmt: skip


def made_again(value: Any) -> Any:
    """An equal value of other objects."""
    if isinstance(value, tuple | list):
        return type(value)(map(made_again, value))
    if isinstance(value, dict):
        return {made_again(k): made_again(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*map(made_again, (value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray):
        return value.copy()
    return "".join(list(value)) if type(value) is str else int(str(value)) if type(value) is int else value


@pytest.mark.parametrize("n", range(len(VALUES)))
def test_a_key_is_that_of_the_value_alone(n: int) -> None:
    assert key_of(VALUES[n]) == key_of(made_again(VALUES[n]))
    assert [k for k, v in enumerate(VALUES) if key_of(v) == key_of(VALUES[n])] == [n]
    hash(key_of(VALUES[n]))
