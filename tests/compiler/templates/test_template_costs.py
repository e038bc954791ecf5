"""GPU templates as code: they assemble, spill nothing, and the products' inner loops are multiply-adds and wide loads."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import assembling
import pytest
import template_costs
from assembling import AMD, EVERY_NVIDIA, linked
from combinations import turns_of
from kept_results import kept_object
from template_costs import TARGETS, VARIANTS, assembly, cost, fused, innermost, table

from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.host import emit_object

TILED = [name for name, v in VARIANTS.items() if "tile_k" in v.constants]


@pytest.mark.parametrize(("name", "cpu"), [*turns_of(VARIANTS, EVERY_NVIDIA), *turns_of(VARIANTS, AMD)])
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


@pytest.mark.parametrize("cpu", [*EVERY_NVIDIA, *AMD])
@pytest.mark.parametrize("name", ["product", "product, bias, relu and residual", "attention", "row reduction"])
def test_arrays_in_vectors_are_accessed_by_128_bits(name: str, cpu: str) -> None:
    text = assembly(name, cpu)
    loads = re.findall(r"\bld\.global\.v4\.b32|\bglobal_load_(?:dwordx4|b128)", text)
    stores = re.findall(r"\bst\.global\.v4\.b32|\bglobal_store_(?:dwordx4|b128)", text)
    assert len(loads) >= (1 if name == "row reduction" else 2)
    if name.startswith("product"):  # a tile of 8 × 8 results
        assert len(stores) == 16


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every template"])
@pytest.mark.parametrize("cpu", AMD)
def test_objects_of_all_templates_link_for_amd(cpu: str, every: bool, tmp_path: Path) -> None:
    chosen = list(VARIANTS.values())[0 if every else list(AMD).index(cpu) :: 1 if every else len(AMD)]
    functions = [replace(v.function, name=f"template_{k}") for k, v in enumerate(chosen)]
    image = linked(kept_object(gpu_module(functions, AMD[cpu], 16), AMD[cpu]), tmp_path)
    assert image.startswith(b"\x7fELF")
    assert all(f"{f.name}.kd".encode() in image for f in functions)


def test_an_object_that_calls_an_unknown_function_does_not_link(tmp_path: Path) -> None:
    target = AMD["gfx942"]
    text = "declare void @unknown()\ndefine amdgpu_kernel void @k() {\n  call void @unknown()\n  ret void\n}\n"
    with pytest.raises(AssertionError, match="unknown"):
        linked(emit_object(text, target), tmp_path)


def test_a_missing_linker_is_a_skip_by_name_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembling, "_linker", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install the wheel ziglang"):
        linked(b"", tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install the wheel ziglang"):
        linked(b"", tmp_path)


@pytest.mark.parametrize(
    ("variants", "targets"),
    [
        (["row reduction", "product"], ["sm_80", "gfx942"]),
        pytest.param(list(VARIANTS), list(TARGETS), marks=pytest.mark.soak, id="every template"),
    ],
)
def test_the_table_of_costs_has_a_line_for_each_template(
    variants: list[str], targets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_costs, "VARIANTS", {n: VARIANTS[n] for n in variants})
    monkeypatch.setattr(template_costs, "TARGETS", {n: TARGETS[n] for n in targets})
    lines = table().splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == variants
    assert {line.count("|") for line in lines} == {len(targets) + 5}
