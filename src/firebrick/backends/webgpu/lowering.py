"""Fusion groups as WGSL: a template, blocks or the naive form of a group's specification, prepared for a driver and printed.

Nothing here needs an adapter: a driver is what is known of it (``Measured``). ``groups`` runs the launches on a device,
``web_plan`` writes them down for a page.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firebrick.backends.webgpu.buffers import padded
from firebrick.backends.webgpu.probes import LONGEST, Measured
from firebrick.compiler.fusion.facts import ALONE, COLUMNS, CONTRACT, MAP, ROWS
from firebrick.compiler.fusion.policy import FusionPolicy
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.kernel.ir import For, Function, While, statements
from firebrick.compiler.naive import Buffer, Naive, naive
from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY, Builder, NaiveLaunch
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.elements import element, reduced_axes
from firebrick.compiler.spec.faults import FaultSite, sites_of
from firebrick.compiler.spec.matrix import Cholesky
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.targets.wgsl import attention_by_products, cholesky_by_blocks, rows_by_groups
from firebrick.compiler.targets.wgsl.bindings import window_bytes, windows_of
from firebrick.compiler.targets.wgsl.contraction_blocks import block_of, contraction_by_blocks
from firebrick.compiler.targets.wgsl.packed_elements import FOUR
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.quads import in_quads
from firebrick.compiler.targets.wgsl.shader import Shader, shader
from firebrick.compiler.targets.wgsl.staged_reductions import parts_of, staged
from firebrick.compiler.templates import sort_by_digits
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.op import Op
from firebrick.core.views import Digit, View
from firebrick.ir import Graph, Node
from firebrick.scalar.expr import COMPLEX, load, local
from firebrick.scalar.storage import STORAGE, computed

QUADS = 256
"""Minimum number of elements of which an item computes four."""
_QUAD_BYTES = 16
"""Bytes of a quad of the largest elements."""
ROWS_OF_QUADS = 4096
"""Minimum number of elements of the largest array of a kernel whose loops take four elements a round."""
LARGEST_MATRIX = 512
"""Maximum number of rows of a matrix that is factored, or of a triangle that is solved with: an item has a column of it."""
SITES = 1023
"""Maximum number of checks of one program."""
POLICY = FusionPolicy(
    most_nodes=64, one=0, two=0, more=0, reduced=0, shared_bytes=1 << 20, stretch=64, summed_rows=1 << 62
)  # fmt: skip
"""Every kernel pays: the alternative is the host."""
_WITH_EMPTY = ("copy", "scatter", "search")
"""Kinds of kernels, some operands of which may have no elements: they read none of them."""
_KEPT = 128
"""Maximum number of shaders that are kept."""


def kind_of(n: Node, operands: tuple[Aval, ...]) -> str:
    """How a node can be computed in kernels, one of ``facts.KINDS``; else why it cannot."""
    strange = [a.dtype.name for a in (*operands, *n.avals) if a.dtype.name not in STORAGE]
    kind = kinds.kind_of(n, operands)
    if strange and (not kind or not COMPLEX.keys() >= set(strange)):
        return f"no kernels of {strange[0]}"
    if not kind:
        return "no specification"
    if kind != "custom" and not all(a.size for a in (n.avals if kind in _WITH_EMPTY else (*operands, *n.avals))):
        return "no elements"
    if kind in ("cholesky", "triangular_solve") and operands[0].shape[-1] > LARGEST_MATRIX:
        return f"matrices of more than {LARGEST_MATRIX} rows"
    if kind not in ("map", "row"):
        return CONTRACT if kind == "contract" and _grouped(n, operands) else ALONE
    if kind == "map" and n.op.access is not None:
        return MAP
    if len(n.avals) != 1:
        return "several results"
    try:
        made = element(n, [load(i, computed(a.dtype.name)) for i, a in enumerate(operands)], operands)
    except TypeError as e:
        return str(e)
    if made.dtype != computed(n.avals[0].dtype.name):
        return f"a result of dtype {made.dtype}"
    if kind == "map":
        return MAP
    axes = reduced_axes(n, operands[0].ndim)
    return ROWS if axes == (operands[0].ndim - 1,) else COLUMNS


def checks_without_results(op: Op, operands: Sequence[Aval], params: dict[str, Any]) -> bool:
    """Whether an operation whose results have no elements may raise: for indices, or for matrices that it solves with."""
    indices = () if op.indexes is None else op.indexes(operands, params)
    return any(operands[i].size for i in indices) or (op.partial and operands[0].size > 0)


def _grouped(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether other nodes may follow a contraction in its group."""
    if n.op.facts is None:
        return True
    facts = n.op.facts(operands, n.avals, **n.params)
    return bool(facts["direction"] == FORWARD and facts["groups"] == 1)


@dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """A launch of a group.

    Attributes:
        shader: The kernel.
        arrays: For each of its arrays, the number among the group's inputs, then its results, then its temporaries.
        sizes: Bytes of each array.
        scalars: A number for each scalar.
        grid: Sizes of the grid, none of them 0.
    """

    shader: Shader
    arrays: tuple[int, ...]
    sizes: tuple[int, ...]
    scalars: tuple[int, ...]
    grid: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoweredGroup:
    """The launches of a group, one after the other.

    Attributes:
        launches: The launches.
        results: Shapes and dtypes of the group's results.
        temporaries: Of the memory that its launches share.
        sites: The checks of its kernels.
    """

    launches: tuple[LoweredLaunch, ...]
    results: tuple[Aval, ...]
    temporaries: tuple[Aval, ...]
    sites: tuple[FaultSite, ...]


def lowered(
    form: Naive, inputs: Sequence[Aval], results: Sequence[Aval], driver: Measured, sites: Sequence[FaultSite] = ()
) -> LoweredGroup:  # fmt: skip
    """The launches of a form, for a driver.

    Args:
        form: Launches in kernel IR.
        inputs: Shapes and dtypes of the group's inputs.
        results: Of its results.
        driver: What is known of the driver.
        sites: The checks of its kernels.

    Raises:
        DTypeError: A kernel needs a dtype that the driver does not have.
        UnsupportedError: A kernel needs more than the driver has.
    """
    temporaries = tuple(Aval((t.elements,), dtype(t.dtype)) for t in form.temporaries)
    bytes_of = {Buffer(INPUT, k): a.nbytes for k, a in enumerate(inputs)}
    bytes_of |= {Buffer(RESULT, k): a.nbytes for k, a in enumerate(results)}
    bytes_of |= {Buffer(TEMPORARY, k): a.nbytes for k, a in enumerate(temporaries)}
    limit = driver.capabilities.buffer_bytes
    for nbytes in bytes_of.values():
        if limit is not None and padded(nbytes) > limit:
            raise UnsupportedError(
                f"an array has at most {limit:,} bytes on this device",
                f"{nbytes:,}",
                "split the array along an axis",
            )
    if len(sites) > SITES:
        raise UnsupportedError(f"at most {SITES} checks", str(len(sites)), "")
    numbers = {b: k for k, b in enumerate(bytes_of)}
    launches = []
    for s in form.steps:
        grid, sizes = _grid(s), tuple(bytes_of[b] for b in s.buffers)
        if 0 not in grid:
            made = _shader(driver, s, grid, sizes)
            launches.append(LoweredLaunch(made, tuple(numbers[b] for b in s.buffers), sizes, tuple(s.scalars), grid))
    return LoweredGroup(tuple(launches), tuple(results), temporaries, tuple(sites))


def lowered_body(body: Graph, driver: Measured, form_of: Callable[[kinds.KernelSpec], Naive] | None = None) -> LoweredGroup:
    """The launches of a group of nodes.

    Args:
        body: The group.
        driver: What is known of the driver.
        form_of: Gives the kernels of its specification; by default ``launches_of`` does.

    Raises:
        DTypeError: A kernel needs a dtype that the driver does not have.
        UnsupportedError: The group cannot be proved, or a kernel needs more than the driver has.
    """
    spec = kinds.spec_of(body)
    reason = doubt(body, spec)
    if reason:
        raise UnsupportedError("a group of nodes is proved before it is compiled", reason, "")
    if isinstance(spec, Custom):
        _check_loops(spec.function, driver)
    form = launches_of(spec, driver) if form_of is None else form_of(spec)
    return lowered(form, body.inputs, [body.avals[v] for v in body.outputs], driver, sites_of(spec))


def lowered_view(view: View, source: Aval, result: Aval, driver: Measured) -> LoweredGroup:
    """The launch that copies a view of an array.

    Raises:
        DTypeError: The device has no float64, and so no elements of 16 bytes.
    """
    bits = {1: "uint8", 2: "uint16", 4: "uint32"}.get(result.dtype.itemsize, "uint64")  # copies move bits
    shape = result.shape
    if result.dtype.itemsize == 16:
        if driver.float64 is None:
            raise DTypeError("elements of at most 8 bytes, as WebGPU has no float64", str(result), "cast it to complex64")
        parts, shape = view.of_parts(0), (*shape, 2)
        view = View((*parts.axes, (Digit(2, 1),)), parts.offset)
    b = Builder("view", shape)
    at = b.address(b.place(view), b.positions)
    b.store(Buffer(RESULT, 0), bits, local("item", "int64"), b.read(Buffer(INPUT, 0), bits, at))
    return lowered(Naive((b.step(),)), [source], [result], driver)


def _check_loops(f: Function, driver: Measured) -> None:
    """Refuse loops of unknown length on a driver that ends long ones; the compiler's own are short."""
    limit = driver.capabilities.loop_iterations
    if limit is not None and limit < LONGEST and any(isinstance(s, While) for s in statements(f.body)):
        raise UnsupportedError(
            f"kernel {f.name}: this driver ends loops after {limit:,} iterations", "a while loop, of any length",
            "write a for loop over a known range, or run the kernel on another device", kernel=f.name,
        )  # fmt: skip


_shaders: OrderedDict[object, Shader] = OrderedDict()
_lock = threading.Lock()


