"""Texts in Python as syntax trees, from any thread."""

from __future__ import annotations

import ast
from typing import Any

_MOST = 1000
"""Attempts, so that an error of another cause is raised in the end."""


def parsed(text: str, mode: str = "exec") -> Any:
    """``ast.parse``, which raises SystemError in some versions of Python if another thread or a finalizer parses meanwhile.

    All trees that are being made share a counter of their depth, which is checked at the end; the text is parsed again then.
    """
    for _ in range(_MOST):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            continue
    return ast.parse(text, mode=mode)
