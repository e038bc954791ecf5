"""Kinds of kernels that are added."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest

from firebrick.compiler.registry import register_kind
from firebrick.compiler.spec.kinds import KINDS
from firebrick.compiler.spec.prefix import Prefix
from firebrick.core.errors import OperandError


@dataclass(frozen=True)
class Own:
    sources: tuple[int, ...]
    cost: float = 0.0


@dataclass
class Mutable:
    sources: tuple[int, ...]
    cost: float = 0.0


Part = make_dataclass("Operand", ["sources", "cost"], frozen=True)
"""Its name is that of a part of specifications, by which their JSON form is read."""


@pytest.mark.parametrize(("name", "spec"), [("prefix", Own), ("another", Prefix), ("another", Part)])
def test_a_kind_with_a_name_that_is_taken_is_refused(name: str, spec: type) -> None:
    before = dict(KINDS)

    def none(*args: Any) -> Any:
        raise AssertionError("not called")

    with pytest.raises(OperandError, match="a kind has a name of its own"):
        register_kind(name, spec, build=none, check=none, interpret=none, naive=none)
    assert before == KINDS


@pytest.mark.parametrize(("wrong", "named"), [
    ({"name": ""}, "name=''"), ({"name": 3}, "name=3"), ({"spec": Mutable}, "spec="), ({"spec": int}, "spec="),
    ({"spec": Own((0,))}, "spec="), ({"spec": make_dataclass("Bare", ["sources"], frozen=True)}, "spec="),
    ({"spec": make_dataclass("Bare", ["cost"], frozen=True)}, "spec="), ({"build": None}, "build=None"),
    ({"naive": 1}, "naive=1"),
])  # fmt: skip
def test_what_a_kind_cannot_be_made_of_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    before = dict(KINDS)
    given = {"name": "own", "spec": Own, "build": len, "check": len, "interpret": len, "naive": len}
    with pytest.raises(OperandError, match=f"a kind has a name, a frozen dataclass(.|\\n)*{named}"):
        register_kind(**{**given, **wrong})
    assert before == KINDS
