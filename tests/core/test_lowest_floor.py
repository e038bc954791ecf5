"""Parts of the lowest floor that only a wrong program or an unusual thread reaches."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

import firebrick as fb
from firebrick.core import lines
from firebrick.core.hooks import _absent, hooks
from firebrick.core.storage import Absent, Storage


def test_a_thread_without_a_line_of_the_user_warns_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "user_frame", lambda: None)
    assert lines.user_line() == "an unknown line"
    with pytest.warns(UserWarning, match="it is so") as caught:
        lines.warn("it is so", UserWarning)
    assert len(caught) == 1


def test_whose_code_it_is_is_known_of_any_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MOST", 2)
    monkeypatch.setattr(lines, "_known", {})
    for name, own in (("/a/user.py", False), (fb.__file__ or "", True), ("/b/user.py", False), ("/a/user.py", False)):
        assert lines.is_own(compile("1", name, "eval")) is own
        assert len(lines._known) <= 2


def test_the_users_line_is_the_nearest_outside_of_firebrick() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(lines.user_line()))
    thread.start()
    thread.join()
    assert found[0].startswith(f"{__file__}:")
    assert found[0].endswith("in <lambda>")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines.warn("here", UserWarning)
    assert caught[0].filename == __file__


def test_values_that_are_absent_refuse_to_be_read() -> None:
    class Gone(Absent):
        """Says nothing of why."""

    absent = Gone()
    storage: Any = Storage(absent, fb.device("cpu")._memory, 0)
    with pytest.raises(NotImplementedError, match="Gone has no why: return the error for reading a tensor that has no values"):
        absent.why()
    assert absent.shown() == "<no values>"
    assert absent.detached(storage) is storage


def test_a_hook_that_no_floor_fills_and_a_method_that_none_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    call = _absent("note")
    monkeypatch.setattr(hooks, "note", call)
    with pytest.raises(RuntimeError, match="no floor of firebrick installs the hook note"):
        call()
    with pytest.raises(KeyError, match="quux"):
        hooks.methods["quux"]
