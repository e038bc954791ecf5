"""Ops in a browser: kernels of the op table through Chromium's compiler of WGSL (tint) and its software adapter, which share no
code with those of the other tests (naga and lavapipe)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromium import Page, served
from lowered_bodies import body_of

import firebrick as fb
from firebrick.backends.webgpu.lowering import lowered
from firebrick.backends.webgpu.web_plan import PAGE
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.wgsl.contraction_blocks import contraction_by_blocks
from firebrick.core.bind import bind
from firebrick.core.op import Op, Sample
from firebrick.interop import web
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing import EXCLUDED
from firebrick.testing.cases import samples_of

DTYPES = ("float32", "int32", "bool", "int64", "float16", "uint8")
LARGEST = 4096
"""Elements of the largest operand."""
RUN = """(async folders => {
    const { load, selftest } = await import(`./${folders[0]}/firebrick.js`), found = [];
    for (const folder of folders) {
        try {
            const program = await load(folder), results = await program.run(await selftest(folder, program));
            found.push(Object.values(results).map(({ data }) => btoa(Array.from(
                new Uint8Array(data.buffer, data.byteOffset, data.byteLength), b => String.fromCharCode(b)).join(""))));
            program.destroy();
        } catch (e) { found.push(e.message); }
    }
    return found;
})"""


def samples(op: Op) -> Iterator[tuple[str, Sample]]:
    """The first samples of an op with elements, in a few dtypes."""
    for dtype in DTYPES:
        if dtype in op.dtypes:
            for sample in samples_of(op, dtype, 0):
                arrays = [np.asarray(x) for x in sample.inputs]
                fits = all(0 < x.size <= LARGEST for x in arrays) and any(x.ndim for x in arrays)
                if fits and not sample.edges:
                    yield dtype, sample
                    break


def exported(folder: Path) -> dict[str, tuple[Op, Sample]]:
    """A folder for each op and dtype that can be exported."""
    made = {}
    for op in (op for name, op in OPS.items() if name not in EXCLUDED):
        for dtype, sample in samples(op):
            inputs = [fb.asarray(np.asarray(x), device="numpy") for x in sample.inputs]
            name = f"{op.name}-{dtype}"
            try:
                web.export(lambda *xs, op=op, sample=sample: bind(op, xs, sample.params), inputs, folder / name)
            except (fb.UnsupportedError, fb.DTypeError):
                continue
            made[name] = op, sample
    return made


@pytest.mark.soak
def test_ops_in_a_browser_agree_with_the_reference(page: Page, tmp_path: Path) -> None:
    made = exported(tmp_path)
    assert len({op.name for op, _ in made.values()}) > 100
    (tmp_path / "index.html").write_text("<!doctype html><title>ops</title>")
    wrong = []
    names = list(made)
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")
        for start in range(0, len(names), 20):
            block = names[start : start + 20]
            for name, found in zip(block, page.evaluate(f"{RUN}({json.dumps(block)})"), strict=True):
                op, sample = made[name]
                if isinstance(found, str):
                    wrong.append(f"{name}: {found}")
                    continue
                arrays = tuple(np.asarray(x) for x in sample.inputs)
                plan = json.loads((tmp_path / name / "program.json").read_text())
                results = tuple(
                    np.frombuffer(base64.b64decode(x), fb.dtype(t["dtype"]).np).reshape(t["shape"])
                    for x, t in zip(found, plan["outputs"], strict=True)
                )
                want = run_reference(op, arrays, sample.params)  # the software adapter flushes denormal numbers
                worst = check_results(op, arrays, sample.params, results, want, flushes=True)
                if not worst.ok:
                    wrong.append(f"{name}: {worst}")
    assert wrong == []


COMPILE = """(async code => {
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter.features.has("subgroups")) return "subgroups are not offered";
    const device = await adapter.requestDevice({ requiredFeatures: ["subgroups"] });
    const module = device.createShaderModule({ code });
    const { messages } = await module.getCompilationInfo();
    if (!messages.some(m => m.type === "error"))
        await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } });
    return messages.map(m => m.message).join("; ");
})"""


@pytest.mark.slow
def test_shuffles_by_subgroup_operations_pass_the_compiler_of_a_browser(page: Page, tmp_path: Path) -> None:
    """tint proves that the control flow of shuffles and barriers is uniform, and wants a line that naga refuses."""
    x = np.zeros((64, 64), np.float32)
    body = body_of((x, x), ("matmul", (0, 1), {}))
    spec = spec_of(body)
    assert isinstance(spec, Contract)
    driver = replace(PAGE, capabilities=replace(PAGE.capabilities, subgroup_sizes=(4, 4)))
    made = lowered(contraction_by_blocks(spec, 4, 4, 4), body.inputs, [body.avals[2]], driver)
    (text,) = (launch.shader.text for launch in made.launches)
    assert "subgroupShuffle(" in text
    (tmp_path / "index.html").write_text("<!doctype html><title>shuffles</title>")
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")
        found = page.evaluate(f"{COMPILE}({json.dumps('enable subgroups;' + chr(10) + text)})")
        if found == "subgroups are not offered":
            pytest.skip("the browser's adapter does not offer subgroups")
        assert found == ""
        assert "without extension 'subgroups'" in page.evaluate(f"{COMPILE}({json.dumps(text)})")


@pytest.mark.soak
def test_kernels_with_shared_memory_pass_the_compiler_of_a_browser(page: Page, tmp_path: Path) -> None:
    """tint refuses barriers in control flow that it cannot prove to be uniform, which naga takes."""
    x = np.random.default_rng(0).integers(-128, 128, 1100).astype(np.int8)
    web.export(lambda x: fb.argsort(x, descending=True), [fb.asarray(x)], tmp_path / "sorted")
    kernels = [p.read_text() for p in (tmp_path / "sorted" / "kernels").iterdir()]
    assert any("workgroupBarrier" in text for text in kernels)
    (tmp_path / "index.html").write_text("<!doctype html><title>sorted</title>")
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")
        (found,) = page.evaluate(f'{RUN}(["sorted"])')
    assert not isinstance(found, str), found
    plan = json.loads((tmp_path / "sorted" / "program.json").read_text())
    places = np.frombuffer(base64.b64decode(found[0]), fb.dtype(plan["outputs"][0]["dtype"]).np)
    assert np.array_equal(places, np.argsort(-x.astype(np.int32), kind="stable"))
