"""``python -m benchmarks.loaders``: samples a second of our loader beside PyTorch's, on Fashion-MNIST with the same transforms.

Each contender reads the same samples in batches of the same size, once a round, in turn. *Each sample* pads, crops and
normalises every image by the same NumPy function; *whole batches* normalises them by batches, which PyTorch's loader does in a
data set with ``__getitems__``. Workers are kept from round to round by both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure
from firebrick.data import ArrayDataset, DataLoader, Pixels
from firebrick.data.datasets import RawDataset, load

BATCH = 64
MEAN, STD = np.float32(0.286), np.float32(0.353)


def changed(sample: tuple[Any, Any]) -> tuple[Any, Any]:
    """One image uint8 [28, 28] padded by 2, cropped at a place that its label chooses, normalised: float32 [1, 28, 28]."""
    image, label = sample
    down, across = int(label) % 5, int(label) // 2
    padded = np.zeros((32, 32), np.float32)
    padded[2:30, 2:30] = image
    return ((padded[down : down + 28, across : across + 28] / np.float32(255) - MEAN) / STD)[None], label


class Images:
    """What PyTorch's loader reads: the same samples, changed one by one."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return changed((self.images[index], int(self.labels[index])))


class Batches(Images):
    """The same, changed by batches."""

    def __getitems__(self, indices: list[int]) -> tuple[Any, Any]:
        """What PyTorch's loader asks for, if it is there."""
        return Pixels(255, float(MEAN), float(STD))(self.images[indices], self.labels[indices])


def _as_tensors(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(batch[0]), torch.from_numpy(batch[1].astype(np.int64))


def _ours(raw: RawDataset, samples: int, workers: int, kind: str, batched: bool) -> Callable[[], Any]:
    data = ArrayDataset(raw.images[:samples], raw.labels[:samples])
    how: dict[str, Any] = {"transform": Pixels(255, float(MEAN), float(STD))} if batched else {"sample_transform": changed}
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers, worker=kind, keep_workers=True, device="cpu", **how)
    return lambda: _pass(loader, samples)


def _theirs(raw: RawDataset, samples: int, workers: int, batched: bool) -> Callable[[], Any]:
    from torch.utils.data import DataLoader as Loader

    images, labels = raw.images[:samples], raw.labels[:samples]
    data = Batches(images, labels) if batched else Images(images, labels)
    more: dict[str, Any] = {"collate_fn": _as_tensors} if batched else {}
    loader = Loader(data, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0, **more)  # type: ignore[arg-type]
    return lambda: _pass(loader, samples)


def _pass(loader: Any, samples: int) -> None:
    """Read all; a loader that gives fewer samples than asked for is not timed."""
    seen = sum(labels.shape[0] for _, labels in loader)
    if seen != samples:
        raise RuntimeError(f"{seen} samples instead of {samples}")


def compared(raw: RawDataset, samples: int, rounds: int, batched: bool) -> measure.Result:
    """Both loaders, without workers and with two."""
    contenders = {
        "firebrick": _ours(raw, samples, 0, "thread", batched),
        "firebrick 2 threads": _ours(raw, samples, 2, "thread", batched),
        "firebrick 2 processes": _ours(raw, samples, 2, "process", batched),
        "torch": _theirs(raw, samples, 0, batched),
        "torch 2 processes": _theirs(raw, samples, 2, batched),
    }
    result = measure.interleaved("whole batches" if batched else "each sample", contenders, 1, rounds)
    for ours, theirs in (("firebrick", "torch"), ("firebrick 2 processes", "torch 2 processes")):
        result.notes[f"{ours} / {theirs}"] = _ratio(result.seconds[ours], result.seconds[theirs])
    result.notes["samples/s"] = {c: round(samples / result.median(c)) for c in contenders}
    return result


def _ratio(ours: list[float], theirs: list[float]) -> str:
    """Median of the rounds' ratios of time, with the interval that holds 80 % of them."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    tenths = statistics.quantiles(ratios, n=10)
    return f"{statistics.median(ratios):.2f} ({tenths[0]:.2f} to {tenths[-1]:.2f})"


def main() -> None:
    """Measure, print and write."""
    p = argparse.ArgumentParser("python -m benchmarks.loaders", description=(__doc__ or "").partition("\n\n")[2])
    p.add_argument("--data-dir", help="folder of Fashion-MNIST's files; else the cache, or a download")
    p.add_argument("--samples", type=int, default=12_800, help="samples of a round (12800)")
    p.add_argument("--rounds", type=int, default=30, help="rounds (30)")
    p.add_argument("--json", default="benchmarks/results/loaders.json", help="file to write")
    args = p.parse_args()
    raw = load("fashion-mnist", "train", args.data_dir)
    print(f"{args.rounds} rounds of {args.samples} samples, batches of {BATCH}, load {measure.load()}")
    measure.report([compared(raw, args.samples, args.rounds, batched) for batched in (False, True)], args.json)


if __name__ == "__main__":
    main()
