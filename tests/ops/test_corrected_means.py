"""The reference of ``standardize`` corrects what the rounding of a long sum loses."""

import math

import numpy as np

from firebrick.ops import OPS


def test_the_mean_of_many_numbers_is_right_to_the_last_bit() -> None:
    x = 1e4 + np.random.default_rng(0).normal(size=(50_000, 2))
    _, mean, variance = OPS["standardize"].reference(x, np.ones((1, 2)), np.zeros((1, 2)), axes=(0,), eps=1e-5)
    exact = np.array([math.fsum(column) / len(x) for column in x.T])
    assert np.abs(np.mean(x, axis=0) - exact).max() > 10 * np.spacing(1e4)  # without the correction
    assert np.abs(mean[0] - exact).max() <= np.spacing(1e4)
    of_columns = [math.fsum((c - m) ** 2) / len(x) for c, m in zip(x.T, exact, strict=True)]
    np.testing.assert_allclose(variance[0], of_columns, rtol=1e-12)
