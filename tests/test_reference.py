"""The API reference: every public name stands on a page, with its arguments and an example that runs."""

from __future__ import annotations

import inspect
import re
from enum import EnumType

import pytest

import firebrick as fb
from api_reference import PAGES, Name, UnplacedNameError, place, public_names, write
from api_reference.docstrings import markdown, parse
from api_reference.writing import OTHER_NAMES, member_docstring, members, parameters
from firebrick.core import other_arguments, other_names

NAMES = [n for n in public_names() if n.same_as is None]

MADE_BY_THE_LIBRARY = "the library makes it, from its own internal objects"
PROTOCOL = "a protocol of many methods; the classes that implement it have examples"
SEVERAL_PROCESSES = "it needs several processes, which an example in a docstring cannot start"

NO_EXAMPLE = {
    "fb.data.Portion": MADE_BY_THE_LIBRARY,
    "fb.distributed.MPIGroup": SEVERAL_PROCESSES,
    "fb.nn.ForwardHook": MADE_BY_THE_LIBRARY,
    "fb.train.Compiled": MADE_BY_THE_LIBRARY,
    "fb.train.Strategy": PROTOCOL,
    "fb.train.Worker": SEVERAL_PROCESSES,
}
"""Public functions and classes without an example, each with the reason. Errors and warnings, which are raised, have none."""

NO_ARGS = {
    "fb.Gradients": MADE_BY_THE_LIBRARY,
    "fb.data.WorkerInfo": MADE_BY_THE_LIBRARY,
    "fb.train.Minimizer": MADE_BY_THE_LIBRARY,
}
"""Public functions and classes with arguments that are not described, each with the reason."""


def _is_raised(name: Name) -> bool:
    return isinstance(name.value, type) and issubclass(name.value, BaseException)


def _described(name: Name) -> set[str]:
    """Arguments that the docstring describes; the attributes of a dataclass are its arguments."""
    return parse(name.doc).names()


def _parameters(name: Name) -> set[str]:
    if isinstance(name.value, EnumType):  # which lists its members
        return set()
    if name.kind in ("constant", "module") or not callable(name.value) or getattr(name.value, "_is_protocol", False):
        return set()
    try:
        parameters = inspect.signature(name.value).parameters
    except ValueError:  # warnings inherit theirs from C
        return set()
    return {n for n in parameters if not n.startswith("_")}


def lacking_args() -> list[str]:
    return [n.path for n in NAMES if not _is_raised(n) and n.path not in NO_ARGS and _parameters(n) - _described(n)]


def lacking_args_of_methods() -> list[str]:
    found = []
    for n in NAMES:
        owner = n.value if isinstance(n.value, type) else type(n.value)
        for path, (value, kind) in members(n).items():
            if kind != "property" and set(parameters(value, kind)) - member_docstring(owner, value).names():
                found.append(path)
    return found


def lacking_example() -> list[str]:
    described = [n for n in NAMES if n.kind in ("function", "class") and not _is_raised(n)]
    return [n.path for n in described if n.path not in NO_EXAMPLE and ">>>" not in n.doc]


def test_every_public_name_stands_on_a_page_of_the_reference() -> None:
    text = "\n".join(write().values())
    assert [n.path for n in public_names() if f"## `{n.path}` {{#{n.path}}}" not in text] == []


def test_every_public_function_and_class_describes_its_arguments() -> None:
    assert lacking_args() == []


def test_every_public_method_describes_its_arguments() -> None:
    assert lacking_args_of_methods() == []


def test_a_method_has_the_arguments_of_the_method_that_it_implements() -> None:
    class Stopping(fb.train.EarlyStopping):
        def on_epoch_end(self, learner: object, row: object, more: int = 0) -> None:
            """Follow the epoch."""

    doc = member_docstring(Stopping, Stopping.on_epoch_end)
    assert [names for names, _ in doc.items("Args")] == ["learner", "row"]
    shown = write()["reference/strategies.md"]
    assert "- `rows`: Number of rows of the batch." in shown[shown.index("### `DataParallel.divide`") :][:400]


def test_every_public_function_and_class_has_an_example() -> None:
    assert lacking_example() == []


def test_no_exception_of_the_table_is_out_of_date() -> None:
    names = {n.path: n for n in NAMES}
    assert [p for p in NO_EXAMPLE if p not in names or ">>>" in names[p].doc] == []
    assert [p for p in NO_ARGS if p not in names or not _parameters(names[p]) - _described(names[p])] == []


def test_the_names_of_other_libraries_stand_in_the_reference() -> None:
    text = write()["reference/other-names.md"]
    assert "| `zero_grad` | `nothing: gradients are returned" in text
    names = [n for n, v in vars(other_names).items() if n.isupper() and isinstance(v, dict)]
    assert len(names) + 2 == len(OTHER_NAMES)  # and two tables of arguments
    rows = [f"| `{name}` | `{written}` |" for n in names for name, written in getattr(other_names, n).items()]
    rows += [f"| `{name}` | `{written}` |" for name, written in other_arguments.NOTES.items()]
    rows += [f"| `{name}` | `{', '.join(f'{n}=' for n in here)}` |" for name, here in other_arguments.ARGUMENTS.items()]
    assert [row for row in rows if row not in text] == []


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


def test_an_argument_is_no_link_to_the_function_of_its_name() -> None:
    text = write()["reference/schedules.md"]
    described = text[text.index("## `fb.optim.cosine`") : text.index("## `fb.optim.cosine_restarts`")]
    assert "over `warmup` updates" in described


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
    assert markdown("[a](b) *c* <d> ``fb.sum(…)``, ``fb.sum``, ``x*y``", link) == (
        r"\[a\](b) \*c\* &lt;d\> `fb.sum(…)`, [`fb.sum`](reductions.md#fb.sum), `x*y`"
    )
