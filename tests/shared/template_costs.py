"""What the templates cost on GPUs: registers, shared memory and spills, and the instructions of the innermost loop.

``PYTHONPATH=src:tests/shared python -m template_costs`` prints the table, by ``ptxas -v`` for NVIDIA's and by the metadata of
the objects for AMD's GPUs.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from assembling import AMD, EVERY_NVIDIA, ptxas
from kept_results import kept, kept_assembly, version_of

from firebrick.compiler.kernel import Function
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.templates import (
    Template,
    attention,
    convolution,
    deltas,
    digit_counts,
    digit_scatter,
    input_gradient,
    key_gradients,
    product,
    query_gradient,
    row_reduction,
    scan,
    segmented_scatter,
    weight_gradient,
    window,
    with_operands,
)
from firebrick.compiler.templates.epilogues import add, larger
from firebrick.core.dtypes import float32

TILES = {"group_size": 256, "tile_m": 128, "tile_n": 128, "tile_k": 8, "rows": 8, "columns": 8, "of": float32}
GEOMETRY = {"kernel": 3, "stride": 1, "padding": 1, "dilation": 1}
GEOMETRY = {f"{what}_{axis}": n for what, n in GEOMETRY.items() for axis in "hw"}
HEADS = {"group_size": 128, "tile_m": 64, "tile_n": 32, "features": 64, "vector": 4, "causal": False, "of": float32}
DIGIT = {"group_size": 256, "each": 8, "shift": 4}
TARGETS = EVERY_NVIDIA | AMD


@HelperFunction
def rectified(value: Any, bias: Any, residual: Any) -> Any:
    """The epilogue of a layer with a shortcut."""
    return max(value + bias, 0.0) + residual


@dataclass(frozen=True)
class Variant:
    """A template with its constants, as a GPU would run it."""

    template: Callable[[], Template]
    constants: dict[str, Any]
    dtypes: dict[str, str]

    @property
    def function(self) -> Function:
        """Its kernel IR."""
        return self.template().function(self.dtypes, **self.constants)


@dataclass(frozen=True)
class Cost:
    """What a kernel needs of a GPU: 32-bit registers of a thread, bytes of shared memory, bytes that are spilled."""

    registers: int
    shared: int
    spilled: int


VARIANTS = {
    "row reduction": Variant(
        lambda: row_reduction(add, 0.0), {"group_size": 256, "lanes": 256, "vector": 4, "of": float32}, {"x": "float32"}
    ),
    "product": Variant(product, TILES | {"vector": 4}, {"x": "float32", "y": "float32"}),
    "product, bias, relu and residual": Variant(
        lambda: product(
            epilogue=with_operands(rectified, bias="n_vectors, vector", residual="batch, m, n_vectors, vector")
        ),
        TILES | {"vector": 4}, dict.fromkeys(("x", "y", "bias", "residual"), "float32"),
    ),
    "convolution": Variant(convolution, TILES | GEOMETRY, {"x": "float32"}),
    "convolution, bias, relu and residual": Variant(
        lambda: convolution(epilogue=with_operands(rectified, bias="outputs", residual="batch, outputs, positions")),
        TILES | GEOMETRY, dict.fromkeys(("x", "bias", "residual"), "float32"),
    ),
    "gradient of a convolution by its input": Variant(input_gradient, TILES | GEOMETRY, {"cotangent": "float32"}),
    "gradient of a convolution by its weight": Variant(
        weight_gradient, TILES | GEOMETRY | {"splits": 8}, {"cotangent": "float32"}
    ),
    "attention": Variant(attention, HEADS, {"query": "float32", "scale": "float32"}),
    "gradient of attention by the query": Variant(
        query_gradient, HEADS | {"tile_m": 32}, {"query": "float32", "scale": "float32"}
    ),
    "gradients of attention by key and value": Variant(
        key_gradients, HEADS | {"tile_m": 32}, {"query": "float32", "scale": "float32"}
    ),
    "sums of cotangent times result": Variant(
        deltas, {"group_size": 256, "vector": 4, "causal": False, "of": float32}, {"query": "float32", "scale": "float32"}
    ),
    "segmented scatter": Variant(
        lambda: segmented_scatter(add, 0.0), {"group_size": 256, "across": 32, "of": float32}, {"target": "float32"}
    ),
    "window": Variant(lambda: window(larger, -inf), GEOMETRY | {"group_size": 256, "of": float32}, {"x": "float32"}),
    "counts of digits": Variant(digit_counts, DIGIT, {}),
    "scatter by digits": Variant(digit_scatter, DIGIT, {}),
    "scan": Variant(
        lambda: scan(add, 0.0), {"group_size": 256, "vector": 4, "exclusive": False, "of": float32}, {"x": "float32"}
    ),
}  # fmt: skip


@lru_cache(maxsize=256)
def assembly(name: str, cpu: str) -> str:
    """The code of a variant, for arrays that are aligned to 16 bytes."""
    target = TARGETS[cpu]
    text = gpu_module([VARIANTS[name].function], target, 16)
    return kept_assembly(text, target)


@lru_cache(maxsize=256)
def cost(name: str, cpu: str) -> Cost:
    """What a variant needs of a GPU."""
    text = assembly(name, cpu)
    if cpu in EVERY_NVIDIA:
        said = _assembled(text, TARGETS[cpu])
        find = [r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes spill stores"]
    else:
        said = text
        find = [r"\.vgpr_count:\s*(\d+)", r"\.group_segment_fixed_size:\s*(\d+)", r"\.private_segment_fixed_size:\s*(\d+)"]
    return Cost(*(int(m[1]) if (m := re.search(f, said)) else 0 for f in find))


def _assembled(text: str, target: Target) -> str:
    tool, options = ptxas(), ["-v", "--gpu-name", target.cpu]

    def run() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "module.ptx"
            source.write_text(text)
            command = [tool, *options, "-o", str(source.with_suffix(".cubin")), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ptxas for {target.cpu}: {done.stdout}{done.stderr}"
        return (done.stdout + done.stderr).encode()

    return kept(("what ptxas says", version_of(tool), options, text), run).decode()


def innermost(name: str, cpu: str) -> Counter[str]:
    """The instructions of the block of a variant's code that has most multiply-adds."""
    blocks: list[Counter[str]] = [Counter()]
    for line in assembly(name, cpu).splitlines():
        if re.match(r"\S+:", line):
            blocks.append(Counter())
        else:  # an AMD instruction may have two halves
            blocks[-1].update(re.findall(r"(?:^\s+(?:@!?%p\d+\s+)?|:: )([a-z][\w.]*)\s", line))
    return max(blocks, key=fused)


def fused(instructions: Counter[str]) -> int:
    """The number of multiply-adds among instructions."""
    return sum(n for name, n in instructions.items() if re.match(r"fma\.rn\.f32|v_(dual_)?fma(c|mk|ak)?_f32", name))


def table() -> str:
    """The costs of all variants: registers on each GPU, then what is most on any of them."""
    lines = [
        f"| template | {' | '.join(TARGETS)} | shared | spilled | multiply-adds |",
        f"| --- |{' --: |' * (len(TARGETS) + 3)}",
    ]
    for name in VARIANTS:
        found = [cost(name, cpu) for cpu in TARGETS]
        inner = [innermost(name, cpu) for cpu in TARGETS]
        tiled = min(map(fused, inner)) >= 64
        text = f"{min(fused(x) / x.total() for x in inner):.0%}" if tiled else ""
        cells = [*(c.registers for c in found), max(c.shared for c in found), max(c.spilled for c in found), text]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
