"""Kernels of a body that was lowered before: its program may be gone, and may be of other lines of the user's."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from lowered_bodies import body_of

from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ir import Node

X, AT = np.ones((6, 8), np.float32), np.array([1, 5])


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kind of specification for each time that its generator is called; two kernels are kept."""
    found: list[str] = []

    def counted(kind: type, emit: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (found.append(kind.__name__), emit(*args))[1]

    monkeypatch.setattr(lower, "EMIT", {kind: counted(kind, emit) for kind, emit in lower.EMIT.items()})
    monkeypatch.setattr(lower, "_lowered", WeakValueDictionary())
    monkeypatch.setattr(lower, "kept", deque(maxlen=2))
    return found


def lowered(op: str, line: str = "train.py:1", **params: Any) -> Any:
    operands = (X, AT) if op == "take" else (X,)
    body = body_of(operands, (op, tuple(range(len(operands))), params))
    body.nodes = [Node(n.op, n.inputs, n.params, n.first, n.avals, line=line) for n in body.nodes]
    return lower.lower(body, Target.host())


def test_a_body_whose_program_is_gone_is_not_lowered_again_until_others_were(generated: list[str]) -> None:
    for op in ("exp", "exp", "tanh", "exp", "log", "exp"):
        lowered(op)
        gc.collect()
    assert generated == ["Map"] * 4  # two are kept, of which a third takes the place


def test_bodies_of_other_lines_share_kernels_but_where_a_check_reports_the_line(generated: list[str]) -> None:
    assert lowered("exp") is lowered("exp", "train.py:2")
    one, other = (lowered("take", line, axis=0) for line in ("train.py:1", "train.py:2"))
    for found, line in ((one, "train.py:1"), (other, "train.py:2")):
        assert [site.line for p in found.parts for site in p.sites] == [line]
    assert len(generated) == 3


def test_a_doubt_names_the_lines_of_its_own_body(generated: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "doubt", lambda body, spec: body.nodes[0].line)
    found = [lowered("exp", line) for line in ("train.py:1", "train.py:2")]
    assert [f.doubt for f in found] == ["train.py:1", "train.py:2"]
