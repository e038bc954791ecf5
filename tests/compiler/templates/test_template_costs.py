"""GPU templates as code: they assemble, spill nothing, and the products' inner loops are multiply-adds and wide loads."""

from __future__ import annotations

import pytest
from assembling import AMD, EVERY_NVIDIA
from template_costs import VARIANTS, cost, fused, innermost, table

TILED = ("product",)


@pytest.mark.parametrize("cpu", [*EVERY_NVIDIA, *AMD])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_template_becomes_code_without_spilled_registers(name: str, cpu: str) -> None:
    found = cost(name, cpu)
    assert found.spilled == 0
    assert 0 < found.registers <= 255
    assert found.shared <= 48 << 10


@pytest.mark.parametrize("cpu", [*EVERY_NVIDIA, *AMD])
@pytest.mark.parametrize("name", TILED)
def test_the_inner_loop_of_a_tiled_product_is_multiply_adds_and_wide_loads(name: str, cpu: str) -> None:
    found = innermost(name, cpu)
    constants = VARIANTS[name].constants
    assert constants["rows"] >= 8
    assert constants["columns"] >= 4
    assert fused(found) == constants["rows"] * constants["columns"] * constants["tile_k"]
    assert fused(found) >= 0.8 * found.total()
    loads = {n for n in found if n.startswith(("ld.", "ds_load", "ds_read"))}
    assert loads <= {"ld.shared.v4.b32", "ds_read_b128", "ds_load_b128"}


def test_the_table_of_costs_has_a_line_for_each_template_and_gpu() -> None:
    assert len(table().splitlines()) == 2 + len(VARIANTS) * (len(EVERY_NVIDIA) + len(AMD))
