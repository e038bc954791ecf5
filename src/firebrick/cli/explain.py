"""``firebrick explain``: every form that a function takes on its way to machine code."""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from firebrick.cli.reporting import reported
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError

FORMS = ("graph", "groups", "specs", "naive", "code")
_INPUT = re.compile(r"(\w+)\[\s*((?:\d{1,18}\s*(?:,\s*\d{1,18}\s*)*,?)?)\s*\]")


@click.command()
@click.argument("where", metavar="FILE:FUNCTION")
@click.option("--input", "inputs", multiple=True, metavar="DTYPE[SHAPE]", help="An argument, such as float32[64,64]; in order.")
@click.option("--device", default="cpu", show_default=True, help="Whose forms to show.")
@click.option(
    "--form", "wanted", multiple=True, type=click.Choice(FORMS), help="Form to show; graph, groups and specs by default."
)  # fmt: skip
@reported
def explain(where: str, inputs: tuple[str, ...], device: str, wanted: tuple[str, ...]) -> None:
    """Show what becomes of a function under jit.

    FILE:FUNCTION names a function of tensors in a Python file, which is run. Its arguments have the shapes and dtypes of
    --input; their values are zeros. Shown are the graph that is traced and simplified, the groups of nodes that become kernels,
    and the specification of each kernel; with --form also their naive forms and their code.
    """
    from firebrick.backends.registry import find_device, use_device
    from firebrick.functions.creation import zeros
    from firebrick.graph import jit

    function = _function(where)
    arguments = [_argument(text) for text in inputs]
    _check_takes(function, arguments)
    home = find_device(device)
    with use_device(home):
        graph = jit(function).graph(*(zeros(shape, dtype=dtype) for dtype, shape in arguments))
        click.echo(home.backend.forms(graph, wanted or FORMS[:3]))


def _function(where: str) -> Callable[..., Any]:
    file, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError(
            "explain takes FILE:FUNCTION", where, "name a Python file and a function in it, such as model.py:step"
        )
    if not Path(file).is_file():
        raise ConfigError("explain takes FILE:FUNCTION", f"{file}, which is no file", "check the path")
    found = runpy.run_path(file).get(name)
    if not callable(found):
        raise ConfigError(f"{file} defines a function {name}", "nothing callable of that name", "check the name")
    function: Callable[..., Any] = getattr(found, "fn", found)  # a function under jit shows what it is
    return function


def _check_takes(function: Callable[..., Any], arguments: list[Any]) -> None:
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


def _argument(text: str) -> tuple[DType, tuple[int, ...]]:
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise ConfigError("an input is DTYPE[SHAPE]", text, "write float32[64,64], or float32[] for one number")
    dtype, sizes = match.groups()
    return as_dtype(dtype), tuple(int(n) for n in sizes.split(",") if n.strip())
