"""``export``: a function as a folder for a web page: WGSL kernels, a plan in JSON, weights, and the JavaScript that runs them.

======================  =================================================================
file                    content
======================  =================================================================
program.json            the plan: inputs, outputs, buffers, kernels, launches, and the steps that run them
kernels/*.wgsl          the kernels, of the base limits of the WebGPU specification
weights.safetensors     what the function captures, and the constants of the program
selftest.safetensors    inputs, and the results of the ``numpy`` engine, which a page compares
firebrick.js            the runtime, an ES module without dependencies
index.html, …           the page
======================  =================================================================
"""

from __future__ import annotations

import html
import inspect
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from firebrick.backends.registry import find_device
from firebrick.backends.webgpu.web_plan import web_plan
from firebrick.backends.webgpu.web_program import WebCond, WebCopy, WebLaunch, WebPlan, WebScan, WebStep
from firebrick.compiler.spec.faults import Site
from firebrick.core.dtypes import dtype
from firebrick.core.errors import ConfigError, DTypeError, FirebrickError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.core.version import __version__
from firebrick.graph.standalone import Standalone, standalone
from firebrick.ir import Graph
from firebrick.nn import Module
from firebrick.ops.linalg import REMEDIES

FORMAT = 3
"""Of ``program.json``."""
TOLERANCES = {"float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2}
"""How far results of the self-test may be from the reference, relative to the largest of them, by dtype; others are equal.
Rounding of float32 is far below it, and a driver that computes wrongly is far above it as a rule. Results of half precision
may be rounded to the neighbour of the reference's, so for these it is four units in the last place."""
DTYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float16", "bfloat16",
)  # fmt: skip
"""The dtypes that inputs, outputs and weights of a page have."""
PAGES = {"plain": ("plain.js",), "digits": ("digits.js",)}
"""The pages, by name, and their files besides ``firebrick.js``, ``style.css`` and ``index.html``."""
DIGITS = ("classes", "image_size", "pixel_max", "mean", "std")
"""The facts that the page of digits needs."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: Where.
        kernels: Number of different kernels.
        launches: Number of launches; those of a loop are counted once.
        weight_bytes: Bytes of the weights' file.
        buffer_bytes: Bytes of the GPU's memory that the program uses.

    Example:
        >>> import tempfile
        >>> import firebrick as fb
        >>> from firebrick.interop import web
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = web.export(lambda x: fb.softmax(x), [fb.ones((2, 3))], folder)
        >>> found.kernels, found.launches, found.buffer_bytes
        (1, 1, 48)
    """

    folder: Path
    kernels: int
    launches: int
    weight_bytes: int
    buffer_bytes: int


