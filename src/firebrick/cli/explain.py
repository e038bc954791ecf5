"""``firebrick explain``: every form that a function takes on its way to machine code."""

from __future__ import annotations

import inspect
import re
import runpy
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from firebrick.cli.reporting import reported
from firebrick.compiler.forms import FORMS
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, FirebrickError, ShapeError
from firebrick.core.operands import misfit

KERNEL_FORMS = ("ir", "code", "assembly")
"""Of functions in the kernel language."""
_INPUT = re.compile(r"(\w+)\[\s*((?:\d{1,18}\s*(?:,\s*\d{1,18}\s*)*,?)?)\s*\]")


@click.command()
@click.argument("where", metavar="FILE:FUNCTION")
@click.option("--input", "inputs", multiple=True, metavar="DTYPE[SHAPE]", help="An argument, such as float32[64,64]; in order.")
@click.option("--device", default="cpu", show_default=True, help="Whose forms to show, of a function of tensors.")
@click.option(
    "--form", "wanted", multiple=True, type=click.Choice(tuple(dict.fromkeys(FORMS + KERNEL_FORMS))),
    help="Form to show; by default graph, groups and specs, and of a kernel ir.",
)  # fmt: skip
@click.option(
    "--target", default="", help="Whose code of a kernel to show: x86_64, aarch64, sm_80, gfx90a; this machine's by default."
)
@reported
def explain(where: str, inputs: tuple[str, ...], device: str, wanted: tuple[str, ...], target: str) -> None:
    """Show what becomes of a function under jit.

    FILE:FUNCTION names a function of tensors in a Python file, which is run. Its arguments have the shapes and dtypes of
    --input; their values are zeros. Shown are the graph that is traced and simplified, the groups of nodes that become kernels,
    and the specification of each kernel; with --form also their naive forms and their code: LLVM IR, or WGSL on webgpu.

    Of a function that @fb.kernel decorates, or an operation that fb.op makes of one, shown are its kernel IR (ir), and with
    --form the LLVM IR (code) and the assembly for a --target. Its numbers are inputs such as 8 or 0.5.
    """
    from firebrick.backends.registry import find_device, use_device
    from firebrick.functions.creation import zeros
    from firebrick.graph import jit

    function = function_of(where)
    kernel = getattr(function, "kernel", function)
    forms = KERNEL_FORMS if type(kernel).__name__ == "Kernel" else FORMS
    if set(wanted) - set(forms):
        raise ConfigError(f"the forms of {where} are {', '.join(forms)}", ", ".join(wanted), "choose some of these")
    home = find_device(device)
    if forms is KERNEL_FORMS:
        if home.engine != "cpu":
            raise ConfigError(
                "the forms of a kernel are those of the cpu engine, for any --target", f"--device {device}",
                "leave it out, or name a function that calls the kernel",
            )  # fmt: skip
        click.echo(_of_kernel(kernel, inputs, wanted or KERNEL_FORMS[:1], target))
        return
    if target:
        raise ConfigError("a target is of a kernel", f"{where}, which is none", "leave out --target")
    arguments = [argument_of(text) for text in inputs]
    check_takes(function, arguments)
    with use_device(home):
        with users_code(where):
            graph = jit(function).graph(*(zeros(shape, dtype=dtype) for dtype, shape in arguments))
        click.echo(home.backend.forms(graph, wanted or FORMS[:3], home))


def _of_kernel(kernel: Any, inputs: tuple[str, ...], wanted: tuple[str, ...], target: str) -> str:
    from firebrick.backends.registry import find_device
    from firebrick.functions.creation import zeros

    arguments: list[Any] = []
    for text in inputs:
        number = _number(text)
        if number is None:
            of, shape = argument_of(text)
            arguments.append(zeros(shape, dtype=of, device="cpu"))
        else:
            arguments.append(number)
    operation, operands, params = kernel.operation(*arguments, device="cpu")
    try:
        operation.infer(*(t.aval for t in operands), **params)
    except ShapeError as e:  # as a call refuses them
        raise misfit(operation, operands, e) from None
    program = kernel.program([t.dtype for t in operands], params)
    engine: Any = find_device("cpu").backend
    return str(engine.kernel_forms(program.translated.function, wanted, target))


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def function_of(where: str, command: str = "explain") -> Callable[..., Any]:
    """The function that FILE:FUNCTION names; one under ``jit`` as it is written."""
    file, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError(
            f"{command} takes FILE:FUNCTION", where, "name a Python file and a function in it, such as model.py:step"
        )
    if not Path(file).is_file():
        raise ConfigError(f"{command} takes FILE:FUNCTION", f"{file}, which is no file", "check the path")
    with users_code(file):
        found = runpy.run_path(file).get(name)
    if not callable(found):
        raise ConfigError(f"{file} defines a function {name}", "nothing callable of that name", "check the name")
    function: Callable[..., Any] = getattr(found, "fn", found)  # a function under jit shows what it is
    return function


@contextmanager
def users_code(where: str) -> Iterator[None]:
    """A ``with`` block that runs a file or function of the user's: what it raises is one message, with the line of the file."""
    try:
        yield
    except (FirebrickError, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as e:
        file = where.rpartition(":")[0] or where
        lines = [frame for frame in traceback.extract_tb(e.__traceback__) if frame.filename == file]
        at = f"\nAt {file}, line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
        raise ConfigError(
            f"{where} runs without an error", f"{type(e).__name__}: {e}{at}", "correct it; --debug shows the full traceback"
        ) from e


def check_takes(function: Callable[..., Any], arguments: list[Any]) -> None:
    """A call with another number of arguments than the function takes is a mistake in the options, not in the file."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a callable that tells nothing of its arguments
        return
    try:
        signature.bind(*arguments)
    except TypeError as e:
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"the arguments of {name}{signature} are tensors, an --input for each", f"{len(arguments)} inputs: {e}",
            "write one --input for each argument, in order",
        ) from None  # fmt: skip


def argument_of(text: str) -> tuple[DType, tuple[int, ...]]:
    """Dtype and shape of an argument that is written DTYPE[SHAPE]."""
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise ConfigError("an input is DTYPE[SHAPE]", text, "write float32[64,64], or float32[] for one number")
    dtype, sizes = match.groups()
    return as_dtype(dtype), tuple(int(n) for n in sizes.split(",") if n.strip())
