"""Where in the user's program something happens: the nearest frame that is not Firebrick's own."""

from __future__ import annotations

import os
import sys
import warnings
from types import CodeType, FrameType
from typing import Any

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BETWEEN = (
    "<firebrick program ",
    "<frozen importlib",
    os.sep + "importlib" + os.sep,
    os.sep + "contextlib.py",
    os.sep + "functools.py",
    os.sep + "optree" + os.sep,
)


_MOST = 4096  # names of files that are remembered; compiled programs have a name each
_known: dict[str, bool] = {}  # whether a file's code is Firebrick's: each operation in a trace asks for some ten frames

VALUE_ASKED = {
    "__bool__": "if, while, and, or, not",
    "__int__": "int()",
    "__float__": "float()",
    "__complex__": "complex()",
    "__index__": "a size, an index or range()",
    "item": "item()",
    "tolist": "tolist()",
    "numpy": "numpy()",
    "__array__": "a NumPy function",
    "__dlpack__": "another library",
}
"""How a program asks for the value of a tensor, by the method that it calls."""


def is_own(code: CodeType) -> bool:
    """Whether code is Firebrick's, or a library's that calls back."""
    name = code.co_filename
    found = _known.get(name)
    if found is None:
        found = name.startswith(_OWN) or any(part in name for part in _BETWEEN)
        if len(_known) >= _MOST:
            _known.clear()
        _known[name] = found
    return found


def user_frame() -> FrameType | None:
    """The nearest frame outside Firebrick, or None."""
    frame: Any = sys._getframe(1)
    known = _known.get
    while frame is not None and (known(frame.f_code.co_filename) or is_own(frame.f_code)):
        frame = frame.f_back
    found: FrameType | None = frame
    return found


def user_line() -> str:
    """``file:line in function`` of the user's program, as far as it is known."""
    frame = user_frame()
    if frame is None:
        return "an unknown line"
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def warn(text: str, category: type[Warning]) -> None:
    """A warning at the user's line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=1)
        return
    space = frame.f_globals
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, space.get("__name__"), registry)


def method_called(names: dict[str, str]) -> str | None:
    """The description of the nearest Firebrick frame with one of these function names: how a value was asked for."""
    frame: Any = sys._getframe(1)
    while frame is not None and is_own(frame.f_code):
        described = names.get(frame.f_code.co_name)
        if described is not None:
            return described
        frame = frame.f_back
    return None