def export(
    function: Callable[..., Any], inputs: Sequence[Tensor], folder: str | os.PathLike[str], *, name: str = "",
    page: str = "plain", facts: Mapping[str, Any] | None = None,
) -> Exported:  # fmt: skip
    """Write a function as a folder that a web server can serve: a program that pages run on WebGPU, and a page.

    The function is traced for the shapes and dtypes of ``inputs``; what it captures, such as the weights of a model, is
    written with it. No adapter is needed: kernels keep to the default limits of WebGPU, and to what every driver computes
    alike. The values of ``inputs`` and the function's results are written too, and pages compare them with what their GPU
    computes before they show anything else. Serve the folder by HTTP (``python -m http.server``): browsers load no modules
    from files.

    Args:
        function: A model in ``eval`` mode, or a function of tensors, without state and random numbers. It returns a tensor,
            or lists, tuples and dicts of tensors.
        inputs: Its arguments, for the shapes that the page computes and for its self-test: real data or random numbers show
            more than zeros do.
        folder: A folder that is new or empty.
        name: What it is called; the function's name by default.
        page: ``plain``, which shows the program and runs its self-test, or ``digits``, on which visitors draw a digit.
        facts: What the page is to know, as JSON. For ``digits``: ``classes``, ``image_size``, ``pixel_max``, ``mean``,
            ``std``, and ``examples``, dicts with ``label`` and ``pixels``.

    Returns:
        What was written.

    Raises:
        TraceError: The function changes state, draws random numbers, or cannot be traced.
        UnsupportedError: An operation has no kernel for pages, or needs more than the default limits; all are listed.
        DTypeError: An input, output or weight has a dtype that pages do not have.
        ConfigError: The folder is not empty, there is no such page, or it needs other facts or such as are JSON.
        OperandError: An input or a result is no tensor, or two results have one name.
        ShapeError: The page of digits cannot be of this program.

    Example:
        >>> import json, tempfile
        >>> import firebrick as fb
        >>> from firebrick.interop import web
        >>> model = fb.nn.Sequential(fb.nn.Linear(4, 8), fb.nn.ReLU(), fb.nn.Linear(8, 2)).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = web.export(model, [fb.ones((1, 4))], folder, name="small")
        ...     plan = json.loads((found.folder / "program.json").read_text())
        >>> found.launches, plan["outputs"][0]["shape"], [w["name"] for w in plan["weights"]["tensors"]][:2]
        (2, [1, 2], ['layers.0.weight', 'layers.0.bias'])
    """
    if page not in PAGES:
        raise ConfigError(f"a page is one of {', '.join(PAGES)}", repr(page), "choose one of these")
    goal = _free(Path(folder))
    if isinstance(function, Module):
        function.named_parameters()  # which gives them their paths as labels, by which errors and files name them
    program = standalone(function, inputs)
    plan = web_plan(program.graph)
    title = name or str(getattr(function, "__name__", type(function).__name__))
    content = _Content(program, plan, inputs, _names_of(function, len(inputs)))
    if page == "digits":
        _check_digits(program, inputs, facts or {})
    written = content.files(title) | _page(page, title, facts or {})
    _write(goal, written)
    size = len(written["weights.safetensors"])
    return Exported(goal, len(plan.kernels), len(plan.launches), size, sum(plan.buffers))


