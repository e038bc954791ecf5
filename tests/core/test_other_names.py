"""Names of other libraries, and misspellings, are answered by the name here; each answer names something that there is.

``PYTHONPATH=src python tests/core/test_other_names.py`` writes ``other_names.txt`` anew, where a change is meant.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import firebrick as fb
from firebrick.core import other_arguments, other_names

FILE = Path(__file__).with_name("other_names.txt")
MODEL = fb.nn.Linear(1, 1)
OWNERS: dict[str, tuple[Any, Any]] = {
    "FUNCTIONS": (fb, other_names.FUNCTIONS),
    "LAYERS": (fb.nn, other_names.LAYERS),
    "OPTIMIZERS": (fb.optim, other_names.OPTIMIZERS),
    "RANDOM": (fb.random, other_names.RANDOM),
    "METHODS": (fb.ones((2, 2)), other_names.METHODS),
    "OF_DTYPES": (fb.float32, other_names.OF_DTYPES),
    "OF_MODULES": (MODEL, other_names.OF_MODULES),
    "OF_OPTIMIZERS": (fb.optim.SGD(MODEL, lr=0.1), other_names.OF_OPTIMIZERS),
    "OF_SCHEDULES": (fb.optim.cosine(0.1, steps=10), other_names.OF_SCHEDULES),
}
ROOTS = {
    "fb": fb, "nn": fb.nn, "optim": fb.optim, "train": import_module("firebrick.train"), "x": fb.ones((2, 2)), "model": MODEL,
    "optimizer": OWNERS["OF_OPTIMIZERS"][0],
}  # fmt: skip


def entries() -> Iterator[tuple[str, str]]:
    return ((table, name) for table, (_, names) in OWNERS.items() for name in names)


@pytest.mark.parametrize(("table", "name"), list(entries()))
def test_a_name_of_another_library_is_answered_by_what_to_write(table: str, name: str) -> None:
    owner, names = OWNERS[table]
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': (write|none is needed)") as caught:
        getattr(owner, name)
    assert names[name].removeprefix("nothing") in str(caught.value)


@pytest.mark.parametrize(("table", "name"), list(entries()))
def test_what_is_to_be_written_is_there(table: str, name: str) -> None:
    text = OWNERS[table][1][name]
    for root, path in re.findall(r"\b(fb|nn|optim|train|x|model|optimizer)\.([A-Za-z_][\w.]*)", text):
        found = ROOTS[root]
        for part in path.rstrip(".").split("."):
            found = ROOTS["train"] if found is fb and part == "train" else getattr(found, part)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda: fb.summ, "module 'firebrick' has no attribute 'summ': did you mean fb.sum?"),
        (lambda: fb.nn.Linaer, "module 'firebrick.nn' has no attribute 'Linaer': did you mean nn.Linear?"),
        (lambda: fb.optim.Adamw, "module 'firebrick.optim' has no attribute 'Adamw': did you mean optim.AdamW?"),
        (lambda: fb.random.unifrom, "module 'firebrick.random' has no attribute 'unifrom': did you mean fb.random.uniform?"),
        (lambda: fb.ones(()).reshpe, "'Tensor' object has no attribute 'reshpe': did you mean x.reshape?"),
        (lambda: MODEL.parameter, "'Linear' object has no attribute 'parameter': did you mean model.parameters?"),
        (lambda: fb.ones(()).__bytes__, "'Tensor' object has no attribute '__bytes__'"),
        (lambda: fb.float32.itemsiz, "'DType' object has no attribute 'itemsiz': did you mean x.dtype.itemsize?"),
        (lambda: fb.float32.quux, "'DType' object has no attribute 'quux'"),
        (lambda: fb.quux, "module 'firebrick' has no attribute 'quux'"),
    ],
)  # fmt: skip
def test_a_misspelling_is_answered_by_the_nearest_name(ask: Any, answer: str) -> None:
    with pytest.raises(AttributeError) as caught:
        ask()
    assert str(caught.value) == answer
    assert str(pickle.loads(pickle.dumps(caught.value))) == answer


def answers() -> str:
    """All names and arguments of other libraries, each with its answer."""
    tables = {table: names for table, (_, names) in OWNERS.items()}
    tables |= {"ARGUMENTS": other_arguments.ARGUMENTS, "NOTES": other_arguments.NOTES}
    return "".join(f"{table} {name}: {answer}\n" for table, names in tables.items() for name, answer in names.items())


def test_the_answers_are_those_that_are_written_down() -> None:
    assert answers() == FILE.read_text("utf-8")


def test_asking_whether_there_is_an_attribute_is_answered_as_ever() -> None:
    assert not hasattr(fb, "cat")
    assert not hasattr(fb.ones(()), "backward")
    assert getattr(MODEL, "cuda", None) is None
    assert hasattr(MODEL, "weight")


def test_a_name_of_another_library_is_none_of_this_one() -> None:
    for table, name in entries():
        owner, _ = OWNERS[table]
        assert not hasattr(owner, name), name


if __name__ == "__main__":
    FILE.write_text(answers(), "utf-8")
