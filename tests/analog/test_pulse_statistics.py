"""Pulses of random updates have the probabilities of the documented procedure, and no two lines, slots, vectors or updates
share random numbers."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog.pulse_trains import made_trains

STEP = 0.001
DRIVEN = 12
"""Further rows with the largest error, so that a row fires in each slot: columns have no pulses where none does."""


def rounded(p: Any, settings: analog.UpdateParameters) -> Any:
    """The mean of probabilities after they were rounded."""
    if settings.res == 0.0 or settings.sto_round:
        return p
    return np.floor(p / settings.res + 0.5) * settings.res


def deviations(seed: int, updates: int) -> dict[str, Any]:
    """Deviations from the procedure, in standard errors, of the trains of random vectors with random settings."""
    rng = np.random.default_rng(seed)
    rows, columns, vectors = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(2, 8))
    rounding: Any = [{}, {"res": 0.5, "sto_round": True}, {"res": 0.125}][seed % 3]
    settings = analog.UpdateParameters(**rounding)
    x, d = (rng.uniform(0.3, 0.9, (vectors, n)) * rng.choice([-1.0, 1.0], (vectors, n)) for n in (columns, rows + DRIVEN))
    x[:, 0] = d[:, rows:] = 1.0
    slots = rng.integers(1, (1, 4, 31)[seed // 3 % 3] + 1, vectors)
    share = rng.uniform(0.7, 0.95, (vectors, 1)) ** 0.5  # the probability of the largest elements
    x, d = (np.float32(v * share * np.sqrt(slots)[:, None]) for v in (x, d))
    inputs, errors, rate = fb.asarray(x), fb.asarray(d), fb.asarray(np.float32(STEP))

    generator, found = fb.random.Generator(seed), []
    for _ in range(updates):
        made = made_trains(inputs, errors, rate, STEP, settings, settings.desired_bl, (generator.key(), generator.key()))
        length, start = made.slots.length.numpy(), made.slots.start.numpy()
        at = np.concatenate([s + np.arange(n) for s, n in zip(start, length, strict=True)])
        words = np.concatenate([made.x.numpy(), made.d.numpy()[:, :rows]], axis=1)[at // 32]
        found.append((words >> np.uint32(at % 32)[:, None] & 1).ravel())
    np.testing.assert_array_equal(length, np.ceil(np.max(np.abs(x), 1) * np.max(np.abs(d), 1) - 1e-4))
    p = rounded(np.abs(np.concatenate([x, d[:, :rows]], axis=1)) / np.sqrt(length)[:, None], settings)
    vector = np.repeat(np.arange(vectors), length)
    line = (vector[:, None] * (rows + columns) + np.arange(rows + columns)).ravel()
    p = p[vector].ravel()
    random, bits = (p > 0.05) & (p < 0.95), np.array(found, np.float64) - p
    z, line = (bits / np.sqrt(p * (1.0 - p) + 1e-9))[:, random], line[random]
    first, second = np.triu_indices(len(line), 1)
    different = (line[first] != line[second]) | (not settings.sto_round)  # slots of a vector share a line's rounding
    return {
        "mean": bits.mean(0) / np.sqrt(p * (1.0 - p) / updates + 1e-6),
        "pair": (z.T @ z)[first, second][different] / np.sqrt(updates),
        "next update": z[1:].T @ z[:-1] / np.sqrt(updates - 1),
    }


def check(seeds: range, updates: int) -> None:
    for seed in seeds:
        for name, z in deviations(seed, updates).items():
            # products of rare pulses are not normal numbers, hence 1.3
            assert np.abs(z).max(initial=0.0) < 1.3 * NormalDist().inv_cdf(1.0 - 1e-4 / max(z.size, 1)), (seed, name)


def test_each_line_fires_in_each_slot_independently_with_its_probability() -> None:
    check(range(9), 300)


@pytest.mark.soak
def test_lines_of_more_random_updates_fire_independently_with_their_probabilities() -> None:
    check(range(100, 220), 2000)
