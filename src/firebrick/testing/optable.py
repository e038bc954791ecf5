"""The page of all ops, written from the op table: what each is, its gradient, and how each engine runs it.

``python -m firebrick.testing.optable FILE`` writes it where all engines are installed; the tests hold the file against the
table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from firebrick.backends.contract import ARITHMETIC, STORAGE
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Nondifferentiable, Op
from firebrick.ops import OPS
from firebrick.testing.cases import avals_of, samples_of
from firebrick.testing.engines import engines

_HEAD = """# Ops and engines

<!-- Written by `make docs`; do not edit. -->

All primitive operations. Every other function is a composition of these. Each is one entry: a reference in NumPy, a rule
for shapes and dtypes, a gradient rule or the reason for none, test samples, a cost and a tolerance.
[Accuracy](accuracy.md) has the errors measured.

In the column `forward`: **rule**, forward mode computes the tangent of the result from those of the operands; **gradient
rule**, it differentiates that rule once more; **zero**, there is no derivative.

In the column `vmap`: **rule**, the op computes all examples at once; **loop**, it runs once for each, with a warning.

In an engine's column: **all**, it has a kernel for every dtype that the op takes and the engine stores; *dtypes*, these it
stores and computes with in a wider dtype, rounding once (ops that only move elements leave them as they are);
**decomposed**, it runs as other ops; **host**, it runs on the host, with a warning.
"""


def _operands(op: Op) -> str:
    return ", ".join(f"{'*' if o.variadic else ''}{o.name}: {o.kind}" for o in op.operands)


def support(op: Op, device: Device) -> str:
    """How a device runs an op, by the first sample of each dtype."""
    engine = device.backend
    missing, wider = [], []
    for name in op.dtypes:
        dt = as_dtype(name)
        if STORAGE not in engine.dtype_usage(device, dt):
            continue
        avals = avals_of(op, samples_of(op, name, 0)[0])[0]
        if not engine.supports(op, tuple(a.dtype for a in avals)):
            missing.append(name)
        elif ARITHMETIC not in engine.dtype_usage(device, dt) and dt.is_inexact:
            wider.append(name)
    if missing:
        return f"{'decomposed' if op.decompose else 'host'}: {', '.join(missing)}"
    return "all" + (f"; *{', '.join(wider)}*" if wider else "")


def batching(op: Op) -> str:
    """How ``vmap`` runs an op."""
    return "loop" if op.batch is None else "rule"


def forward(op: Op) -> str:
    """How tangents go through an op."""
    if not op.differentiable:
        return "zero"
    return "gradient rule" if op.jvp is None else "rule"


def page() -> str:
    """The page as Markdown."""
    homes = {name: find_device(name) for name in engines().usable}
    lines = [_HEAD]
    families = dict.fromkeys(op.reference.__module__ for op in OPS.values())
    lines.append(f"{len(OPS)} ops in {len(families)} families.\n")
    for module in families:
        rows = [op for op in OPS.values() if op.reference.__module__ == module]
        family = module.rsplit(".", 1)[-1]
        lines += [f"## {'FFT' if family == 'fft' else family.capitalize()}", ""]
        engine_columns = " | ".join(f"`{n}`" for n in homes)
        lines.append(f"| op | what it computes | operands | gradient | forward | vmap | bound | {engine_columns} |")
        lines.append("|---" * (7 + len(homes)) + "|")
        for op in rows:
            gradient = f"none: {op.vjp.reason}" if isinstance(op.vjp, Nondifferentiable) else "yes"
            what = " ".join(op.doc.split("\n\n")[0].split()).replace("|", "\\|")
            cells = [f"`{op.name}`", what, _operands(op), gradient, forward(op), batching(op), op.bound]
            cells += [support(op, d) for d in homes.values()]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    # the page has a column for each engine, so only an environment with all of them can write it
    if engines().missing:
        print(f"{sys.argv[1]} stays as it is: without {', '.join(engines().missing)} a column of it cannot be written")
    else:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
