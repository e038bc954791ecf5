"""Kernels in kernel IR as pinned programs: their code for processors, GPUs and drivers, and what the interpreter computes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from drawn_groups import draw_group
from drawn_kernels import draw
from drawn_masks import draw_masks
from drawn_sources import arguments_of, drawn_source, kernel_of
from narrow_kernels import bounds_of_launch, draw_narrow
from running_kernels import bits
from template_problems import CASES, Posed, basic
from template_problems import drawn as drawn_problem
from written_groups import GROUPS
from written_kernels import WRITTEN, Launch

import firebrick as fb
from firebrick.compiler.kernel import Function, interpret
from firebrick.compiler.kernel.intervals import Intervals
from firebrick.compiler.kernel.serialize import to_json
from firebrick.compiler.kernel.uniform import varying
from firebrick.compiler.kernel.work import work_of
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.scalar_kernel import cpu_kernel
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import shader
from firebrick.compiler.templates import Template
from firebrick.core.errors import FirebrickError
from pinned.emission import DRIVERS, GPUS, PROCESSORS, Texts, forget, refused, short

LIMITS = (None, None, Limit(1000, 9))


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the arguments of a launch.

    Attributes:
        function: Its kernel IR.
        arrays: Arrays, by name.
        scalars: Numbers, by name.
        grid: Sizes of the grid.
        number: Decides which widths and limits are taken.
    """

    function: Function
    arrays: Mapping[str, np.ndarray[Any, Any]]
    scalars: Mapping[str, Any]
    grid: tuple[int, ...]
    number: int = 0

    @property
    def launch(self) -> Launch:
        return Launch(self.function, dict(self.arrays), {}, self.grid, dict(self.scalars))


def of_launch(launch: Launch, number: int) -> Kernel:
    grid = launch.grid if isinstance(launch.grid, tuple) else (launch.grid,)
    return Kernel(launch.function, launch.arrays, launch.scalars, grid, number)


def of_source(seed: int) -> Kernel:
    """A drawn kernel in the kernel language, called once."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = kernel_of(drawn_source(seed, seed % 5 != 0, seed % 3 == 0), Path(folder) / "drawn_kernel.py")
        arguments = arguments_of(kernel, np.random.default_rng(seed))
        given = [fb.asarray(a, device="cpu") if isinstance(a, np.ndarray) else a for a in arguments]
        _, operands, params = kernel.operation(*given, device="cpu")
        program = kernel.program([t.dtype for t in operands], params)
    return of_program(program, [t.numpy() for t in operands], params["statics"], seed)


def of_program(program: Any, operands: list[np.ndarray[Any, Any]], statics: Any, number: int) -> Kernel:
    integers = dict(statics)
    given = operands[: len(program.operands)]
    sizes = program.sizes([x.shape for x in given], integers)
    results = [np.zeros(a.shape, a.dtype.np) for a in sizes.results]
    function = program.translated.function
    arrays = dict(zip([a.name for a in function.arrays], program.buffers(given, results), strict=True))
    return Kernel(function, arrays, sizes.scalars, tuple(sizes.grid), number)


def of_template(name: str, seed: int) -> Kernel:
    """A problem of a template: the basic one, one with other constants, then drawn ones that it computes."""
    case, rng = CASES[name], np.random.default_rng([seed, crc32(name.encode())])
    posed: Posed = basic(case)
    ways = [Posed(case, posed.names, posed.constants | more, {}, {}) for more in case.more][:seed]
    for _ in range(300 if seed else 0):
        found = ways.pop() if ways else drawn_problem(case, rng)
        if _computes(found):
            posed = found
            break
    avals = posed.avals()
    program = case.template.program({n: a.dtype.name for n, a in avals.items()}, **posed.constants)
    made = posed.operands(rng)
    return of_program(program, [np.asarray(made[n]) for n in program.operands], posed.integers, seed)


def _computes(posed: Posed) -> bool:
    try:
        return posed.valid()
    except ValueError:  # sizes that make no shape
        return False


FAMILIES: dict[str, Callable[[str], Kernel]] = {
    "written": lambda name: of_launch({**WRITTEN, **GROUPS}[name](), 0),
    "drawn kernel": lambda seed: of_launch(draw(int(seed)), int(seed)),
    "drawn group": lambda seed: of_launch(draw_group(int(seed)), int(seed)),
    "drawn masks": lambda seed: of_launch(draw_masks(int(seed)), int(seed)),
    "narrow kernel": lambda seed: of_launch(draw_narrow(int(seed), int(seed) % 2 > 0), int(seed)),
    "source": lambda seed: of_source(int(seed)),
    "template": lambda name: of_template(*_numbered(name)),
}
"""Families of kernels: name within the family → kernel."""


def _numbered(name: str) -> tuple[str, int]:
    first, _, seed = name.rpartition(" ")
    return first, int(seed)


def validity_lines(name: str) -> list[str]:
    """Which drawn problems a template computes: those next to a limit among them, as sizes are made of constants."""
    case, rng = CASES[name], Random(name)
    answers = []
    for seed in range(240):
        posed = drawn_problem(case, np.random.default_rng([seed, crc32(name.encode())]))
        names, constants = dict(posed.names), dict(posed.constants)
        numbers = sorted({v for v in constants.values() if type(v) is int and v > 0})
        if seed % 2:  # one constant that is not the basic one
            constants = {n: v[0] for n, v in case.constants.items()}
            changed = rng.choice(list(constants))
            constants[changed] = rng.choice(case.constants[changed])
        if seed % 3 and names:
            names[rng.choice(list(names))] = max(
                0, rng.choice(numbers) // rng.choice((1, *numbers)) + rng.choice((-1, 0, 0, 1))
            )
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Template, "_shared_bytes", lambda *args: 0)  # for which each would be translated
                answers.append("01"[Posed(case, names, constants, {}, {}, rng.choice((16, 16, 4, 8))).valid()])
        except ValueError:  # sizes that make no shape
            answers.append("-")
    return ["".join(answers[k : k + 120]) for k in range(0, len(answers), 120)]


def lane_lines(k: Kernel, processor: str, texts: Texts) -> list[str]:
    """The code with items as lanes, for one width by turns, and by the printer's choice."""
    lines = []
    for width in dict.fromkeys((0, (0, 4, 1, 8, 16, 2)[k.number % 6])):
        found = lanes_kernel(k.function, PROCESSORS[processor], width, LIMITS[k.number % 3])
        text = short("\n".join([*sorted(found.kernel.declarations), found.kernel.text]), texts)
        counted = found.units(k.grid), found.chunk(k.grid), found.kernel.scratch, found.kernel.buffers
        lines.append(f"lanes {found.lanes} cycles {found.cycles:.4g} group {found.group} {counted} {text}")
    return lines


