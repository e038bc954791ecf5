"""Kinds of kernels that are added."""

from __future__ import annotations

from typing import Any

import pytest

from firebrick.compiler.registry import register_kind
from firebrick.compiler.spec.kinds import KINDS
from firebrick.compiler.spec.prefix import Prefix
from firebrick.core.errors import OperandError


@pytest.mark.parametrize(("name", "spec"), [("prefix", dict), ("another", Prefix)])
def test_a_kind_with_a_name_that_is_taken_is_refused(name: str, spec: type) -> None:
    before = dict(KINDS)

    def none(*args: Any) -> Any:
        raise AssertionError("not called")

    with pytest.raises(OperandError, match="a kind has a name of its own"):
        register_kind(name, spec, build=none, check=none, interpret=none, naive=none)
    assert before == KINDS
