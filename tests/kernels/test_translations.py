"""What statements of the kernel language become: the kernel IR of each body, its checks, and what it computes.

``translations.txt`` has each body, and all of this as text. A body computes what Python computes, which runs the same lines;
so does the composition of operations that its gradient is derived from. To add a body, write its first part, to ``--``, and
``PYTHONPATH=src:tests/shared python tests/kernels/test_translations.py``, which writes the other parts anew.
"""

from __future__ import annotations

import math
import re
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
from drawn_sources import kernel_of

import firebrick as fb
from firebrick.compiler.kernel.ir import statements
from firebrick.compiler.kernel.language.composed import composed, obstacle, pure_expression
from firebrick.scalar.expr import load, walk
from firebrick.scalar.storage import computed

TEXTS = Path(__file__).with_name("translations.txt")
CASES: list[tuple[str, str]] = []  # declaration and body of each part of it
for _part in TEXTS.read_text(encoding="utf-8").split("## ")[1:]:
    _declaration, _, _rest = _part.partition(": ")
    CASES.append((_declaration, _rest.partition("\n--\n")[0]))
HEAD = """import math
import firebrick as fb
K, F, I, D = fb.kernel, fb.float32, fb.int32, fb.float64
TWO, PAIR, YES = 2, (3, 0.5), True

@K.function
def bumped(a, at):
    a[at] = a[at] + 1.0
    return a[at]

@K.function
def sign(v, zero=0.0):
    if v > zero:
        return 1.0
    return -1.0 if v < zero else zero

@K.function
def stepped(a, at, by):
    "Assigns to its parameter."
    by = by + a[at]
    at += 1
    return by, at

@K.function
def cleared(a, at):
    a[at] = 0.0

@K.function
def first(a, at, most):
    for n in range(3):
        if a[at, n] > most:
            return F(n)
    if most > 5.0:
        return 9.0
    else:
        most = most + 1.0
    return most

@K{decorator}
def kernel({parameters}):
    i = K.{index}()
"""

# name of a declaration → decorator, the index of an item, parameters, a statement for bodies that store no result. A kernel has
# the first parameter, and those that its body names.
DECLARATIONS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "line": (
        '(grid="n")', "index",
        {"x": 'K.In[F, "n"]', "y": 'K.In[F, "n, 3"]', "k": 'K.In[I, "n"]', "s": "int", "f": "float", "c": "K.Constant[int]",
         "io": 'K.InOut[F, "n"]', "num": 'K.Out[fb.int64, "n", -1]', "out": 'K.Out[F, "n", 0]'},
        "io[i] = x[i]",
    ),
    "typed": (
        '(grid="n")', "index",
        {"h": 'K.In[fb.float16, "n"]', "d": 'K.In[D, "n"]', "b": 'K.In[bool, "n"]', "u": 'K.In[fb.uint8, "n"]',
         "j": 'K.In[fb.int64, "n"]', "z": 'K.In[F, ""]', "w": "fb.int16", "out": 'K.Out[D, "n"]',
         "low": 'K.Out[fb.float16, "n"]', "ints": 'K.Out[fb.int64, "n", -1]', "bools": 'K.Out[bool, "n", True]'},
        "out[i] = 1.0",
    ),
    "plane": (
        "", "index",
        {"x": 'K.In[F, "n"]', "y": 'K.In[F, "n, 3"]', "t": "K.In[D, 2]", "e": "int", "out": 'K.Out[F, "n, 3"]',
         "more": 'K.Out["x", "n + e - 1, 2", 7]'},
        "out[i] = 1.0",
    ),
    "group": (
        '(group=4, grid="(n + 3) // 4")', "index",
        {"x": 'K.In[F, "n"]', "k": 'K.In[I, "n"]', "out": 'K.Out[F, "n", 0]', "ints": 'K.InOut[I, "n"]'},
        "out[0] = 1.0",
    ),
    "groups": ('(group=2, grid="n, 3")', "group", {"y": 'K.In[F, "n, 3"]', "out": 'K.Out[F, "n, 3", 0]'}, ""),
    "atomic": (
        '(grid="n", deterministic=False)', "index",
        {"x": 'K.In[F, "n"]', "k": 'K.In[I, "n"]', "io": 'K.InOut[F, "n"]', "ints": 'K.InOut[I, "n"]'}, "",
    ),
    "sums": (
        '(grid="n")', "index",
        {"x": 'K.In[F, "n"]', "v": 'K.In[F, "m"]', "more": 'K.Out[F, "n + 1", 0]', "low": 'K.Out[F, "n - 1", 0]',
         "num": 'K.Out[F, "n + m", 0]', "ints": 'K.Out[F, "n + m - 2", 0]'}, "",
    ),
    "unchecked": (
        '(grid="n", unchecked=True)', "index", {"x": 'K.In[F, "n"]', "k": 'K.In[I, "n"]', "out": 'K.Out[F, "n"]'},
        "out[i] = x[k[i]]",
    ),
}  # fmt: skip
_BEFORE = HEAD.count("\n")
RESULTS = ("io", "num", "out", "low", "ints", "bools", "more")

