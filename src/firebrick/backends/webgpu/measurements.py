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
from firebrick.compiler.targets.wgsl import operations, subgroups
from firebrick.core.lines import warn
from firebrick.core.untrusted import json_of

_DRIVERS = ("VK_", "LP_", "MESA_", "WGPU_", "GALLIUM_", "DRI_", "RADV_", "INTEL_", "ANV_", "NVK_", "__GL_")
"""Environment variables that choose and change drivers begin with one of these."""
_AGAIN = "what the driver does was measured again"
_ONCE = ("arithmetic", "optional")
"""The findings that take long."""
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
        return measured(run, adapter.limits, adapter.features, adapter.name)
    key = hashlib.sha256(b"webgpu adapter\0" + json.dumps(identity, sort_keys=True).encode()).digest()
    content = store.load(key, again=_AGAIN)
    now: dict[str, Any] = {}
    if content is not None:
        now = quick(run)
        found = _findings(content, identity)
        if isinstance(found, dict) and {k: v for k, v in found.items() if k not in _ONCE} == now:
            return assembled(found, adapter.limits)
        reason = found if isinstance(found, str) else "it does something else now"
        warn(f"the kept measurements of {adapter.name} are not used: {reason}; {_AGAIN}", CacheWarning)
    once = {"arithmetic": probes.arithmetic(run, adapter.name), "optional": probes.optional(run, adapter.features)}
    findings = {**once, **(now or quick(run))}
    described = {"functions": ["measured arithmetic"], "target": adapter.name, "llvm": adapter.driver}
    store.save(key, json.dumps({"identity": identity, **findings}).encode(), described)
    return assembled(findings, adapter.limits)


def identity_of(adapter: Adapter) -> dict[str, Any] | None:
    """All that findings may depend on; None if that is not known."""
    native = importlib.import_module("wgpu.backends.wgpu_native")
    try:
        sources = "".join(inspect.getsource(m) for m in (probes, operations, subgroups))
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
    arithmetic, optional, loops, habits = (found.get(k) for k in (*_ONCE, "longest loop", "habits"))
    whole = (
        found.keys() == {*_ONCE, "longest loop", "habits"}
        and _are_findings(arithmetic, _ARITHMETIC)
        and isinstance(optional, dict)
        and optional.keys() == {"float16", "float64", "subgroups"}
        and (type(optional["float16"]), type(optional["subgroups"])) == (str, int)
        and (optional["float64"] is None or _are_findings(optional["float64"], ("all others", *_ARITHMETIC)))
        and type(loops) is int
        and isinstance(habits, dict)
    )
    return found if whole else "the entry has other findings"


def _are_findings(found: object, names: tuple[str, ...]) -> bool:
    """Whether these are findings about operations, each true or false."""
    return isinstance(found, dict) and tuple(found) == names and all(type(v) is bool for v in found.values())
