"""Training moves on every engine, and a training that does not move is noticed.

The frozen case is the failure that this project started from: destinations that read as zeros after a kernel wrote them, so
that training stays at one loss.
"""

from __future__ import annotations

from typing import Any

import pytest
from forecasting import train, windows

import firebrick as fb
from firebrick import testing
from firebrick.testing import faults
from firebrick.train import FrozenTrainingWarning, Learner


def test_a_tiny_patch_transformer_loses_four_fifths_of_its_loss(device: str) -> None:
    before, *_, after = train(device)
    assert after <= 0.2 * before


def learner_on(device: Any) -> tuple[Learner, Any]:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(24, 8), fb.nn.ReLU(), fb.nn.Linear(8, 4)).to(device)
    x, y = windows()
    loader = fb.data.DataLoader(fb.data.ArrayDataset(x, y), 5, device=device)
    return Learner(model, fb.optim.SGD(model, lr=0.05), fb.mse_loss, log=None, patience=5), loader


def test_an_engine_whose_updates_read_as_zeros_is_noticed_by_its_frozen_loss() -> None:
    with faults.planted(faults.reads_zero("multiply")) as device:  # every update lr · gradient reads as 0
        learner, loader = learner_on(device)
        with pytest.warns(FrozenTrainingWarning, match="no parameter has changed|gradient of|has been exactly"):
            learner.fit(loader, epochs=10)


def test_the_same_training_on_a_sound_engine_says_nothing() -> None:
    with faults.planted(faults.sound()) as device:
        learner, loader = learner_on(device)
        losses = [e.train_loss for e in learner.fit(loader, epochs=10)]  # a warning would be an error here
        assert losses[-1] < losses[0]


def test_a_destination_that_reads_zero_cannot_freeze_training_because_handles_show_what_was_returned() -> None:
    """An engine may lose what it writes into ``out``: conformance says so by name."""
    with faults.planted(faults.destinations_read_zero()) as device:
        report = testing.conformance(device.name, ops=["add"])
        assert not report.ok
        assert "add" in str(report)
