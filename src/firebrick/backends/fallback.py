"""Ops that an engine lacks: a warning, a count, and their execution on the host.

``FallbackWarning`` announces each op and device once, ``explain_fallbacks()`` lists them and ``config.fallback = "error"``
forbids them. Eager execution and compiled programs share this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.backends.handles import wrap
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.errors import ExecutionError, FallbackWarning, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.lines import warn
from firebrick.core.op import Op

_fallbacks: dict[tuple[str, str], int] = {}


def refuse(op: Op, operands: tuple[Aval, ...], device: Device) -> None:
    """Raise UnsupportedError if the settings forbid the host."""
    if config.fallback == "error":
        raise UnsupportedError(
            f"{device} has no kernel for {op.shown} on {', '.join(map(str, operands))}",
            "",
            'allow it to run on the host with fb.config.fallback = "warn", or cast to a dtype the engine has',
            op=op.shown,
        )


def on_host(
    op: Op, natives: tuple[Any, ...], params: dict[str, Any], avals: tuple[Aval, ...], device: Device
) -> tuple[Any, ...]:
    """Run one op on the host: native arrays of ``device`` in, native arrays of ``device`` out."""
    backend = device.backend
    operands = tuple(backend.describe(x) for x in natives)
    refuse(op, operands, device)
    key = (op.name, device.name)
    if key not in _fallbacks and config.fallback == "warn":
        warn(
            f"{op.shown} on {', '.join(map(str, operands))} has no kernel on {device} and runs on the host, with copies both "
            'ways; fb.explain_fallbacks() lists such ops, fb.config.fallback = "error" forbids them',
            FallbackWarning,
        )
    _fallbacks[key] = _fallbacks.get(key, 0) + 1
    result = hooks.find_device("numpy").backend.execute(op, tuple(np.asarray(a) for a in backend.read(natives)), params)
    made = []
    for r, aval in zip(result if type(result) is tuple else (result,), avals, strict=True):
        native = backend.from_host(r, device)
        if backend.describe(native) != aval:
            raise ExecutionError(f"{op.shown} on the host must return {aval}", str(backend.describe(native)), "report this")
        made.append(native)
    return tuple(made)


def substitute(
    op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], packed: bool, device: Device
) -> Callable[..., Any]:
    """The function that a compiled program runs for an op that the engine of ``device`` lacks: its decomposition, or the host.

    Raises:
        UnsupportedError: There is no decomposition, and the settings forbid the host.
    """
    if op.decompose is None:
        refuse(op, operands, device)

    def run(*natives: Any) -> Any:
        if op.decompose is None:
            made = on_host(op, natives, params, results, device)
        else:
            made = decomposed(op, natives, params, device)
        return made if packed else made[0]

    return run


def decomposed(op: Op, natives: tuple[Any, ...], params: dict[str, Any], device: Device) -> tuple[Any, ...]:
    """Run one op as its entry's decomposition into other ops."""
    tensors = [wrap(x, device.backend.describe(x), device) for x in natives]
    for t in tensors:
        t.storage.export()  # the operands belong to the program, so the decomposition must not write into them
    assert op.decompose is not None
    result = op.decompose(*tensors, **params)
    return tuple(t.storage.data for t in (result if type(result) is tuple else (result,)))


def explain_fallbacks() -> list[tuple[str, str, int]]:
    """The ops that ran on the host because their engine lacks them, as (op, device, calls).

    Returns:
        One tuple for each op and device, in the order of their names; empty if every op ran on its device.

    Example:
        >>> import firebrick as fb
        >>> y = fb.exp(fb.ones(2))
        >>> any(op == "exp" for op, device, calls in fb.explain_fallbacks())
        False
    """
    return [(op, device, n) for (op, device), n in sorted(_fallbacks.items())]


def forget_fallbacks() -> None:
    """Empty the list, so that each op warns again."""
    _fallbacks.clear()
