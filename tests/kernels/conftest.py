"""What a test declares is not in the op table of the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import firebrick as fb


@pytest.fixture(autouse=True)
def op_table() -> Iterator[None]:
    before = dict(fb.ops.OPS)
    yield
    fb.ops.OPS.clear()
    fb.ops.OPS.update(before)
