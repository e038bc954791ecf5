"""The table of a model's layers: output shapes from a run on the ``meta`` engine, parameters and bytes."""

from __future__ import annotations

from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.core import html
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import zeros
from firebrick.nn.module import Module, watch


class Summary(str):
    """The text of a table of layers, which notebooks show as a table.

    Attributes:
        rows: Cells of each layer, of which the last is the model: title, output shape, parameters, bytes.
        shapes: Whether there are output shapes.
    """

    rows: list[tuple[str, str, str, str]]
    shapes: bool

    def _repr_html_(self) -> str:
        """What notebooks show."""
        cells = [row if self.shapes else (row[0], *row[2:]) for row in (_HEAD, *self.rows)]
        return html.table(self.rows[-1][0], cells[0], cells[1:-1], cells[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


_HEAD = ("layer", "output", "parameters", "bytes")


def summary(model: Module, inputs: tuple[Any, ...]) -> Summary:
    """What ``Module.summary`` returns."""
    modules = model.modules()
    shapes = _shapes(model, inputs) if inputs else {}
    rows = []
    for path, m in [*modules[1:], modules[0]]:
        if path and any(p.startswith(f"{path}.") for p, _ in modules):
            continue  # a container: its parts are there
        params = m.parameters()
        title = f"{path} ({type(m).__name__})" if path else type(m).__name__
        count, size = sum(p.size for p in params), sum(p.nbytes for p in params)
        rows.append((title, shapes.get(path, ""), f"{count:,}", f"{size:,}"))
    table = [_HEAD, *rows]
    if not inputs:
        table = [(a, "", c, d) for a, _, c, d in table]
    wide = [max(len(r[i]) for r in table) for i in range(4)]
    wide[0] = max(wide[0], 20)
    lines = []
    for a, b, c, d in table:
        middle = f"  {b:<{wide[1]}}" if inputs else ""
        lines.append(f"{a:<{wide[0]}}{middle}  {c:>{wide[2]}}  {d:>{wide[3]}}".rstrip())
    made = Summary("\n".join(lines))
    made.rows, made.shapes = rows, bool(inputs)
    return made


def _shapes(model: Module, inputs: tuple[Any, ...]) -> dict[str, str]:
    """Output shape by path, from one run of a copy on ``meta``."""
    twin = model.fork("meta")
    for _, part in twin.modules():
        part._forward_hooks = ()  # they may read values, of which there are none
    paths = {id(m): path for path, m in twin.modules()}
    dtypes = [t.dtype for _, t in twin.named_parameters()]
    found: dict[str, str] = {}

    def note(module: Module, result: Any) -> None:
        path = paths.get(id(module))
        if path is not None:
            found.setdefault(path, _text(result))

    args = []
    for v in inputs:
        like = isinstance(v, Tensor)
        dtype = v.dtype if like else (dtypes[0] if dtypes else None)
        args.append(zeros(v.shape if like else tuple(v), dtype=dtype, device="meta"))
    token = watch.set(note)
    try:
        with no_grad():
            twin(*args)
    finally:
        watch.reset(token)
    return found


def _text(result: Any) -> str:
    if isinstance(result, Tensor):
        return str(list(result.shape))
    if isinstance(result, (list, tuple)):
        return ", ".join(_text(r) for r in result)
    return type(result).__name__
