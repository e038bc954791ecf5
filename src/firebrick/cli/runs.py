"""Run directories of the command line: their names, the config they keep, and the model that is built from it again."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from firebrick import models
from firebrick.backends.registry import find_device
from firebrick.cli import classification, forecasting, language
from firebrick.core.errors import FirebrickError
from firebrick.core.untrusted import shown
from firebrick.data.datasets import series_names
from firebrick.nn import Module
from firebrick.train import Checkpoint, CheckpointError, load_checkpoint
from firebrick.train.checkpoint import BEST
from firebrick.train.claim import is_claimed
from firebrick.train.packing import MALFORMED

TASKS: dict[str, ModuleType] = {"classification": classification, "forecasting": forecasting, "language": language}


def task_name(dataset: str) -> str:
    """What is done with a data set: the key of ``TASKS`` and of the models for it."""
    return "language" if dataset == language.TEXT else "forecasting" if dataset in series_names() else "classification"


def task_of(config: dict[str, Any]) -> ModuleType:
    """The module for the task of a run: its loaders, model, loss and report."""
    return TASKS[task_name(config["dataset"])]


def run_config(settings: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint keeps of a run: how to build the model and feed it, and the settings it was started with."""
    title = f"{settings['dataset']}, {settings['model']}"
    return {"title": title, **settings, **task_of(settings).facts(settings, settings["data_dir"])}


def load_run(run: Path, *, best: bool = False, device: str | None = None) -> tuple[Module, Checkpoint]:
    """The trained model of a run, on a device, and the checkpoint it came from.

    Args:
        run: Run directory or checkpoint.
        best: Whether to take the epoch that did best on the validation data, not the last one.
        device: Where; the default device if None.

    Raises:
        CheckpointError: There is none, it is damaged, of a newer format, of another model, or not from ``firebrick train``.
    """
    goal = find_device(device)
    found = load_checkpoint(run / BEST if best else run)
    config = known(found)
    if not isinstance(config["model"], str) or models.canonical(config["model"]) not in models.names():
        raise CheckpointError(
            f"the model of a run is one of {', '.join(models.names())}", repr(config["model"]), "use the version that wrote it"
        )
    try:
        model: Module = task_of(config).build_model(config)
    except FirebrickError:
        raise
    except MALFORMED as e:
        raise _unknown(found, e) from e
    found.load_into(model)
    return model.to(goal).eval(), found


def known(found: Checkpoint) -> dict[str, Any]:
    """The config of a checkpoint that ``firebrick train`` wrote.

    Raises:
        CheckpointError: Something else wrote it.
    """
    missing = [k for k in ("dataset", "model") if not isinstance(found.config.get(k), str)]
    missing = missing or [k for k in task_of(found.config).needed if k not in found.config]
    if missing:
        raise CheckpointError(
            "the command line loads checkpoints that `firebrick train` wrote",
            f"{found.path}, whose config lacks {', '.join(missing)}",
            "load it in Python with Learner.resume, where the model is yours to build",
        )
    return found.config


def _unknown(found: Checkpoint, e: BaseException) -> CheckpointError:
    return CheckpointError(
        "the config of a run says how to build its model",
        f"{found.path}, whose config does not ({type(e).__name__}: {shown(e, 500)})",
        "use the version that wrote it, or load it in Python with load_checkpoint",
    )


def free_name(wanted: Path) -> Path:
    """``wanted`` if nothing is there, or an empty directory; else the first free of ``wanted-2``, ``wanted-3``, …."""
    wanted = wanted if wanted.name else wanted.resolve()
    candidate, number = wanted, 1
    while candidate.exists() and not _is_free(candidate):
        number += 1
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    return candidate


def _is_free(folder: Path) -> bool:
    """Whether a directory is empty, and no run is about to write there."""
    return folder.is_dir() and not any(folder.iterdir()) and not is_claimed(folder)


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
