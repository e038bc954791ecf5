"""Forecasting of time series on the command line: loaders, model and loss of a run's config, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
import numpy as np

from firebrick import models
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.data.datasets import DataError, RawSeries, load_series
from firebrick.functions.losses import mse_loss
from firebrick.nn import Module
from firebrick.train import Evaluation, Metric

_LARGEST_BATCH = 256

needed = ("dataset", "model", "columns", "mean", "std", "look_back", "horizon", "epochs", "batch_size", "lr", "seed")

SAMPLES = "windows"
TESTS_BEST = True  # the epoch that does best on the validation months is tested


def facts(settings: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """What a config says of the data: how to build the model and scale what it is fed."""
    raw = load_series(settings["dataset"], folder)
    mean, deviation = raw.scaling()
    columns, step = list(raw.columns), raw.step.total_seconds()
    return {"columns": columns, "mean": mean.tolist(), "std": deviation.tolist(), "step_seconds": step}


def check_series(raw: RawSeries, config: dict[str, Any], what: str) -> None:
    """Refuse a series of other columns or another time between its rows than the model was trained on."""
    if list(raw.columns) != config["columns"]:
        raise DataError(
            f"{what}: expected the series the model was trained on, {', '.join(config['columns'])}, in this order; received "
            f"{', '.join(raw.columns)}."
        )
    step = config.get("step_seconds")  # which runs of earlier versions do not say
    if step is not None and raw.step.total_seconds() != step:
        raise DataError(
            f"{what}: expected rows {timedelta(seconds=step)} apart, as the model was trained on; received {raw.step}."
        )


def build_model(config: dict[str, Any]) -> Module:
    """The model of a config, with fresh parameters."""
    sizes = {"series": len(config["columns"]), "window": config["look_back"], "horizon": config["horizon"]}
    return models.build(config["model"], **sizes, **(config.get("model_settings") or {}))


def loss_of(config: dict[str, Any]) -> Callable[[Any, Tensor], Tensor]:
    """The mean squared error."""
    return mse_loss


def _loader(config: dict[str, Any], folder: str | None, device: Device, split: str) -> DataLoader:
    raw = load_series(config["dataset"], folder)
    check_series(raw, config, raw.name)
    scaling = (config["mean"], config["std"])  # the model's own, whatever data it is tested on
    windows = raw.windows(split, config["look_back"], config["horizon"], scaling)
    if split == "train":
        return DataLoader(
            windows, config["batch_size"], shuffle=True, seed=config["seed"], device=device,
            num_workers=config.get("workers") or 0, worker="process", keep_workers=True,
        )  # fmt: skip
    return DataLoader(windows, max(config["batch_size"], _LARGEST_BATCH), device=device, name=split)


def training_loaders(config: dict[str, Any], folder: str | None, device: Device) -> tuple[DataLoader, DataLoader]:
    """The loaders that train and validate."""
    return _loader(config, folder, device, "train"), _loader(config, folder, device, "validation")


def test_loader(config: dict[str, Any], folder: str | None, device: Device) -> DataLoader:
    """The loader of all test windows."""
    return _loader(config, folder, device, "test")


def say_parts(config: dict[str, Any], found: Evaluation) -> None:
    """How the errors of scaled values read in the units of each series."""
    width = max(map(len, config["columns"]))
    for name, mean, deviation in zip(config["columns"], config["mean"], config["std"], strict=True):
        click.echo(f"  {name:<{width}}  1 in scaled values is {deviation:.4g}; its training mean is {mean:.4g}")


def say_result(found: Evaluation) -> None:
    """Mean absolute error, and the mean squared error in the last line; both of scaled values."""
    click.echo(f"test MAE {found.mae:.4f}")
    click.echo(f"test MSE {found.mse:.4f}")


def metrics_of(config: dict[str, Any]) -> dict[str, Metric]:
    """Further metrics: none."""
    return {}


def names_of(config: dict[str, Any]) -> list[str]:
    """The names of the series."""
    return list(config["columns"])


def scaled(config: dict[str, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows [rows, series] as the model was trained on them."""
    return np.asarray((rows - np.asarray(config["mean"])) / np.asarray(config["std"]), np.float32)


def unscaled(config: dict[str, Any], rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the model says, in the units of the series."""
    return np.asarray(rows * np.asarray(config["std"]) + np.asarray(config["mean"]), np.float64)
