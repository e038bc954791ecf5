"""One batch over three engines: equal losses and gradients, and a training that shares each batch out among them.

python examples/three_engines.py
"""

from __future__ import annotations

import argparse

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader, datasets
from firebrick.train import DataParallel, Learner, SingleDevice, Strategy

ENGINES = ["cpu:0", "numpy:0", "torch:cpu"]


def network() -> nn.Sequential:
    """The same weights at each call, on the default device."""
    fb.random.seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def loader(part: str) -> DataLoader:
    digits = datasets.load("digits", part)
    pixels = ((digits.images[:, None] / digits.pixel_max - digits.mean) / digits.std).astype(np.float32)
    return DataLoader(ArrayDataset(pixels, digits.labels), batch_size=96, shuffle=part == "train", seed=0, name=part)


def compare_engines() -> float:
    """The loss of one batch and all gradients on each engine; returns by how much gradients differ, relative to their size."""
    loss_and_gradients = fb.jit(fb.value_and_grad(lambda model, images, labels: fb.cross_entropy(model(images), labels)))
    images, labels = loader("train").first()
    found, worst = {}, 0.0
    for device in ENGINES:
        model = network().to(device)
        loss, gradients = loss_and_gradients(model, images.to(device), labels.to(device))
        found[device] = {name: gradients[p].numpy() for name, p in model.named_parameters()}
        print(f"{device:10} loss {loss:.7f}")
    for name, values in found["numpy:0"].items():
        for device in ENGINES:
            worst = max(worst, float(np.abs(found[device][name] - values).max() / np.abs(values).max()))
    return worst


def train(strategy: Strategy, epochs: int) -> tuple[nn.Sequential, float | None]:
    """Train from the same weights with the same batches, wherever the steps run."""
    model = network()
    learner = Learner(model, optim.SGD(model, lr=0.05, momentum=0.9), strategy=strategy, log=None)
    learner.fit(loader("train"), epochs=epochs)
    return model, learner.evaluate(loader("test")).accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="one epoch")
    args = parser.parse_args()
    epochs = 1 if args.short else 5

    print(f"gradients differ by {compare_engines():.1e} of their size at most")
    one, alone = train(SingleDevice("cpu:0"), epochs)
    three, shared = train(DataParallel(ENGINES, shares=[50, 20, 30]), epochs)
    apart = max(fb.max(fb.abs(a - b)) for a, b in zip(one.parameters(), three.parameters(), strict=True))
    print(f"accuracy after {epochs} epoch{'s'[: epochs > 1]}: {alone:.2%} on one device, {shared:.2%} over three engines")
    print(f"weights differ by {apart:.1e} at most")


if __name__ == "__main__":
    main()