def scalar_lines(k: Kernel, texts: Texts) -> list[str]:
    """The kernel IR; the code of one item after the other; the code for GPUs."""
    numbers = {n: int(v) for n, v in k.scalars.items() if isinstance(v, int | np.integer)}
    work = work_of(k.function, numbers, k.grid)
    lines = [f"ir {short(str(k.function), texts)} json {short(to_json(k.function))} work {short(repr(work), texts)}"]
    if not k.function.group and not k.function.outer:
        made = [cpu_kernel(k.function, PROCESSORS["avx512"], 7)]
        made.append(cpu_kernel(k.function, PROCESSORS["sse"], 7, k.scalars))
        lines += [f"scalar {x.buffers} {short(x.text, texts)}" for x in made]
    for name, gpu in GPUS.items():
        for alignment in (1, 16):
            lines.append(f"{name} {short(gpu_module([k.function], gpu, alignment, LIMITS[k.number % 3]), texts)}")
    return lines


def shader_lines(k: Kernel, driver: str, texts: Texts) -> list[str]:
    """The code for a driver, for the numbers of the launch."""
    measured = DRIVERS[driver]
    made = prepared(k.function, measured.capabilities, bounds_of_launch(k.launch))
    found = shader(made, contracts=measured.contracts)
    return [
        f"ir {short(str(made), texts)} groups {found.workgroups(k.grid)} "
        f"words {short(repr(list(map(int, found.words(tuple(k.scalars.values()), k.grid, 3)))))} {short(found.text, texts)}"
    ]


def interpreted_lines(k: Kernel, texts: Texts) -> list[str]:
    """The bits that the interpreter leaves in the arrays."""
    memory = {n: np.array(x) for n, x in k.arrays.items()}
    fault = interpret(k.function, memory, k.scalars, k.grid, checked=k.number % 2 > 0)
    found = {n: short(str(bits(x).dtype) + bits(x).tobytes().hex()) for n, x in memory.items()}
    return [f"fault {fault} arrays {' '.join(f'{n} {h}' for n, h in found.items())}"]


def facts_lines(k: Kernel, texts: Texts) -> list[str]:
    """What is proved of a kernel: the interval of each name, and the names whose values differ between items."""
    bounds = {n: b for n, b in bounds_of_launch(k.launch).items() if n not in k.arrays}
    found = Intervals(k.function, bounds)
    each = [sorted(found.whole.items()), *(sorted(now.items()) for now in found)]
    names = sorted(map(str, varying(k.function)))
    return [f"intervals {len(each)} {short(repr(each), texts)} varying {len(names)} {short(repr(names), texts)}"]


WAYS: Mapping[str, Callable[[Kernel, Texts], list[str]]] = {
    "facts": facts_lines,
    **{f"lanes {p}": lambda k, texts, p=p: lane_lines(k, p, texts) for p in ("avx512", "avx2", "neon")},
    "scalar": scalar_lines,
    **{f"shader {d}": lambda k, texts, d=d: shader_lines(k, d, texts) for d in ("page", "exact")},
    "interpreted": interpreted_lines,
}
"""How kernels are emitted, by name."""


def lines(family: str, name: str, way: str, texts: Texts) -> list[str]:
    """The lines of a kernel."""
    forget()
    kernel = FAMILIES[family](name)
    try:
        return WAYS[way](kernel, texts)
    except FirebrickError as e:
        return [refused(e)]


def candidates() -> list[str]:
    """Names of kernels to choose from."""
    found = [f"written:{n}" for n in (*WRITTEN, *GROUPS)]
    found += [f"{f}:{s}" for f in ("drawn kernel", "drawn group", "drawn masks", "narrow kernel", "source") for s in range(40)]
    return found + [f"template:{n} {s}" for n in CASES for s in range(6)]