@dataclass
class _Content:
    """The content of a program's files."""

    program: Standalone
    plan: WebPlan
    given: Sequence[Tensor]
    names: Sequence[str]

    def files(self, title: str) -> dict[str, bytes]:
        """The files by name."""
        program, plan = self.program, self.plan
        graph, outputs = program.graph, dict(zip(program.graph.outputs, plan.outputs, strict=True))
        outputs |= dict(enumerate(plan.inputs))
        inputs = []
        for k, (x, i) in enumerate(zip(self.given, program.arguments, strict=True)):
            buffer = plan.inputs[i] if i is not None else self._spare(x)
            inputs.append(_tensor(self.names[k], x.dtype.name, x.shape) | {"buffer": buffer})
        results = []
        for path, v in program.results:
            aval = graph.avals[v]
            results.append(_tensor(path, aval.dtype.name, aval.shape) | {"buffer": outputs[v]})
        captured = {f"{title or 'value'}": (i, t.numpy()) for i, (title, t) in program.captured.items()}
        if len(captured) != len(program.captured):  # two of one name
            captured = {f"{i}.{title}": (i, t.numpy()) for i, (title, t) in program.captured.items()}
        stored = {label: (plan.inputs[i], x) for label, (i, x) in captured.items()}
        for k, (buffer, value) in enumerate(plan.constants.items()):
            label = f"constant.{k}"
            while label in stored:
                label = f"_{label}"
            stored[label] = buffer, value
        weights = [_tensor(label, x.dtype.name, x.shape) | {"buffer": b} for label, (b, x) in stored.items()]
        kernels = {f"kernels/{k:03}.wgsl": s.text.encode() for k, s in enumerate(plan.kernels)}
        files = kernels | {
            "weights.safetensors": _safetensors({label: x for label, (_, x) in stored.items()}),
            "selftest.safetensors": _safetensors(self._selftest()),
        }
        described = {
            "format": FORMAT,
            "firebrick": __version__,
            "name": title,
            "inputs": inputs,
            "outputs": results,
            "limits": self._limits(),
            "buffers": plan.buffers,
            "weights": _hashed("weights.safetensors", files) | {"tensors": weights},
            "selftest": _hashed("selftest.safetensors", files)
            | {"tolerances": {x["name"]: TOLERANCES.get(x["dtype"], 0.0) for x in results}},
            "kernels": [
                _hashed(file, files) | {"bindings": ["read" if r else "read_write" for r in s.reads], "checks": s.checks}
                for file, s in zip(kernels, plan.kernels, strict=True)
            ],
            "launches": [
                {"kernel": x.kernel, "name": x.name, "bindings": x.bindings, "words": x.words, "workgroups": x.workgroups}
                for x in plan.launches
            ],
            "steps": _steps(plan.steps, itertools.count()),
            "checks": [_check(e) | {"buffer": outputs[v], "bytes": graph.avals[v].nbytes} for v, e in program.checks],
            "faults": [
                {"op": s.op, "size": int(s.size)}
                if isinstance(s, Site)
                else {"op": s.op, "want": s.want, "remedy": REMEDIES[s.want], "stack": s.stack}
                for s in plan.sites
            ],
        }
        return files | {"program.json": _json(described)}

    def _spare(self, x: Tensor) -> int:
        """A buffer for an argument that the program does not use."""
        self.plan.buffers.append(-(-max(x.aval.nbytes, 4) // 4) * 4)
        return len(self.plan.buffers) - 1

    def _limits(self) -> dict[str, int]:
        """What the program needs of a GPU, by WebGPU's names; each is at most its default."""
        sizes = [size for x in self.plan.launches for _, _, size in x.bindings]
        return {
            "maxStorageBufferBindingSize": max(sizes, default=4),
            "maxBufferSize": max(self.plan.buffers, default=4),
            "maxStorageBuffersPerShaderStage": max((len(s.reads) + s.checks for s in self.plan.kernels), default=0),
        }

    def _selftest(self) -> dict[str, Array]:
        """The arguments, and the results of the reference engine."""
        graph, values = self.program.graph, dict[int, Array]()
        for x, i in zip(self.given, self.program.arguments, strict=True):
            if i is not None:
                values[i] = x.numpy()
        values |= {i: t.numpy() for i, (_, t) in self.program.captured.items()}
        values |= zip(graph.outputs, _computed(graph, [values[i] for i in range(len(graph.inputs))]), strict=True)
        for v, error in self.program.checks:
            if not values[v].all():
                raise error
        found = {f"input.{name}": x.numpy() for name, x in zip(self.names, self.given, strict=True)}
        return found | {f"output.{path}": values[v] for path, v in self.program.results}


def _computed(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a graph by the reference engine."""
    device = find_device("numpy")
    engine = device.backend
    found = engine.compile(graph, device)([engine.from_host(x, device) for x in inputs])
    return [np.array(engine.to_host(x)) for x in found]


def _names_of(function: Callable[..., Any], count: int) -> list[str]:
    """The names of a function's first parameters; ``input``, or ``input0``, ``input1``, … for those without one."""
    try:
        found = list(inspect.signature(function.forward if isinstance(function, Module) else function).parameters.values())
    except (TypeError, ValueError):
        found = []
    names = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    for k in range(len(names), count):
        made = "input" if count == 1 else f"input{k}"
        while made in names:  # a parameter of the function may have this name
            made = f"_{made}"
        names.append(made)
    return names


def _tensor(name: str, of: str, shape: Sequence[int]) -> dict[str, Any]:
    if of not in DTYPES:
        raise DTypeError(f"tensors of a page have a dtype of {', '.join(DTYPES)}", f"{name}: {of}", "cast it first")
    return {"name": name, "dtype": of, "shape": list(shape)}


def _safetensors(arrays: Mapping[str, Array]) -> bytes:
    for name, x in arrays.items():
        _tensor(name, dtype(x.dtype).name, x.shape)
    return safetensors.numpy.save({name: np.ascontiguousarray(x).reshape(x.shape) for name, x in arrays.items()})


def _check(error: Exception) -> dict[str, str]:
    """What a condition on the arguments' values expects, without what is of this process."""
    if isinstance(error, FirebrickError):
        return {"expected": error.expected, "remedy": error.remedy}
    return {"expected": str(error).splitlines()[0], "remedy": ""}


def _steps(steps: Sequence[WebStep], numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Steps as JSON. ``numbers`` are those of their launches, which ``WebPlan.launches`` has in the same order; launches one
    after the other are one item."""
    found: list[dict[str, Any]] = []
    for s in steps:
        if isinstance(s, WebLaunch):
            number = next(numbers)
            if found and "launches" in found[-1] and found[-1]["launches"][1] == number:
                found[-1]["launches"][1] = number + 1
            else:
                found.append({"launches": [number, number + 1]})
        elif isinstance(s, WebCopy):
            found.append({"copy": [s.source, s.goal, s.nbytes], "strides": [s.source_stride, s.goal_stride]})
        elif isinstance(s, WebScan):
            found.append({"times": s.times, "reverse": s.reverse, "steps": _steps(s.steps, numbers)})
        elif isinstance(s, WebCond):
            found.append({"if": s.condition, "then": _steps(s.steps, numbers), "else": _steps(s.otherwise, numbers)})
        else:
            found.append({"while": s.condition, "steps": _steps(s.steps, numbers)})
    return found


def _hashed(file: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {"file": file, "bytes": len(files[file]), "sha256": sha256(files[file]).hexdigest()}


def _json(value: Any) -> bytes:
    """JSON with a line for each item of the outer lists, so that people can read it."""
    parts = []
    for key, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], dict):
            rows = ",\n    ".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in item)
            parts.append(f"  {json.dumps(key)}: [\n    {rows}\n  ]")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(item, ensure_ascii=False, allow_nan=False)}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _page(page: str, title: str, facts: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a page."""
    source = files("firebrick.interop.web") / "page"
    found = {name: (source / name).read_bytes() for name in ("firebrick.js", "style.css", *PAGES[page])}
    text = (source / f"{page}.html").read_text(encoding="utf-8").replace("{{title}}", html.escape(title))
    try:
        known = _json(dict(facts))
    except (TypeError, ValueError) as e:
        raise ConfigError("the facts of a page are JSON", str(e), "pass a dict of Python values") from e
    return found | {"index.html": text.encode(), "page.json": known}


def _check_digits(program: Standalone, inputs: Sequence[Tensor], facts: Mapping[str, Any]) -> None:
    """Refuse what the page of digits cannot work with."""
    missing = [key for key in DIGITS if key not in facts]
    if missing:
        raise ConfigError(
            f"the facts of a page of digits are {', '.join(DIGITS)}", f"none for {', '.join(missing)}", "pass them"
        )
    size, classes = facts["image_size"], len(facts["classes"])
    want = [f"float32[1,1,{size},{size}]"], [f"float32[1,{classes}]"]
    avals = program.graph.avals
    found = [str(x.aval) for x in inputs], [str(avals[v]) for _, v in program.results]
    if found != want:
        raise ShapeError(
            f"the program of a page of digits takes {want[0][0]} and returns {want[1][0]}",
            f"{', '.join(found[0])} and {', '.join(found[1])}", "export one picture at a time, or use the page plain",
        )  # fmt: skip


# folders


def _free(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            "a page is written to a new or empty folder", f"{folder}, which is {'not empty' if folder.is_dir() else 'a file'}",
            "name another one, or remove it",
        )  # fmt: skip
    file = next((p for p in folder.absolute().parents if p.exists() and not p.is_dir()), None)
    if file is not None:
        raise ConfigError("a page is written to a new or empty folder", f"{folder}, but {file} is a file", "name another one")
    return folder


def _write(folder: Path, content: Mapping[str, bytes]) -> None:
    """Write files beside the folder, which appears with all of them or not at all."""
    whole = Path(os.path.realpath(folder))  # of a link, the folder that it leads to
    whole.parent.mkdir(parents=True, exist_ok=True)
    beside = whole.with_name(f".{whole.name}.writing-{secrets.token_hex(4)}")
    try:
        for name, data in content.items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).write_bytes(data)
        if whole.exists():
            whole.rmdir()
        os.replace(beside, whole)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
