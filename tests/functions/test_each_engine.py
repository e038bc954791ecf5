"""Tests of functions are called with each engine, and name those on which they fail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from firebrick.testing import engines


def test_a_test_is_called_with_a_device_of_each_engine(device: str, request: pytest.FixtureRequest) -> None:
    devices = request.node.funcargs["device"]
    assert device in devices
    assert {*devices} in ({*engines().usable} - {"webgpu"}, {"webgpu"})


def test_a_test_that_fails_names_each_engine_it_fails_on(request: pytest.FixtureRequest) -> None:
    called = []

    def fails(device: str, factor: int) -> None:
        called.append((device, factor))
        assert device == "first", f"wrong on {device}"

    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    assert conftest is not None
    item = SimpleNamespace(
        obj=fails, _fixtureinfo=SimpleNamespace(argnames=("device", "factor")),
        funcargs={"device": ("first", "second", "third"), "factor": 2, "other": 3},
    )  # fmt: skip
    with pytest.raises(ExceptionGroup, match="fails on second, third") as caught:
        conftest.pytest_pyfunc_call(item)
    assert called == [("first", 2), ("second", 2), ("third", 2)]
    assert [e.__notes__ for e in caught.value.exceptions] == [["on second"], ["on third"]]
