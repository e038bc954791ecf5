"""A ResNet with the weights of PyTorch's: equal predictions, then a new head for classes that it has never seen.

python examples/resnet_from_torch.py

The names of the weights are torchvision's, so the state dict of its ``resnet18`` loads into ``ResNet()`` in the same way.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader, datasets
from firebrick.train import Learner


class Block(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: list[nn.Module] = []  # a list, for the names downsample.0 and downsample.1
        if stride != 1 or channels != width:
            self.downsample = [nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = self.bn2(self.conv2(fb.relu(self.bn1(self.conv1(x)))))
        for layer in self.downsample:
            x = layer(x)
        return fb.relu(x + y)


class ResNet(nn.Module):
    def __init__(self, channels: int = 3, width: int = 64, classes: int = 1000, small_images: bool = False) -> None:
        stem = (3, 1, 1) if small_images else (7, 2, 3)  # size, stride, padding
        self.conv1 = nn.Conv2d(channels, width, *stem, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small_images else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = [Block(width, width, 1), Block(width, width, 1)]
        self.layer2 = [Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1)]
        self.layer3 = [Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1)]
        self.layer4 = [Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1)]
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        x = self.maxpool(fb.relu(self.bn1(self.conv1(x))))
        for block in (*self.layer1, *self.layer2, *self.layer3, *self.layer4):
            x = block(x)
        return self.fc(fb.mean(x, axis=(2, 3)))


class TorchBlock(torch.nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(width)
        self.downsample = torch.nn.Sequential()
        if stride != 1 or channels != width:
            down = torch.nn.Conv2d(channels, width, 1, stride=stride, bias=False)
            self.downsample = torch.nn.Sequential(down, torch.nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(self.downsample(x) + y)


class TorchResNet(torch.nn.Module):
    """torchvision's ``resnet18`` for small grey images."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        sizes = [(1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2)]
        for k, (before, after, stride) in enumerate(sizes, 1):
            blocks = TorchBlock(before * width, after * width, stride), TorchBlock(after * width, after * width, 1)
            setattr(self, f"layer{k}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(8 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for k in range(1, 5):
            x = self.get_submodule(f"layer{k}")(x)
        return self.fc(x.mean((2, 3)))


def digits(part: str, first: int) -> ArrayDataset:
    """Five classes of digits, from the first on, numbered from 0."""
    found = datasets.load("digits", part)
    kept = (found.labels >= first) & (found.labels < first + 5)
    images = ((found.images[kept][:, None] / found.pixel_max - found.mean) / found.std).astype(np.float32)
    return ArrayDataset(images, found.labels[kept] - first)


def trained_in_torch(width: int, epochs: int) -> TorchResNet:
    """What somebody else trained: here on the digits 0 to 4."""
    torch.manual_seed(0)
    model = TorchResNet(width, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images, labels = (torch.from_numpy(a) for a in digits("train", 0).arrays)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a narrow network for a few epochs")
    args = parser.parse_args()
    width, epochs = (8, 2) if args.short else (32, 5)
    theirs = trained_in_torch(width, epochs)

    fb.random.seed(0)
    model = ResNet(channels=1, width=width, classes=5, small_images=True)
    model.load_state_dict({name: values.numpy() for name, values in theirs.state_dict().items()})
    images, labels = digits("test", 0).arrays
    with torch.no_grad(), fb.no_grad():
        want, got = theirs(torch.from_numpy(images)).numpy(), model.eval()(fb.asarray(images)).numpy()
    print(f"logits differ by {np.abs(got - want).max():.1e} at most")
    print(f"predictions that are equal: {np.mean(got.argmax(1) == want.argmax(1)):.2%}")
    print(f"predictions that are right: {np.mean(got.argmax(1) == labels):.2%}")

    train = DataLoader(digits("train", 5), batch_size=64, shuffle=True, seed=0, drop_last=True)
    test = DataLoader(digits("test", 5), batch_size=256, name="test")
    model.freeze()
    model.fc = nn.Linear(8 * width, 5)  # the only part that is trained
    head = Learner(model, optim.Adam(model, lr=1e-2), log=None)
    head.fit(train, epochs=epochs)
    print(f"accuracy of the new head on digits 5 to 9: {head.evaluate(test).accuracy:.2%}")
    model.unfreeze()
    whole = Learner(model, optim.Adam(model, lr=5e-4), log=None)
    whole.fit(train, epochs=epochs)
    print(f"accuracy after training the whole network: {whole.evaluate(test).accuracy:.2%}")


if __name__ == "__main__":
    main()
