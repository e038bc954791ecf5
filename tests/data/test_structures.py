"""Samples that are dicts, dataclasses, nested tuples and single arrays, through a loader to its devices."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import DataLoader, LoaderError, RandomHorizontalFlip, SampleError
from firebrick.data.structure import leaves_of

Pair = namedtuple("Pair", "image label")


@dataclass(frozen=True, slots=True)
class Sample:
    """One that checks what it is made of, and so cannot be made of batches by its constructor."""

    image: Any
    label: int

    def __post_init__(self) -> None:
        assert isinstance(self.label, int)


def image(i: int) -> Any:
    return np.arange(12, dtype=np.float32).reshape(3, 4) + i


FORMS = {
    "dict": lambda i: {"image": image(i), "label": i},
    "mapping": lambda i: OrderedDict(image=image(i), label=i),
    "dataclass": lambda i: Sample(image(i), i),
    "named tuple": lambda i: Pair(image(i), i),
    "nested": lambda i: ({"ids": image(i), "mask": None}, (i, (2 * i, image(i)))),
    "single": image,
    "list": lambda i: [image(i), i],
}


class Samples:
    """Seven samples of a form."""

    def __init__(self, form: str) -> None:
        self.form = form

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return FORMS[self.form](index)


class Made:
    """Samples of a function."""

    def __init__(self, make: Any, length: int = 6) -> None:
        self.make, self.length = make, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def plain(batch: Any) -> Any:
    return [t.tolist() for t in leaves_of(batch)]


def test_a_batch_has_the_structure_of_a_sample() -> None:
    batch = DataLoader(Samples("dict"), 2).first()
    assert batch["image"].shape == (2, 3, 4)
    assert batch["label"].tolist() == [0, 1]
    assert batch["label"].label == 'batch 0 of loader "train"'
    assert type(DataLoader(Samples("mapping"), 2).first()) is dict
    sample = DataLoader(Samples("dataclass"), 2).first()
    assert isinstance(sample, Sample)
    assert sample.label.tolist() == [0, 1]  # type: ignore[attr-defined]
    assert DataLoader(Samples("named tuple"), 2).first().label.tolist() == [0, 1]
    (ids, (single, (twice, _))) = DataLoader(Samples("nested"), 2).first()
    assert ids["mask"] is None
    assert (single.tolist(), twice.tolist()) == ([0, 1], [0, 2])
    assert isinstance(DataLoader(Samples("single"), 2).first(), fb.Tensor)
    assert isinstance(DataLoader(Samples("list"), 2).first(), tuple)


@pytest.mark.parametrize("form", FORMS)
def test_workers_devices_and_cursors_give_the_same_batches_of_any_structure(form: str) -> None:
    def loader(**options: Any) -> DataLoader:
        return DataLoader(Samples(form), 3, shuffle=True, seed=4, **options)

    whole = [plain(b) for b in loader()]
    assert [plain(b) for b in loader(num_workers=2)] == whole
    assert [plain(b) for b in loader().to("numpy:0")] == whole
    pieces = [list(b) for b in loader().sharded(["cpu:0", "numpy:0"], lambda rows: [rows - 1, 1])]
    joined = [
        [[v for part in rows for v in part] for rows in zip(*(plain(p) for p in b if p is not None), strict=True)]
        for b in pieces
    ]
    assert joined == whole
    ranks = [list(loader().sharded(["cpu:0"] * 2, lambda rows: [1, rows - 1], only=rank)) for rank in range(2)]
    assert [plain(b.piece)[0] for b in ranks[0]] == [b[0][:1] for b in whole]
    assert [b.piece is None for b in ranks[1]] == [False, False, True]
    split = loader().split(["cpu:0", "cpu:1"])
    assert [plain(s.first())[0] for s in split] == [whole[0][0][:2], whole[0][0][2:]]
    begun = loader()
    next(iter(begun))
    resumed = loader()
    resumed.load_cursor(begun.cursor())
    assert [plain(b) for b in resumed] == whole[1:]


def test_processes_make_batches_of_any_structure() -> None:
    for form in ("dict", "dataclass"):
        made = [plain(b) for b in DataLoader(Samples(form), 3, num_workers=1, worker="process")]
        assert made == [plain(b) for b in DataLoader(Samples(form), 3)]


def test_changes_of_a_batch_get_it_as_it_is() -> None:
    def doubled(batch: Any) -> Any:
        return {"twice": batch["image"] * 2, "label": batch["label"]}

    flipped = DataLoader(Samples("dict"), 2, augment=RandomHorizontalFlip(), transform=doubled).first()
    rows = {tuple(map(tuple, flipped["twice"][0].tolist()))}
    assert rows <= {tuple(map(tuple, a.tolist())) for a in (image(0) * 2, image(0)[:, ::-1] * 2)}
    assert list(flipped) == ["twice", "label"]

    class Drops:
        per_sample = 1

        def __call__(self, words: Any, *arrays: Any) -> Any:
            return arrays[:1]

    with pytest.raises(SampleError, match=r"returns as many arrays as it is given: 2; received 1 arrays"):
        DataLoader(Samples("dict"), 2, augment=Drops()).first()


def test_a_sample_that_fills_its_array_again_is_copied() -> None:
    held = {"x": np.zeros(2), "d": Sample(np.zeros(1), 0)}

    def filled(i: int) -> Any:
        held["x"][:] = i
        held["d"].image[:] = i  # type: ignore[attr-defined]
        return OrderedDict(held)

    batch = DataLoader(Made(filled, 2), 2).first()
    assert batch["x"].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert batch["d"].image.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_of_another_structure_is_named(workers: int) -> None:
    lacks = Made(lambda i: {"x": i} if i == 4 else {"x": i, "y": i})
    with pytest.raises(SampleError, match=r"\(samples 3, 4, 5\).*can be made(?s:.*)sample 4 differs") as caught:
        list(DataLoader(lacks, 3, num_workers=workers))
    assert caught.value.context["sample"] == 4
    with pytest.raises(LoaderError, match=r"\{'x': array\} in sample 0 and \{'z': array\} in sample 3"):
        list(DataLoader(Made(lambda i: {"x" if i < 3 else "z": i}), 3, num_workers=workers))


def test_keys_in_another_order_are_the_same_structure() -> None:
    batches = list(DataLoader(Made(lambda i: {"x": i, "y": -i} if i % 2 else {"y": -i, "x": i}), 3))
    assert [b["x"].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5]]
    assert [b["y"].tolist() for b in batches] == [[0, -1, -2], [-3, -4, -5]]


def test_what_is_refused_is_named_by_its_path() -> None:
    with pytest.raises(LoaderError, match=r"batch\['t'\]\[1\] of batch 0 of loader \"train\": <U3"):
        DataLoader(Made(lambda i: {"x": i, "t": (i, "abc")}), 2).first()
    with pytest.raises(SampleError, match=r"shapes \[1\] and \[2\] of sample\['x'\]"):
        DataLoader(Made(lambda i: {"x": np.zeros(i + 1)}), 2).first()
    with pytest.raises(SampleError, match=r"a sample holds arrays or numbers; received \{\}"):
        DataLoader(Made(lambda i: {}), 2).first()
    with pytest.raises(LoaderError, match=r"batch\.image of batch 0"):
        DataLoader(Made(lambda i: Sample(image(i), i)), 2, transform=lambda b: Sample(b.image[0], 3)).sharded(
            ["cpu:0", "cpu:1"], lambda rows: [1, 1]
        ).first()
