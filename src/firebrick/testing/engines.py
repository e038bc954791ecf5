"""The engines that tests run on: which can be used here, and why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.backends.registry import find_device
from firebrick.core.errors import DeviceError

# one device string an engine
DEVICES = {"numpy": "numpy", "cpu": "cpu", "torch": "torch:cpu", "webgpu": "webgpu"}


@dataclass(frozen=True)
class Engines:
    """Device strings of the usable engines, and ``missing`` ones by name with the reason."""

    usable: tuple[str, ...]
    missing: dict[str, str]


def engines() -> Engines:
    """The engines that conformance is tested on: one device of each that can be used here.

    Example:
        >>> from firebrick.testing import engines
        >>> "numpy" in engines().usable
        True
    """
    usable, missing = [], {}
    for name, device in DEVICES.items():
        try:
            find_device(device)
            usable.append(device)
        except (DeviceError, ImportError) as e:
            missing[name] = str(e)
    return Engines(tuple(usable), missing)
