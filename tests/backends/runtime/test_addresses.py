"""Tables of addresses say where arrays are, whatever arrays, the fast way and the slow."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.backends.cpu.runtime import addresses
from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.core.errors import OperandError


def some() -> list[np.ndarray]:
    base = np.zeros((6, 8), np.float32)
    return [
        base,
        base[2:, ::-1],
        base.T,
        np.zeros(()),
        np.zeros(0),
        np.broadcast_to(np.ones(1), (4, 4)),
        np.zeros(10, np.int8)[3:],
    ]


@pytest.mark.parametrize("fast", [True, False])
def test_addresses_are_those_of_the_first_elements(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fast:
        assert addresses._at_head()
    else:
        monkeypatch.setattr(addresses, "_at_head", lambda: False)
    arrays = some()
    table = AddressTable(len(arrays) + 2)
    table.put(1, arrays)
    table.put(3, [])
    assert [table[k] for k in range(len(arrays) + 2)] == [0, *(a.ctypes.data for a in arrays), 0]


def test_what_is_no_array_or_does_not_fit_is_refused() -> None:
    table = AddressTable(3)
    with pytest.raises(OperandError, match=r"positions in \[0, 3\)\nReceived: 2 of list, ndarray, from 0 on"):
        table.put(0, [np.zeros(1), [1.0]])  # type: ignore[list-item]
    for at in (-1, 2, 4):
        with pytest.raises(OperandError):
            table.put(at, [np.zeros(1), np.zeros(1)])
    assert [table[k] for k in range(3)] == [0, 0, 0]
