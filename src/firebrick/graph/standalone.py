"""``standalone``: a function as a graph by itself, whose inputs are the function's arguments and the tensors that it captures.

What cannot leave the process is refused by name: state that the function changes, random numbers, callbacks. So whoever runs
the graph elsewhere computes what the function computes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from firebrick.autodiff.tape import no_grad
from firebrick.core.errors import OperandError, TraceError
from firebrick.core.tensor import Tensor
from firebrick.graph.jit import Jit
from firebrick.ir import Graph

_NO_STATE = "call eval() of the model first, and leave out caches and other state"


@dataclass(frozen=True)
class Standalone:
    """A function as a graph.

    Attributes:
        graph: The program. Its outputs are the different ones among ``results``.
        arguments: For each argument of the function, the number of its input; None for one that the graph does not use.
        captured: The inputs that the function captures, by number, with their names.
        results: The results' names, and for each the number of its value in the graph.
        checks: Values, bool, that are true unless the arguments' values are wrong: the number of each, and the error.
    """

    graph: Graph
    arguments: tuple[int | None, ...]
    captured: dict[int, tuple[str, Tensor]]
    results: tuple[tuple[str, int], ...]
    checks: tuple[tuple[int, Exception], ...] = ()


def standalone(fn: Callable[..., Any], inputs: Sequence[Tensor]) -> Standalone:
    """Trace a function without gradients.

    Args:
        fn: A function of tensors, or a module, that returns a tensor, or lists, tuples and dicts of tensors.
        inputs: Its arguments, of the shapes and dtypes that the graph is for.

    Raises:
        OperandError: An argument is no tensor, or the function returns something else than tensors.
        TraceError: It cannot be a graph, or it does more than compute results from its arguments and what it captures.
    """
    name = str(getattr(fn, "__qualname__", type(fn).__name__))
    if not callable(fn):
        raise OperandError("a program is made of a function or a module", type(fn).__name__, "pass a model, or a function")
    if isinstance(inputs, Tensor):
        raise OperandError("inputs is a list of the function's arguments", "a tensor", "pass [x]")
    for k, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise OperandError(f"inputs[{k}] is a tensor", type(x).__name__, "pass fb.asarray(…) of the shape to compute with")
    with no_grad():  # traced, not called: a call could change state
        jitted: Jit[..., Any] = Jit(_Flattened(fn, name))
        flat, walk, _ = jitted._read(tuple(inputs), {})
        entry = jitted._entry(tuple(inputs), {})
    program, given, handles = entry.program, len(flat.tensors), [*flat.tensors, *walk.tensors]
    if program.updates:
        position, handle, _ = program.updates[0]
        begun = handle is None and position >= len(handles)  # state that the first call begins, such as that of a new cache
        label = "" if begun else (handles[position] if handle is None else handle).label
        _refuse(name, f"it changes {label or 'a tensor'}", _NO_STATE)
    if program.draws:
        _refuse(name, "it draws random numbers", "call eval() of the model first, or pass the numbers in as tensors")
    if program.callbacks:
        _refuse(name, "it passes values to callbacks", "leave them out")
    at = {position: i for i, position in reversed(list(enumerate(program.positions))) if position >= 0}
    titles = program.graph.names or [""] * len(program.graph.inputs)
    captured = {i: (titles[i], handles[position]) for i, position in enumerate(program.positions) if position >= given}
    captured |= {i: (titles[i], t) for i, t in program.fixed.items()}
    results = []
    made: list[int] = []  # what the recipe makes, by the numbers that it has there
    for _, _, (plain, recipe) in entry.recipe[2]:
        path = str(plain[1])
        if recipe[0] == "new":
            kind, number, _ = program.results[recipe[1]]
            made.append(number if kind == "in" else program.graph.outputs[number])
        if recipe[0] not in ("new", "again"):
            _refuse(name, f"{path} is an argument or a captured tensor itself", "return only what is computed")
        results.append((path, made[-1] if recipe[0] == "new" else made[recipe[1]]))
        made.append(-1)  # the pair of the name and the tensor
    outputs = program.graph.outputs
    checks = {outputs[o]: check.error() for o, check in program.checks}
    return Standalone(program.graph, tuple(at.get(k) for k in range(given)), captured, tuple(results), tuple(checks.items()))


def _refuse(name: str, received: str, remedy: str) -> NoReturn:
    raise TraceError(f"{name} computes its results from its arguments and the tensors that it captures", received, remedy)


@dataclass(frozen=True)
class _Flattened:
    """A function that returns a list of the tensors among another one's results, each with its name."""

    fn: Callable[..., Any]
    name: str

    def __call__(self, *args: Any) -> list[tuple[str, Tensor]]:
        return leaves(self.fn(*args), self.name)


def leaves(result: Any, name: str) -> list[tuple[str, Tensor]]:
    """The tensors of a result with their names: ``output``, ``output.key`` of a dict, ``output.0`` of a sequence.

    Args:
        result: What a function returned.
        name: The function's name, for the error.

    Raises:
        OperandError: Something in it is neither a tensor nor a list, tuple or dict, or two tensors have one name.
    """
    found: list[tuple[str, Tensor]] = []

    def visit(path: str, v: Any) -> None:
        if isinstance(v, Tensor):
            found.append((path, v))
        elif isinstance(v, Mapping):
            for key, item in v.items():
                visit(f"{path}.{key}", item)
        elif isinstance(v, (list, tuple)):
            for k, item in enumerate(v):
                visit(f"{path}.{k}", item)
        else:
            raise OperandError(
                f"{name} returns tensors, or lists, tuples and dicts of tensors", f"{path}: {type(v).__name__}",
                "return tensors only",
            )  # fmt: skip

    visit("output", result)
    if not found:
        raise OperandError(f"{name} returns tensors", "none", "return at least one")
    paths = [path for path, _ in found]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise OperandError(f"{name} returns tensors with different names", f"two with {', '.join(twice)}", "rename the keys")
    return found
