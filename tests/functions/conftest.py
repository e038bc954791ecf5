"""A test of a function is called with every engine, one after the other: pytest spends more on each test than most of these
thousands of calls take."""

from __future__ import annotations

import pytest

from firebrick.testing import engines


@pytest.fixture(scope="session", params=["each engine", pytest.param("webgpu", marks=pytest.mark.soak)])
def device(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Devices that a test is called with in turn, as ``device``: one of every engine that can be used here, or webgpu alone."""
    usable = engines().usable
    if request.param in usable or request.param == "each engine":
        return ("webgpu",) if request.param == "webgpu" else tuple(d for d in usable if d != "webgpu")
    pytest.skip(f"engine webgpu cannot be used here: {engines().missing['webgpu']}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test with each device, and report all engines that it fails on."""
    devices = pyfuncitem.funcargs.get("device")
    if not isinstance(devices, tuple):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    failed: dict[str, Exception] = {}
    for device in devices:
        try:
            pyfuncitem.obj(**given | {"device": device})
        except Exception as e:
            if len(devices) == 1:
                raise
            e.add_note(f"on {device}")
            failed[device] = e
    if failed:
        raise ExceptionGroup(f"fails on {', '.join(failed)}", list(failed.values()))
    return True