N = 5


X, K = np.array([0.75, -1.5, 0.5, 3.0, 0.25], np.float32), np.array([1, 2, 0, 3, 4], np.int32)
SHARED = {"x": X, "y": np.arange(15, dtype=np.float32).reshape(5, 3) / 8 - 0.5, "k": K, "io": X * 2}
ARGUMENTS: dict[str, Any] = {
    **SHARED, "v": X[:3] + 1, "s": 1, "f": 1.5, "c": 3, "t": np.arange(4.0).reshape(2, 2), "e": 1, "ints": K[::-1] - 1,
    "h": np.array([0.5, -2, 1, 0.25, 3], np.float16), "d": np.array([0.1, -0.7, 2.5, 1e300, -3.0]), "b": X > 0.4,
    "u": np.array([2, 0, 3, 1, 4], np.uint8), "j": np.array([9, -7, 4, -1, 0]), "z": np.array(1.25, np.float32), "w": 3,
}  # fmt: skip


def source(declaration: str, body: str) -> str:
    """The text of a module with a kernel."""
    decorator, index, types, last = DECLARATIONS[declaration]
    if not any(re.search(rf"\b{name}\b", body) for name in RESULTS if name in types):
        body = f"{body}\n{last}"
    first = next(iter(types))
    used = f"{body} e" if "more" in body else body
    names = [n for n in types if n == first or re.search(rf"\b{n}\b", used)]
    parameters = ", ".join(f"{n}: {types[n]}" for n in names)
    text = HEAD.replace("{decorator}", decorator).replace("{parameters}", parameters).replace("{index}", index)
    return text + "".join(f"    {line}\n" for line in body.split("\n"))


class Case:
    """A body as a kernel.

    Attributes:
        program: What it is translated to, for the dtypes of its arguments.
        operands: Its arrays and numbers.
    """

    def __init__(self, declaration: str, body: str, folder: Path) -> None:
        self.declaration = declaration
        self.text = source(declaration, body)
        self.path = folder / f"body_{crc32(self.text.encode())}.py"  # the text of a file is known by its name
        kernel = kernel_of(self.text, self.path)
        given = [ARGUMENTS[n] for n in kernel.signature.given]
        given = [fb.asarray(a, device="numpy") if isinstance(a, np.ndarray) else a for a in given]
        _, self.operands, self.params = kernel.operation(*given, device="numpy")
        self.program = kernel.program([t.dtype for t in self.operands], self.params)
        self.statics = dict(self.params["statics"])

    def interpreted(self) -> list[np.ndarray[Any, Any]] | str:
        """Its results, or the first line of the error."""
        try:
            return list(self.program.interpreted([t.numpy() for t in self.operands], self.statics))
        except fb.FirebrickError as e:
            return self.relative(str(e))

    def composed(self) -> list[np.ndarray[Any, Any]]:
        """Its results by operations on whole arrays."""
        return [t.numpy() for t in composed(self.program, tuple(self.operands), self.statics)]

    def relative(self, text: str) -> str:
        """A text with lines of the kernel: line 1 is the first of the body."""
        return re.sub(rf"{re.escape(str(self.path))}:(\d+)", lambda m: f"line {int(m[1]) - _BEFORE}", text)

    def lines(self) -> list[str]:
        """All that is decided of it."""
        p = self.program
        found, function = p.translated, p.translated.function
        _, *lines = str(function).split("\n")
        access = " ".join(f"{a.name}:{a.access}" for a in function.arrays if a.access != "read")
        line = f"{access} scalars {','.join(s.name for s in function.scalars)}"
        out = [line + "".join(f" {s}" for s in function.shared), *(x[4:] for x in lines if x)]
        for k, s in enumerate(found.sites):
            out.append(f"check {k}: {s.array or 'assertion'} {s.axis} {s.size}, {self.relative(s.line)}")
        numbers = [self.relative(s.line).removeprefix("line ") for s in statements(function.body)]
        out.append(f"lines {' '.join(numbers)}")
        if found.texts:
            out.append(f"texts {sorted(set(found.texts.values()))}")
        if (held := repr(found.captures)) != "Outside({})":
            out.append(held)
        out.append(f"filled {p.filled} unset {p.unset} obstacle {self.relative(obstacle(p)) or 'none'}")
        pure = pure_expression(p)
        if pure is not None:
            e = pure(*(load(n, computed(p.dtype(name).name)) for n, name in enumerate(p.operands)))
            size = len(walk([e]))
            out.append(f"element {e if size < 20 else f'{e.op} of {size} nodes'}")
        results = self.interpreted()
        if isinstance(results, str):
            return [*out, *results.split("\n")]
        for n, x in zip(p.signature.results, results, strict=True):
            shown = (f"{v:.5g}" if isinstance(v, float) else str(v) for v in x.reshape(-1).tolist())
            out.append(f"{n} {' '.join(shown)}")
        return out


