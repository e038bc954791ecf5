"""Image classification on the command line: loaders, model and loss of a run's config, and what is said of its results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

from firebrick import models
from firebrick.cli.analog_models import fresh_analog_model
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import ArrayDataset, DataLoader, Pixels, RandomCrop, RandomHorizontalFlip, holdout
from firebrick.data.datasets import RawDataset, load
from firebrick.functions.losses import cross_entropy
from firebrick.nn import Module
from firebrick.train import Evaluation, Metric

_HELD_OUT = 0.1  # share of the training images that validates
_LARGEST_BATCH = 256  # of validation and test, where no gradient needs memory
AUGMENTATIONS: dict[str, Callable[[int], Any]] = {  # by name, for the height and width of an image
    "flip": lambda size: RandomHorizontalFlip(),
    "crop": lambda size: RandomCrop(max(1, size // 14)),
}

needed = ("dataset", "model", "image_size", "class_names", "pixel_max", "mean", "std", "epochs", "batch_size", "lr", "seed")


def facts(settings: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """What a config says of the data: how to build the model and feed it."""
    raw = load(settings["dataset"], "train", folder)
    return {
        "image_size": raw.images.shape[1],
        "class_names": list(raw.classes),
        "pixel_max": raw.pixel_max,
        "mean": raw.mean,
        "std": raw.std,
    }


def build_model(config: dict[str, Any]) -> Module:
    """The model of a config, with fresh parameters."""
    settings = config.get("model_settings") or {}
    model = models.build(config["model"], config["image_size"], channels=1, classes=len(config["class_names"]), **settings)
    return fresh_analog_model(model, config["analog"]) if config.get("analog") else model


def pixels_of(config: dict[str, Any]) -> Pixels:
    """The normalisation that a run's model was trained with."""
    return Pixels(config["pixel_max"], config["mean"], config["std"])


def loss_of(config: dict[str, Any]) -> Callable[[Any, Tensor], Tensor]:
    """Cross-entropy, with the label smoothing of a run."""
    smoothing = config.get("label_smoothing") or 0.0
    return partial(cross_entropy, label_smoothing=smoothing) if smoothing else cross_entropy


def training_loaders(config: dict[str, Any], folder: str | None, device: Device) -> tuple[DataLoader, DataLoader]:
    """The loaders that train and validate."""
    raw, seed, size = load(config["dataset"], "train", folder), config["seed"], config["batch_size"]
    kept, held = holdout(ArrayDataset(raw.images, raw.labels), _HELD_OUT, seed=seed)
    augment = [AUGMENTATIONS[name](config["image_size"]) for name in config.get("augment") or ()]
    pixels = pixels_of(config)
    training = DataLoader(
        kept, size, shuffle=True, seed=seed, device=device, augment=augment, transform=pixels,
        num_workers=config.get("workers") or 0, worker="process", keep_workers=True,
    )  # fmt: skip
    return training, DataLoader(held, max(size, _LARGEST_BATCH), device=device, name="validation", transform=pixels)


def test_loader(config: dict[str, Any], folder: str | None, device: Device) -> DataLoader:
    """The loader of the test images."""
    test: RawDataset = load(config["dataset"], "test", folder)
    return DataLoader(
        ArrayDataset(test.images, test.labels), max(config["batch_size"], _LARGEST_BATCH), device=device, name="test",
        transform=pixels_of(config),
    )  # fmt: skip


def say_parts(config: dict[str, Any], found: Evaluation) -> None:
    """How often each class was told."""
    assert found.confusion is not None
    width = max(map(len, config["class_names"]))
    right, total = np.diag(found.confusion), found.confusion.sum(1)
    for name, hits, count in zip(config["class_names"], right, total, strict=True):
        click.echo(f"  {name:<{width}}  {hits:>5} of {count:<5} {hits / max(count, 1):.4f}")


def say_result(found: Evaluation) -> None:
    """Test loss, and the test accuracy in the last line."""
    click.echo(f"test loss {found.loss:.4f}")
    click.echo(f"test accuracy {found.accuracy:.4f}")


def metrics_of(config: dict[str, Any]) -> dict[str, Metric]:
    """Further metrics: none."""
    return {}


def names_of(config: dict[str, Any]) -> list[str]:
    """The names of the classes."""
    return list(config["class_names"])


SAMPLES = "images"
TESTS_BEST = False  # the last epoch is tested: with a rate that falls to 0 it is the one that was aimed at
