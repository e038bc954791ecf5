"""The variants of a specification on an adapter: other blocks of products, other parts of reductions, other ways to sort.

Each is launches in kernel IR. Blocks add the same numbers in the same order, whatever their sizes, and a sort has one right
result: their bits are those of the default. The parts of a reduction are another order of combination.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from firebrick.backends.webgpu.lowering import launches_of
from firebrick.backends.webgpu.probes import Measured
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import KernelSpec
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.targets.wgsl import attention_by_products, rows_by_groups
from firebrick.compiler.targets.wgsl.contraction_blocks import (
    SECTION,
    SHAPES,
    SHARED,
    contraction_by_blocks,
    holds_block,
    shares_rows,
)
from firebrick.compiler.targets.wgsl.staged_reductions import parts_of, staged
from firebrick.compiler.templates import sort_by_digits, tiled_product
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant

SAME = "default"
"""The default's order of combination."""
_LANES = (32, 64, 256)
"""Items of a row that are tried."""
PAIRS = 1 << 28
"""Maximum comparisons of a naive sort that is tried."""


def variants(spec: KernelSpec, driver: Measured) -> list[KernelVariant]:
    """The variants of a specification; the first is the default, and those of the lowest estimated cost are tried first.

    Args:
        spec: The specification.
        driver: What is known of the adapter's driver.
    """
    found = [KernelVariant(DEFAULT, SAME, partial(launches_of, spec, driver))]
    if isinstance(spec, Contract):
        found += [*_blocks(spec), *_subgroups(spec, driver), *_tiles(spec, driver)]
    elif isinstance(spec, Attention):
        found += _attentions(spec, driver)
    elif isinstance(spec, Nest):
        found += [*_parts(spec, driver), *_rows(spec, driver)]
    elif isinstance(spec, Sort):
        found += _sorts(spec, driver)
    return found


def _when(holds: Callable[[], bool]) -> Callable[[KernelProblem], bool]:
    """``valid_for`` of a variant of the specification at hand."""
    return lambda problem: holds()


def _blocks(spec: Contract) -> list[KernelVariant]:
    return [
        KernelVariant(
            f"rows={rows} columns={columns}", SAME, partial(contraction_by_blocks, spec, rows, columns),
            _when(partial(holds_block, spec, rows, columns)), 1.0 / (rows * columns),
        )
        for rows, columns in SHAPES
    ]  # fmt: skip


def _subgroups(spec: Contract, driver: Measured) -> list[KernelVariant]:
    """Blocks whose rows the items of a subgroup share."""
    most = driver.capabilities.subgroup_sizes[0]
    if most == 1 or not shares_rows(spec):
        return []
    return [
        KernelVariant(
            f"subgroup={width} rows={rows} columns={columns}", SAME, partial(contraction_by_blocks, spec, rows, columns, width),
            _when(partial(holds_block, spec, rows, columns)), 1.0 / (rows * columns),
        )
        for width in sorted({min(most, 8), most})
        for rows, columns in SHARED
    ]  # fmt: skip


def _tiles(spec: Contract, driver: Measured) -> list[KernelVariant]:
    """Tiles in shared memory."""
    found = []
    for tiles in (*tiled_product.SIZES, *tiled_product.HALF_SIZES):
        made = tiled_product.tiled_product(spec, driver.capabilities, tiles, SECTION)
        if made is not None:
            found.append(KernelVariant(tiles.name, SAME, partial(_itself, made), cost_us=1.0 / (tiles.rows * tiles.columns)))
    return found


def _parts(spec: Nest, driver: Measured) -> list[KernelVariant]:
    default = parts_of(spec)
    if default is None:
        return []
    counts = [count for count in (default // 8, default // 3, default * 3, default * 8) if count > 1]
    return [KernelVariant(f"parts={n}", f"parts={n}", partial(staged, spec, n, driver.processor), cost_us=1.0) for n in counts]


def _rows(spec: Nest, driver: Measured) -> list[KernelVariant]:
    """Other numbers of items for a row: one, or a group."""
    if not rows_by_groups.pays(spec):
        return []
    by_groups = parts_of(spec) is None and not driver.processor  # the default
    keeps = rows_by_groups.keeps_bits(spec)
    found = []
    for lanes in _LANES:
        if lanes <= driver.capabilities.group_items and not (by_groups and lanes == rows_by_groups.LANES):
            made = partial(rows_by_groups.rows_by_groups, spec, lanes)
            found.append(KernelVariant(f"lanes={lanes}", SAME if keeps else f"lanes={lanes}", made, cost_us=1.0))
    if by_groups:
        found.append(KernelVariant("naive", SAME if keeps else "naive", partial(naive, spec), cost_us=2.0))
    return found


def _sorts(spec: Sort, driver: Measured) -> list[KernelVariant]:
    found = []
    for size, each in sort_by_digits.SIZES:
        made = sort_by_digits.sort_by_digits(spec, driver.capabilities, size, each)
        if made is not None:
            found.append(KernelVariant(f"digits group={size} each={each}", SAME, partial(_itself, made), cost_us=1.0))
    few = spec.outer * spec.inner * spec.size**2 <= PAIRS
    return [
        *found,
        KernelVariant("naive", SAME, partial(naive, spec, driver.capabilities.float64), _when(lambda: few), cost_us=2.0),
    ]


def _attentions(spec: Attention, driver: Measured) -> list[KernelVariant]:
    """Sums of products are in another order in each form, so each has one of its own."""
    by_products = attention_by_products.pays(spec, driver.processor)
    order = "naive"
    found = [KernelVariant("naive", order if by_products else SAME, partial(naive, spec), cost_us=2.0)]
    if not by_products and spec.d:
        made = partial(attention_by_products.attention_by_products, spec, driver.processor)
        found.append(KernelVariant("products", "products", made, cost_us=1.0))
    return found


def _itself(form: Naive) -> Naive:
    return form
