"""Data sets and loaders of PyTorch: a data set goes into a loader as it is, a loader becomes one of Firebrick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import firebrick as fb
from firebrick.data import DataLoader, LoaderError, from_torch

torch = pytest.importorskip("torch")
from torch.utils import data as theirs  # noqa: E402

X = torch.arange(40.0).reshape(20, 2)
Y = torch.arange(20) % 3


class Samples(theirs.Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index >= 20:
            raise IndexError
        return X[index], int(Y[index])


class Stream(theirs.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


def doubled(samples: Any) -> Any:
    return torch.stack([x for x, _ in samples]) * 2, torch.tensor([y for _, y in samples])


def values(loader: Any) -> list[Any]:
    return [(x.tolist(), y.tolist()) for x, y in loader]


@pytest.mark.parametrize("dataset", [Samples(), theirs.TensorDataset(X, Y), theirs.Subset(Samples(), range(20))])
def test_a_data_set_of_torch_goes_into_a_loader(dataset: Any, device: str) -> None:
    loader = DataLoader(dataset, 8, device=device)
    assert values(loader) == values(theirs.DataLoader(dataset, 8))
    assert loader.first()[0].device is fb.device(device)


def test_samples_of_bfloat16_are_read() -> None:
    x, _ = DataLoader(theirs.TensorDataset(X.bfloat16(), Y), 4, dtype="bfloat16").first()
    assert x.dtype is fb.bfloat16
    assert x.astype(fb.float32).tolist() == X[:4].tolist()


@pytest.mark.parametrize(
    "loader",
    [
        theirs.DataLoader(Samples(), 8),
        theirs.DataLoader(Samples(), 8, drop_last=True),
        theirs.DataLoader(Samples(), 8, collate_fn=doubled),
        theirs.DataLoader(Stream(), 8),
        theirs.DataLoader(theirs.TensorDataset(X, Y), 7),
        theirs.DataLoader(theirs.TensorDataset(X), 7, collate_fn=lambda rows: (torch.stack([r[0] for r in rows]),) * 2),
    ],
    ids=["samples", "drop_last", "collate_fn", "stream", "tensors", "lambda"],
)
def test_a_loader_of_torch_gives_the_same_batches(loader: Any) -> None:
    assert values(from_torch(loader)) == values(loader)


@pytest.mark.parametrize("worker", ["thread", "process"])
def test_workers_give_the_same_batches(worker: str) -> None:
    loader = theirs.DataLoader(theirs.TensorDataset(X, Y), 8, shuffle=True)
    assert values(from_torch(loader, num_workers=2, worker=worker)) == values(from_torch(loader))


def test_a_shuffled_loader_is_shuffled_by_the_seed_of_its_generator_and_differs_by_epoch() -> None:
    def made(seed: int | None = None, **settings: Any) -> DataLoader:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return from_torch(theirs.DataLoader(Samples(), 20, shuffle=True, generator=generator), **settings)

    loader = made(7)
    first, second = values(loader), values(loader)
    assert first != second
    assert sorted(first[0][0]) == X.tolist()
    assert values(made(7)) == first
    assert made(7).seed == 7
    assert made().seed == 0
    assert from_torch(theirs.DataLoader(Samples(), 20, shuffle=True), seed=3).seed == 3


def test_settings_of_the_loader_are_passed_on() -> None:
    loader = from_torch(theirs.DataLoader(Samples(), 4), device="cpu:1", name="valid", shuffle=True, batch_size=5)
    x, _ = loader.first()
    assert x.shape == (5, 2)
    assert x.device is fb.device("cpu:1")
    assert loader.name == "valid"
    assert loader.shuffle


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Samples(), "from_torch takes a torch.utils.data.DataLoader\nReceived: Samples"),
        (
            lambda: theirs.DataLoader(Samples(), 4, sampler=theirs.WeightedRandomSampler([1.0] * 20, 20)),
            "the sampler WeightedRandom",
        ),
        (lambda: theirs.DataLoader(Samples(), 4, sampler=theirs.RandomSampler(Samples(), True)), "the sampler RandomSampler"),
        (lambda: theirs.DataLoader(Samples(), batch_sampler=theirs.BatchSampler(range(20), 4, False)), "or a batch sampler"),
        (lambda: theirs.DataLoader(Samples(), batch_size=None), "batch_size None"),
    ],
    ids=["data set", "weighted", "replacement", "batch sampler", "no batch size"],
)
def test_an_order_that_cannot_be_repeated_is_refused(make: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text):
        from_torch(make())


def test_batches_keep_the_structure_that_pytorch_gives_them() -> None:
    class Others(Samples):
        def __getitem__(self, index: int) -> Any:
            return {"x": X[index], "parts": (torch.ones(2) * index, index)}

    batch = from_torch(theirs.DataLoader(Others(), batch_size=2)).first()
    assert batch["x"].tolist() == X[:2].tolist()
    assert batch["parts"][0].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert batch["parts"][1].tolist() == [0, 1]


def test_texts_of_a_batch_are_refused_by_their_path() -> None:
    class Others(Samples):
        def __getitem__(self, index: int) -> Any:
            return X[index], "a text"

    with pytest.raises(LoaderError, match=r"batch\[1\]\[0\] of batch 0 of loader"):
        from_torch(theirs.DataLoader(Others(), batch_size=2)).first()


def test_a_learner_trains_from_loaders_of_torch_as_from_its_own() -> None:
    def trained(train: Any, valid: Any) -> Any:
        fb.random.seed(0)
        model = fb.nn.Linear(2, 3)
        learner = fb.train.Learner(model, fb.optim.SGD(model, lr=1e-3), fb.nn.CrossEntropyLoss())
        history = learner.fit(train, valid, epochs=2)
        return [h.train_loss for h in history], [h.valid_loss for h in history], learner.evaluate(valid).loss

    loader = theirs.DataLoader(Samples(), 8, shuffle=True)
    ours = DataLoader(fb.data.ArrayDataset(X.numpy(), Y.numpy()), 8, shuffle=True)
    plain = DataLoader(fb.data.ArrayDataset(X.numpy(), Y.numpy()), 8)
    assert trained(loader, theirs.DataLoader(Samples(), 8)) == trained(ours, plain)
