"""Layers of ours and of torch's start from the same values in every run."""

from __future__ import annotations

import importlib.util

import pytest

import firebrick as fb


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the initial values of both."""
    fb.random.seed(0)
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.manual_seed(0)
