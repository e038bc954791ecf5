"""What was measured of a driver, kept on disk: the probes that take long run once for each driver, version and set of limits.

An entry is one of the compiler's cache (``compiler.cache``), named by a hash of everything that the findings may depend on. The
probes that take milliseconds run each time a device is opened. An entry that is damaged, of another adapter, or at odds
with these is ignored with a warning, and replaced.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from firebrick.backends.webgpu import probes
from firebrick.backends.webgpu.adapters import Adapter, library
from firebrick.backends.webgpu.probes import Measured, Run, assembled, measured, quick
from firebrick.compiler.cache import CacheWarning, store
from firebrick.compiler.targets.wgsl import operations
from firebrick.core.lines import warn
from firebrick.core.untrusted import json_of

_DRIVERS = ("VK_", "LP_", "MESA_", "WGPU_", "GALLIUM_", "DRI_", "RADV_", "INTEL_", "ANV_", "NVK_", "__GL_")
"""Environment variables that choose and change drivers begin with one of these."""
_AGAIN = "what the driver does was measured again"
_ARITHMETIC = ("division", "square root", "fma", "products in sums")


def measured_once(run: Run, adapter: Adapter) -> Measured:
    """What the driver of an adapter does: from its entry, or measured now.

    Args:
        run: Runs a shader on the device.
        adapter: The adapter.

    Raises:
        DeviceError: The driver computes something wrongly that every kernel relies on.
    """
    identity = identity_of(adapter)
    if identity is None:
        return measured(run, adapter.limits, adapter.name, adapter.features)
    key = hashlib.sha256(b"webgpu adapter\0" + json.dumps(identity, sort_keys=True).encode()).digest()
    content = store.load(key, again=_AGAIN)
    now: dict[str, Any] = {}
    if content is not None:
        now = quick(run)
        found = _findings(content, identity)
        if isinstance(found, dict) and {k: v for k, v in found.items() if k not in ("arithmetic", "float64")} == now:
            return assembled(found, adapter.limits)
        reason = found if isinstance(found, str) else "it does something else now"
        warn(f"the kept measurements of {adapter.name} are not used: {reason}; {_AGAIN}", CacheWarning)
    findings = {**probes.lasting(run, adapter.name, adapter.features), **(now or quick(run))}
    described = {"functions": ["measured arithmetic"], "target": adapter.name, "llvm": adapter.driver}
    store.save(key, json.dumps({"identity": identity, **findings}).encode(), described)
    return assembled(findings, adapter.limits)


def identity_of(adapter: Adapter) -> dict[str, Any] | None:
    """All that findings may depend on; None if that is not known."""
    native = importlib.import_module("wgpu.backends.wgpu_native")
    try:
        sources = "".join(inspect.getsource(m) for m in (probes, operations))
    except OSError:  # an installation without sources
        return None
    if not adapter.driver and sys.platform not in ("darwin", "win32"):  # a driver that does not report its version
        return None
    return {
        "adapter": {k: str(v) for k, v in sorted(dict(adapter.handle.info).items())},
        "system": platform.platform(),  # drivers of Metal are a part of it
        "limits": dict(sorted(adapter.limits.items())),
        "features": sorted(adapter.features),
        "wgpu": [library().__version__, str(getattr(native, "__commit_sha__", ""))],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_DRIVERS)},
        "probes": hashlib.sha256(sources.encode()).hexdigest(),
    }


def _findings(content: bytes, identity: Mapping[str, Any]) -> dict[str, Any] | str:
    """The findings of an entry, or why they are not used."""
    try:
        found = json_of(content)
    except ValueError as e:
        return f"the entry is no JSON ({e})"
    if not isinstance(found, dict) or found.pop("identity", None) != identity:
        return "the entry is of another adapter"
    arithmetic, float64, loops, habits = (found.get(k) for k in ("arithmetic", "float64", "longest loop", "habits"))
    whole = (
        found.keys() == {"arithmetic", "float64", "longest loop", "habits"}
        and isinstance(arithmetic, dict)
        and tuple(arithmetic) == _ARITHMETIC
        and all(type(v) is bool for v in arithmetic.values())
        and (float64 is None or (isinstance(float64, dict) and tuple(float64) == ("all others", *_ARITHMETIC)))
        and all(type(v) is bool for v in (float64 or {}).values())
        and type(loops) is int
        and isinstance(habits, dict)
    )
    return found if whole else "the entry has other findings"
