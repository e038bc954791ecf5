"""Which bits ``cpu`` gives for compiled programs: written to a file before a change, and compared after it.

Programs are every op of the table at every sample and dtype, each with its gradients, both compiled by default and with
kernels of any size; and random programs of ``differential``, likewise. A line of the file is a program's name and a hash of
its results.

    PYTHONPATH=tests/shared python -m bits write before.txt
    PYTHONPATH=tests/shared python -m bits write after.txt
    PYTHONPATH=tests/shared python -m bits compare before.txt after.txt
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from differential.drawing import draw
from differential.program import Program
from differential.running import Way
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, cases
from firebrick.testing.gradients import has_gradient, vjp

BLOCK = 50
"""Random programs of one task."""


def _hash(arrays: list[Any]) -> str:
    digest = hashlib.sha256()
    for a in arrays:
        digest.update(f"{a.dtype} {a.shape}".encode() + np.ascontiguousarray(a).tobytes())
    return digest.hexdigest()[:16]


def _guarded(run: Callable[[], list[Any]]) -> str:
    try:
        return _hash(run())
    except Exception as e:  # noqa: BLE001 - a refusal is a result like any other
        return type(e).__name__


def _arrays(way: Way, program: Program) -> list[Any]:
    return list(way(program).arrays)


def _of_op(name: str) -> list[str]:
    """Lines of one op."""
    lines = []
    for case in cases("cpu", [name], modes=["jit"]):
        op, params = case.op, case.sample.params
        operands = [fb.asarray(x) for x in case.sample.inputs]

        def forward(*xs: Any, op: Any = op, params: Any = params) -> Any:
            return op(*xs, **params)

        def values(fn: Callable[..., Any], *xs: Any) -> list[Any]:
            out = fb.jit(fn)(*xs)
            return [t.numpy() for t in (out if isinstance(out, tuple) else (out,))]

        lines.append(f"{case.name} {_guarded(partial(values, forward, *operands))}")
        if has_gradient(op, case.sample):
            places = [i for i, t in enumerate(operands) if t.dtype.is_inexact]

            def pulled(*floats: Any, places: Any = places, operands: Any = operands, forward: Any = forward) -> Any:
                full = list(operands)
                for i, t in zip(places, floats, strict=True):
                    full[i] = t

                def first(*inner: Any) -> Any:
                    whole = list(full)
                    for i, t in zip(places, inner, strict=True):
                        whole[i] = t
                    out = forward(*whole)
                    return next(o for o in out if o.dtype.is_inexact) if isinstance(out, tuple) else out

                y, pull = vjp(first, *floats)
                return pull(y)

            floats = [operands[i] for i in places]
            lines.append(f"{case.name} gradient {_guarded(partial(values, pulled, *floats))}")
    return lines


def _task(task: tuple[str, Any]) -> list[str]:
    kind, of = task
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for forced in (False, True):
            with kernels_of_any_size() if forced else nullcontext():
                if kind == "op":
                    found = _of_op(of)
                else:
                    found = []
                    for seed in range(of, of + BLOCK):
                        for gradients in (False, True):
                            program = draw(seed, gradients)
                            way = Way("cpu", "forced" if forced else "jit", gradients)
                            found.append(f"program {seed} {way} {_guarded(partial(_arrays, way, program))}")
            lines += [f"{'any size' if forced else 'default'} {line}" for line in found]
    return lines


@click.group()
def main() -> None:
    """Bits of compiled programs."""


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--programs", default=1000, show_default=True, help="Random programs.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True)
def write(file: Path, programs: int, jobs: int) -> None:
    """Run all programs and write the hashes of their results."""
    tasks: list[tuple[str, Any]] = [("op", name) for name in OPS if name not in EXCLUDED]
    tasks += [("programs", seed) for seed in range(0, programs, BLOCK)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        lines = [line for found in pool.map(_task, tasks) for line in found]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    click.echo(f"{len(lines)} programs")


def _read(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, found = line.rpartition(" ")
        yield name, found


@main.command()
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """List the programs whose results differ."""
    old, new = dict(_read(before)), dict(_read(after))
    differing = [name for name, found in new.items() if old.get(name) != found]
    for name in differing:
        click.echo(f"{name}: {old.get(name, 'missing')} -> {new[name]}")
    missing = old.keys() - new.keys()
    click.echo(f"{len(differing)} of {len(new)} programs differ, {len(missing)} are missing")
    raise SystemExit(bool(differing or missing))


if __name__ == "__main__":
    main()
