"""Exported programs that factor matrices and solve with them: results, and the errors of ``numpy``."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Page, PageError, served
from web_plans import ExportedProgram

import firebrick as fb
from firebrick.interop import web
from firebrick.testing import engines

RUN = """(async values => {
    const { load, tensor } = await import("./page/firebrick.js"), program = await load("page");
    const bytes = Uint8Array.from(atob(values), c => c.charCodeAt(0));
    const { output } = await program.run({ x: tensor("float32", [2, 3, 5, 5], new Float32Array(bytes.buffer)) });
    return Array.from(output.data);
})"""


def whitened(x: fb.Tensor) -> fb.Tensor:
    """The inverse of the Cholesky factor."""
    return fb.linalg.solve_triangular(fb.linalg.cholesky(x), fb.eye(5, device=x.device), upper=False)


def stack() -> fb.Tensor:
    """Positive definite matrices."""
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 9)).astype(np.float32)
    return fb.asarray(x @ np.swapaxes(x, -1, -2), device="numpy")


def test_matrices_are_factored_and_solved_with_by_exported_programs(tmp_path: Path) -> None:
    reason = engines().missing.get("webgpu")
    if reason:
        pytest.skip(f"exported programs are run by wgpu, which cannot be used here: {reason}")
    x = stack()
    program = ExportedProgram(web.export(whitened, [x], tmp_path / "page").folder)
    np.testing.assert_allclose(program({"x": x.numpy()})["output"], whitened(x).numpy(), rtol=0, atol=1e-5)
    for wanted in program.plan["faults"]:
        assert wanted["stack"] == [2, 3]


def test_a_page_reports_matrices_as_numpy_does(page: Page, tmp_path: Path) -> None:
    x = stack()
    web.export(whitened, [x], tmp_path / "page")
    (tmp_path / "index.html").write_text("<!doctype html><title>matrices</title>")
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")

        def run(given: np.ndarray[Any, Any]) -> Any:
            return page.evaluate(f"{RUN}({json.dumps(base64.b64encode(given.tobytes()).decode())})")

        want = whitened(x).numpy()
        np.testing.assert_allclose(np.reshape(run(x.numpy()), want.shape), want, rtol=0, atol=1e-5)
        for bad, value in (([(1, 0), (1, 2)], -1.0), ([(0, 2)], np.nan)):
            given = x.numpy().copy()
            for at in bad:
                given[at] *= value
            with pytest.raises(fb.LinAlgError) as by_numpy:
                whitened(fb.asarray(given, device="numpy"))
            with pytest.raises(PageError) as by_page:
                run(given)
            assert str(by_numpy.value) in str(by_page.value)
