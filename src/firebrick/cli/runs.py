"""Run directories of the command line: their names, the config they keep, and the model that is built from it again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from firebrick import models
from firebrick.backends.registry import find_device
from firebrick.data import Pixels
from firebrick.data.datasets import RawDataset
from firebrick.nn import Module
from firebrick.train import Checkpoint, CheckpointError, load_checkpoint
from firebrick.train.learner import BEST

_NEEDED = ("dataset", "model", "image_size", "class_names", "pixel_max", "mean", "std", "epochs", "batch_size", "lr", "seed")


def run_config(raw: RawDataset, model: str, **settings: Any) -> dict[str, Any]:
    """What a checkpoint keeps of a run: how to build the model and feed it, and the settings it was started with."""
    return {
        "title": f"{raw.name}, {model}",
        "dataset": raw.name,
        "model": model,
        "image_size": raw.images.shape[1],
        "class_names": list(raw.classes),
        "pixel_max": raw.pixel_max,
        "mean": raw.mean,
        "std": raw.std,
        **settings,
    }


def build_model(config: dict[str, Any]) -> Module:
    """The model of a config, with fresh parameters."""
    model: Module = models.build(
        config["model"], image_size=config["image_size"], channels=1, classes=len(config["class_names"])
    )
    return model


def pixels_of(config: dict[str, Any]) -> Pixels:
    """The normalisation that a run's model was trained with."""
    return Pixels(config["pixel_max"], config["mean"], config["std"])


def load_run(run: Path, *, best: bool = False, device: str | None = None) -> tuple[Module, Checkpoint]:
    """The trained model of a run, on a device, and the checkpoint it came from.

    Args:
        run: Run directory or checkpoint.
        best: Whether to take the epoch that did best on the validation images, not the last one.
        device: Where; the default device if None.

    Raises:
        CheckpointError: There is none, it is damaged, of a newer format, of another model, or not from ``firebrick train``.
    """
    goal = find_device(device)
    found = load_checkpoint(run / BEST if best else run)
    config = known(found)
    if config["model"] not in models.names():
        raise CheckpointError(
            f"the model of a run is one of {', '.join(models.names())}", repr(config["model"]), "use the version that wrote it"
        )
    model = build_model(config)
    found.load_into(model)
    return model.to(goal).eval(), found


def known(found: Checkpoint) -> dict[str, Any]:
    """The config of a checkpoint that ``firebrick train`` wrote.

    Raises:
        CheckpointError: Something else wrote it.
    """
    missing = [k for k in _NEEDED if k not in found.config]
    if missing:
        raise CheckpointError(
            "the command line loads checkpoints that `firebrick train` wrote",
            f"{found.path}, whose config lacks {', '.join(missing)}",
            "load it in Python with Learner.resume, where the model is yours to build",
        )
    return found.config


def free_name(wanted: Path) -> Path:
    """``wanted`` if nothing is there, or an empty directory; else the first free of ``wanted-2``, ``wanted-3``, …."""
    wanted = wanted if wanted.name else wanted.resolve()
    candidate, number = wanted, 1
    while candidate.exists() and not (candidate.is_dir() and not any(candidate.iterdir())):
        number += 1
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    return candidate


def newest(wanted: Path) -> Path:
    """The last of ``wanted``, ``wanted-2``, … that is there; ``wanted`` if none is."""
    wanted = wanted if wanted.name else wanted.resolve()
    numbered = re.compile(re.escape(wanted.name) + r"-(\d+)")
    there = [(1, wanted)] if wanted.exists() else []
    for entry in wanted.parent.glob(f"{wanted.name}-*") if wanted.parent.is_dir() else ():
        match = numbered.fullmatch(entry.name)
        if match and entry.is_dir():
            there.append((int(match[1]), entry))
    return max(there)[1] if there else wanted
