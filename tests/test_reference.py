"""The API reference: every public name stands on a page, and the pages are whole."""

from __future__ import annotations

import re

import pytest

from api_reference import PAGES, Name, UnplacedNameError, place, public_names, write
from api_reference.docstrings import markdown, parse


def test_every_public_name_stands_on_a_page_of_the_reference() -> None:
    text = "\n".join(write().values())
    assert [n.path for n in public_names() if f"## `{n.path}` {{#{n.path}}}" not in text] == []


def test_a_name_for_which_the_table_has_no_page_is_refused() -> None:
    def stray() -> None: ...

    stray.__module__ = "firebrick.elsewhere"
    with pytest.raises(UnplacedNameError, match=r"fb\.stray"):
        place(Name("fb.stray", stray))


def test_every_page_has_names() -> None:
    filled = {place(n)[0] for n in public_names()}
    assert [p.file for pages in PAGES.values() for p in pages if p.file not in filled] == []


def test_every_entry_of_the_table_has_names() -> None:
    used = {place(n) for n in public_names()}
    members = [(p.file, k, m) for pages in PAGES.values() for p in pages for k, m in enumerate(p.members)]
    assert [m for file, k, m in members if (file, k) not in used] == []


def test_every_link_of_the_reference_has_a_target() -> None:
    pages = {path.removeprefix("reference/"): text for path, text in write().items()}
    broken = []
    for page, text in pages.items():
        for file, anchor in re.findall(r"\]\(([\w-]+\.md)?#([\w.]+)\)", text):
            if f"{{#{anchor}}}" not in pages[file or page]:
                broken.append((page, file, anchor))
    assert broken == []


def test_a_docstring_is_parsed_into_its_sections() -> None:
    doc = parse(
        "First one. Second one.\n\nArgs:\n    x, y: Two tensors,\n        of one shape.\n    **more: Others.\n\n"
        "Source: a paper.\n\nExample:\n    >>> 1\n    1"
    )
    assert doc.summary == "First one."
    assert doc.text == "First one. Second one.\n\nSource: a paper."
    assert doc.items("Args") == [("x, y", "Two tensors, of one shape."), ("**more", "Others.")]
    assert doc.sections["Example"] == [">>> 1", "1"]


def test_text_means_nothing_to_markdown_and_code_that_is_a_name_is_a_link() -> None:
    link = {"fb.sum": "reductions.md#fb.sum"}.get
    assert markdown("[a](b) *c* ``fb.sum(…)``, ``fb.sum``, ``x*y``", link) == (
        r"\[a\](b) \*c\* `fb.sum(…)`, [`fb.sum`](reductions.md#fb.sum), `x*y`"
    )
