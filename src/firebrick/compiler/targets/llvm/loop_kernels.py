"""Kernels of ``Map``, ``Row`` and ``Fold``: the reduced axes and the memory layout determine the generator."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from firebrick.compiler.program.launch import At
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.targets.llvm.axes import reduction_stages, split
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, Lowered, LoweredKernel, at_offset
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView, item_bytes
from firebrick.compiler.targets.llvm.native import NAME, module_text, named
from firebrick.compiler.targets.llvm.row import Output, row_kernel
from firebrick.compiler.targets.llvm.row_sums import row_sum_kernels
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.views import View, row_major
from firebrick.scalar.expr import walk

MAP, ROWS, COLUMNS = "map", "rows", "columns"
FEW, LONG = 4, 1 << 15
"""Rows of at least ``LONG`` elements are reduced in parts, if there are fewer than ``FEW``."""


def in_rows(domain: Sequence[int], reduced: Sequence[int]) -> bool:
    """Whether a reduction is computed by kernels that reduce complete rows, not parts of rows."""
    last = len(domain) - 1
    if tuple(reduced) == (last,) and (prod(domain[:-1]) >= FEW or domain[last] < LONG):
        return True
    return not split(domain, reduced)


def lowered(spec: Nest, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification.

    Args:
        spec: The specification.
        inputs: The group's inputs, row-major.
        outputs: Its results, row-major.
        target: Processor to generate for.
    """
    return _NestGenerator(spec, inputs, outputs, target).lowered()


class _NestGenerator:
    def __init__(self, spec: Nest, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> None:
        self.spec, self.inputs, self.outputs, self.target = spec, inputs, outputs, target
        self.shape = spec.domain
        sources = [inputs[x.source] for x in spec.operands]
        self.operands = [BufferView(x.dtype, _strides(x.view)) for x in spec.operands]
        self.results: list[Output] = [(r.expression, BufferView(r.dtype, _strides(r.view))) for r in spec.results]
        self.buffers: list[At] = [
            at_offset(x.source, x.view.offset * item_bytes(x.dtype)) for x in spec.operands
        ]  # fmt: skip
        exprs = [r.expression for r in spec.results]
        steps = sum(e.op not in ("load", "const") for e in walk(exprs)) * prod(self.shape)
        moved = sum(min(a.nbytes, x.itemsize * prod(self.shape)) for a, x in zip(sources, self.operands, strict=True))
        moved += sum(a.nbytes for a in outputs)
        self.cost = moved / BYTES_PER_US + steps * max(a.dtype.itemsize for a in outputs) / 4 / STEPS_PER_US

    def lowered(self) -> Lowered:
        spec, shape = self.spec, self.shape
        if any(r.summed for r in spec.results):
            return self._with_sums()
        rows = in_rows(shape, spec.reduced) if spec.reduced else True
        kind = (ROWS if rows else COLUMNS) if spec.reduced else MAP
        if not rows or spec.reduced not in ((), (len(shape) - 1,)):
            return self._staged(kind)
        generate = row_kernel if spec.reduced else map_kernel
        kernel = named(generate(NAME, shape, self.operands, self.results, self.target), kind)
        part = LoweredKernel(kernel, (*self.buffers, *self._own()), self.cost, spec.sites)
        return Lowered((part,), (), module_text([kernel]), self._over())

    def _own(self) -> range:
        """Numbers of the results."""
        return range(len(self.inputs), len(self.inputs) + len(self.outputs))

    def _over(self) -> tuple[frozenset[int], ...]:
        """For each result, the inputs whose elements are read only to compute the result's element at the same position."""
        whole = row_major(self.shape).broadcast_to(self.shape)
        own = (whole,), (whole.of_parts(0), whole.of_parts(1))
        views = [(x.source, x.view) for x in self.spec.operands]
        elementwise = [
            all(view in own[x.dtype.kind == "complex"] for j, view in views if j == i) for i, x in enumerate(self.inputs)
        ]
        return tuple(
            frozenset(i for i, x in enumerate(self.inputs) if elementwise[i] and x == a and x.shape == self.shape)
            for a in self.outputs
        )

    def _with_sums(self) -> Lowered:
        """Rows, and sums over them."""
        results = self.spec.results
        first_result, count = len(self.inputs), len(results)
        of_rows = [k for k, r in enumerate(results) if not r.summed]
        of_columns = [k for k, r in enumerate(results) if r.summed]
        sums = [(results[k].expression, results[k].dtype) for k in of_columns]
        generated = row_sum_kernels(self.shape, self.operands, [self.results[k] for k in of_rows], sums, self.target)
        partial = [first_result + count + i for i in range(len(sums))]
        spare = [first_result + count + len(sums) + i for i in range(len(generated.further))]
        sum_results = [first_result + k for k in of_columns]
        kernels = [named(generated.rows, ROWS), *(named(kernel, COLUMNS) for kernel in generated.columns.kernels)]
        buffers: list[tuple[At, ...]] = [(*self.buffers, *(first_result + k for k in of_rows), *partial)]
        buffers += [(*partial, *spare), (*partial, *spare, *sum_results)] if spare else [(*partial, *sum_results)]
        costs = [self.cost, sum(generated.partial) / BYTES_PER_US, sum(generated.further) / BYTES_PER_US]
        sites = [self.spec.sites, (), ()]
        parts = [LoweredKernel(*part) for part in zip(kernels, buffers, costs, sites, strict=False)]
        over = self._over()  # empty for sums, whose shape differs from that of the inputs
        return Lowered(tuple(parts), (*generated.partial, *generated.further), module_text(kernels), over)

    def _staged(self, kind: str) -> Lowered:
        """Reductions along any axes."""
        generated = reduction_stages(self.shape, self.spec.reduced, self.operands, self.results, self.target, kind)
        first = len(self.inputs) + len(self.outputs)
        numbers = [*self.buffers, *self._own(), *range(first, first + len(generated.temporary))]
        spare = sum(generated.temporary) / BYTES_PER_US
        parts = [
            LoweredKernel(kernel, tuple(numbers[b] for b in first_result), spare if k else self.cost, self.spec.sites)
            for k, (kernel, first_result) in enumerate(generated.kernels)
        ]
        return Lowered(tuple(parts), generated.temporary, module_text([p.kernel for p in parts]), self._over())


def _strides(view: View) -> tuple[int, ...]:
    strides = view.strides
    assert strides is not None  # views of a ``Nest`` have one stride for each axis
    return strides