def described(declaration: str, body: str, folder: Path) -> str:
    """A part of ``translations.txt``."""
    return "\n".join([f"## {declaration}: {body}", "--", *Case(declaration, body, folder).lines()]) + "\n"


class Memory:
    """An array as kernels have it, by Python: of an index that is out of range, or negative, an element does not exist."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values, self.shape, self.ndim, self.size = values, values.shape, values.ndim, values.size

    def __len__(self) -> int:
        return len(self.values)

    def _at(self, at: Any) -> tuple[int, ...]:
        found = []
        for i in at if isinstance(at, tuple) else (at,):
            found += i if isinstance(i, tuple) else [i]
        if any(not 0 <= int(i) < n for i, n in zip(found, self.shape, strict=True)):
            raise IndexError(found)
        return tuple(map(int, found))

    def __getitem__(self, at: Any) -> Any:
        return self.values[self._at(at)].item()

    def __setitem__(self, at: Any, value: Any) -> None:
        self.values[self._at(at)] = value


class Registers(Memory):
    def __init__(self, value: Any, shape: Any) -> None:
        super().__init__(np.full(shape, value, type(value)))


def by_python(case: Case) -> list[np.ndarray[Any, Any]] | None:
    """The results of the same text, run by Python for one item after the other; None if an element does not exist."""
    item: Any = None
    library = SimpleNamespace(
        pi=math.pi, floor=math.floor, exp=math.exp, sin=math.sin, isnan=math.isnan, isinf=math.isinf, int64=int, float64=float,
        float32=float, float16=lambda v: np.float16(v).item(), where=lambda c, a, b: a if c else b, int32=int,
        astype=lambda v, to: to(v), bool=bool,
    )  # fmt: skip
    language = SimpleNamespace(
        function=lambda f: f, registers=Registers, unrolled=range, fma=lambda a, b, c: a * b + c, index=lambda *axis: (
            item[axis[0]] if axis else item if len(item) > 1 else item[0]
        ),
    )  # fmt: skip
    names: dict[str, Any] = {}
    definition = re.sub(r"^import firebrick.*\n", "", case.text, flags=re.MULTILINE)
    definition = re.sub(r"^@K\(.*\)\n|^@K\n", "", definition, flags=re.MULTILINE)
    parameters = ", ".join(case.program.signature.parameters)
    definition = re.sub(r"^def kernel\(.*\):", f"def kernel({parameters}):", definition, flags=re.MULTILINE)
    library.kernel = language
    definition = definition.replace("K, F, I, D = fb.kernel, fb.float32, fb.int32, fb.float64", "")
    names |= {"fb": library, "K": language, "F": float, "I": int, "D": float}
    exec(definition, names)
    sizes = case.program.sizes([t.shape for t in case.operands], case.statics)
    arrays = {n: copy(ARGUMENTS.get(n)) for n in case.program.signature.parameters}
    for (n, a), aval in zip(case.program.signature.results.items(), sizes.results, strict=True):
        if a.role == "Out":
            arrays[n] = np.full(aval.shape, a.initial or 0, aval.dtype.np)
    given = {n: Memory(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    try:
        with np.errstate(over="ignore"):
            for item in np.ndindex(*sizes.grid):  # noqa: B007 - `index` reads it
                names["kernel"](**given)
    except IndexError:
        return None
    return [arrays[n] for n in case.program.signature.results]


def close(found: Any, expected: Any) -> bool:
    return all(
        np.allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-3 if b.dtype == "float16" else 1e-5, equal_nan=True
        )
        for a, b in zip(found, expected, strict=True)
    )


def test_the_kernel_ir_of_each_body(tmp_path: Path) -> None:
    before = TEXTS.read_text(encoding="utf-8").split("## ")[1:]
    for (declaration, body), expected in zip(CASES, before, strict=True):
        assert described(declaration, body, tmp_path) == f"## {expected}"


OTHERWISE = "io[k[i] & 3]", "ints[i] = fb.int64(~u[i])"  # several items store one element; Python has one kind of integers
PLAIN = [c for c in CASES if c[0] in ("line", "typed", "plane") and not c[1].startswith(OTHERWISE)]


def test_a_body_computes_what_python_computes(tmp_path: Path) -> None:
    for declaration, body in PLAIN:
        case = Case(declaration, body, tmp_path)
        found, expected = case.interpreted(), by_python(case)
        if expected is None:
            assert isinstance(found, str), body
            continue
        assert not isinstance(found, str), (body, found)
        assert close(found, expected), (body, found, expected)
        if not obstacle(case.program):
            assert close(case.composed(), found), body


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        TEXTS.write_text("".join(described(*case, Path(home)) for case in CASES), encoding="utf-8")