def _grid(s: NaiveLaunch) -> tuple[int, ...]:
    return s.grid if isinstance(s.grid, tuple) else (s.grid,)


def _shader(driver: Measured, s: NaiveLaunch, grid: tuple[int, ...], sizes: Sequence[int]) -> Shader:
    """The shader of a launch, for its sizes or for any up to the next powers of two."""
    f = s.function
    elements = [n // max(1, dtype(a.dtype).itemsize) for n, a in zip(sizes, f.arrays, strict=True)]
    scalars = tuple((1 if a == 0 < v else a, b) for v, (a, b) in zip(s.scalars, _rounded(s.scalars), strict=True))
    rounded = scalars, _rounded([n - 1 for n in grid]), _rounded(elements)
    # bindings of whole quads may be larger than the largest buffer, whose size may be no multiple of theirs
    largest, limit = driver.capabilities.buffer_bytes, driver.capabilities.binding_bytes
    room = driver.quads and (largest is None or max(sizes) <= largest // _QUAD_BYTES * _QUAD_BYTES)
    windows = tuple(windows_of(n, limit) for n in sizes)
    bindings = driver.capabilities.buffers
    if limit is not None and bindings is not None and max(windows) > 1 and sum(windows) > bindings:
        raise UnsupportedError(
            f"kernel {f.name}: at most {bindings} bindings of at most {limit:,} bytes on this device",
            f"{sum(windows)} for arrays of {', '.join(f'{n:,}' for n in sizes)} bytes",
            "split the arrays along an axis",
        )
    quads = room and len(grid) == 1 and grid[0] >= QUADS
    capabilities = driver.capabilities_of(f)
    fours = _fours(s) if room and max(elements) >= ROWS_OF_QUADS else None
    if driver.processor and quads and in_quads(f):  # lavapipe takes 1.15 times as long to read four float16 as two words
        capabilities = replace(capabilities, float16=False)
    for numbers in (rounded, ([(v, v) for v in s.scalars], [(0, n - 1) for n in grid], [(0, n) for n in elements])):
        key = f, capabilities, quads, fours, windows, *map(tuple, numbers)
        with _lock:
            found = _shaders.get(key)
        if found is None:
            try:
                made = prepared(f, capabilities, _bounds(f, *numbers))
                window = 0 if limit is None else window_bytes(limit)
                found = shader(made, True, driver.contracts, quads, fours, windows, window, capabilities.subgroup_sizes[0])
            except (UnsupportedError, DTypeError):
                if numbers is not rounded:
                    raise
                continue
            with _lock:
                _shaders[key] = found
                while len(_shaders) > _KEPT:
                    _shaders.popitem(last=False)
        return found
    raise AssertionError("the second form of the numbers is exact")


def _fours(s: NaiveLaunch) -> tuple[str, ...] | None:
    """The scalars that are multiples of four, of a kernel with loops; None for others."""
    if not any(isinstance(x, For) for x in statements(s.function.body)):
        return None
    return tuple(p.name for p, v in zip(s.function.scalars, s.scalars, strict=True) if v and v % FOUR == 0)


def _rounded(values: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Bounds that many launches have in common: small numbers have up to 4, 8 or 12 bits."""
    bits = [(b + 3) & ~3 if b <= 12 else b for b in (int(abs(v)).bit_length() for v in values)]
    return tuple((-((1 << b) - 1) if v < 0 else 0, 0 if v < 0 else (1 << b) - 1) for v, b in zip(values, bits, strict=True))


def _bounds(f: Function, scalars: Any, grid: Any, elements: Any) -> dict[str, tuple[int, int]]:
    found = {p.name: b for p, b in zip(f.scalars, scalars, strict=True) if p.dtype not in ("float32", "float64")}
    found |= dict(zip((*f.outer, f.item), grid, strict=True))
    return found | {a.name: b for a, b in zip(f.arrays, elements, strict=True)}


def launches_of(spec: kinds.KernelSpec, driver: Measured) -> Naive:
    """The kernels of a specification on a driver: a generator's, a template's, or its naive form."""
    if isinstance(spec, Contract) and (block := block_of(spec, driver.processor)) is not None:
        return contraction_by_blocks(spec, *block)
    if isinstance(spec, Attention) and attention_by_products.pays(spec, driver.processor):
        return attention_by_products.attention_by_products(spec, driver.processor)
    if isinstance(spec, Cholesky) and cholesky_by_blocks.pays(spec):
        return cholesky_by_blocks.cholesky_by_blocks(spec)
    if isinstance(spec, Nest) and (parts := parts_of(spec)) is not None:
        return staged(spec, parts, driver.processor)
    if isinstance(spec, Nest) and not driver.processor and rows_by_groups.pays(spec):
        return rows_by_groups.rows_by_groups(spec)
    if isinstance(spec, Sort) and sort_by_digits.pays(spec):
        for sizes in sort_by_digits.SIZES:
            if (made := sort_by_digits.sort_by_digits(spec, driver.capabilities, *sizes)) is not None:
                return made
    return naive(spec, driver.capabilities.float64)
