"""What a file holds is shown in a message in one line, without control characters, and short."""

from typing import Any

import pytest

from firebrick.core.untrusted import shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("cross_entropy", "cross_entropy"),
        (0.5, "0.5"),
        (None, "None"),
        ((0.9, 0.99), "(0.9, 0.99)"),
        ("a\nb", r"'a\nb'"),
        ("\x1b[2J", r"'\x1b[2J'"),
        ("\u202eabc", r"'\u202eabc'"),
        ("A" * 81, "A" * 79 + "…"),
        ("A" * 80, "A" * 80),
        (10**5000, "an object of type int that is too long to show"),
        (ValueError("a\nb"), "a b"),
        (ValueError("a\x1b"), r"'a\x1b'"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_value_is_shown_in_one_line_without_control_characters_and_short(value: Any, text: str) -> None:
    assert shown(value) == text
