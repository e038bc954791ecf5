"""Exported programs compute what the ``numpy`` engine computes, on an adapter with WebGPU's default limits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from web_plans import ExportedProgram

import firebrick as fb
from firebrick.interop import web
from firebrick.testing import engines

HOST = "numpy"
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _on_an_adapter() -> None:
    reason = engines().missing.get("webgpu")
    if reason:
        pytest.skip(f"exported programs are run by wgpu, which cannot be used here: {reason}")


def host(x: object, dtype: str | None = None) -> fb.Tensor:
    return fb.asarray(np.asarray(x) if dtype is None else np.asarray(x).astype(dtype), device=HOST)


def normal(*shape: int) -> fb.Tensor:
    return host(rng.normal(size=shape), "float32")


class Tokens(fb.nn.Module):
    """Attention over embedded tokens, with a mask that is a constant of the program."""

    def __init__(self) -> None:
        g = fb.random.Generator(0)
        self.table = fb.nn.Embedding(11, 16, generator=g)
        self.heads = fb.nn.MultiheadAttention(16, 2, generator=g)
        self.out = fb.nn.Linear(16, 11, generator=g)

    def forward(self, tokens: fb.Tensor) -> dict[str, fb.Tensor]:
        x = self.table(tokens)
        y = fb.gelu(self.heads(x, x, x, causal=True)) + x
        return {"logits": self.out(y), "next": fb.argmax(self.out(y)[:, -1], axis=-1)}


def narrow(x: fb.Tensor) -> list[fb.Tensor]:
    """Results of dtypes that share words, from one array whose buffer others take later."""
    small = fb.astype(fb.clip(x * 50.0, -100.0, 100.0), fb.int8)
    return [small, x > 0, fb.astype(x, fb.float16) * 2, fb.astype(x, fb.bfloat16), fb.astype(fb.abs(small), fb.uint16)]


def chain(x: fb.Tensor) -> fb.Tensor:
    """Results that are dead when the next but one is computed, so that buffers change hands; sizes grow and shrink."""
    for k in range(6):
        x = fb.concat([fb.sort(x, axis=-1), x[..., ::-1] * float(k)], axis=-1) if k % 2 else fb.flip(x, axis=-1)[..., 1:]
    return fb.sum(fb.exp(-fb.abs(x)), axis=-1)


def norms(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor, fb.Tensor]:
    first, second = x[:, :3], x[:, 3:]
    return fb.softmax(first.mT @ second), fb.mean(x), fb.linalg.norm(second, axis=-1)


weights = normal(4, 3)
PROGRAMS: dict[str, tuple[Callable[..., object], list[fb.Tensor]]] = {
    "a convolutional network": (fb.models.build("cnn", 8, channels=1, classes=10).eval().to(HOST), [normal(3, 1, 8, 8)]),
    "tokens": (Tokens().eval().to(HOST), [host([[1, 10, 0, 3]])]),
    "narrow dtypes": (narrow, [normal(3, 7)]),
    "buffers that change hands": (chain, [normal(5, 9)]),
    "views of parts": (norms, [normal(2, 6, 5)]),
    "a long sum": (lambda x: fb.sum(x, axis=0), [normal(100_003)]),
    "64-bit integers": (lambda x, y: x * y + (x // y), [host([2**40 + 7, -5]), host([3, 2])]),
    "a number": (lambda x: fb.exp(x), [normal()]),
    "no elements": (lambda x: [fb.sum(x, axis=0), x + 1.0], [normal(0, 3)]),
    "parts without elements": (lambda x, y: fb.concat([y, x, y]) + 1.0, [normal(2, 3), normal(0, 3)]),
    "one result twice": (lambda x: {"a": x @ weights, "b": [x @ weights]}, [normal(2, 4)]),
    "an argument that is not used": (lambda x, y: fb.tanh(x), [normal(3), normal(2)]),
    "complex numbers inside": (lambda x: fb.abs(fb.astype(x, fb.complex64) * 2j), [normal(4)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exported_program_computes_what_it_was_exported_from(name: str, tmp_path: Path) -> None:
    fn, inputs = PROGRAMS[name]
    made = web.export(fn, inputs, tmp_path / "page")
    program = ExportedProgram(made.folder)
    given, want = program.selftest()
    for k in range(2):  # the second run finds the first one's values in its buffers
        got = program(given)
        assert list(got) == list(want)
        for key, x in want.items():
            assert (got[key].shape, got[key].dtype) == (x.shape, x.dtype), (name, key, k)
            if x.dtype.kind in "biu":
                np.testing.assert_array_equal(got[key], x)
            else:
                np.testing.assert_allclose(got[key].astype(float), x.astype(float), rtol=2e-5, atol=2e-5)
    reference = fn(*inputs)
    first = next(iter(reference.values())) if isinstance(reference, dict) else reference
    first = first[0] if isinstance(first, (list, tuple)) else first
    np.testing.assert_allclose(want[next(iter(want))].astype(float), first.numpy().astype(float), rtol=2e-5, atol=2e-5)


def test_no_launch_writes_a_buffer_that_it_reads_and_outputs_are_no_inputs(tmp_path: Path) -> None:
    for k, (fn, inputs) in enumerate(PROGRAMS.values()):
        plan = json.loads((web.export(fn, inputs, tmp_path / str(k)).folder / "program.json").read_text())
        kept = {t["buffer"] for t in [*plan["inputs"], *plan["weights"]["tensors"]]}
        for launch in plan["launches"]:
            access = plan["kernels"][launch["kernel"]]["bindings"]
            written = [b for (b, *_), a in zip(launch["bindings"], access, strict=True) if a == "read_write"]
            read = {b for (b, *_), a in zip(launch["bindings"], access, strict=True) if a == "read"}
            assert len(set(written)) == len(written)
            assert not read.intersection(written)
            assert not kept.intersection(written)
            assert all(at + n <= plan["buffers"][b] for b, at, n in launch["bindings"])


def test_buffers_of_dead_values_are_used_again(tmp_path: Path) -> None:
    def deep(x: fb.Tensor) -> fb.Tensor:
        for _ in range(12):
            x = fb.softmax(x @ x)
        return x

    plan = json.loads((web.export(deep, [normal(8, 8)], tmp_path / "deep").folder / "program.json").read_text())
    assert len(plan["launches"]) >= 24
    assert len(plan["buffers"]) <= 5


def test_an_index_out_of_range_is_reported_by_the_program(tmp_path: Path) -> None:
    table = normal(5, 2)
    made = web.export(lambda at: fb.take(table, at, axis=0) + 1.0, [host([0, 1, 4])], tmp_path / "page")
    program = ExportedProgram(made.folder)
    for wrong, reported in (([0, 7, 9], 7), ([-6, 1, 2], -6)):
        with pytest.raises(IndexError, match=rf"take: {reported}$"):
            program({"at": np.array(wrong)})
    np.testing.assert_array_equal(program({"at": np.array([4, 0, -5])})["output"], table.numpy()[[4, 0, 0]] + 1.0)
    assert Path(__file__).name not in (made.folder / "program.json").read_text()  # a page does not name files of this machine


def test_an_index_whose_element_nothing_reads_is_checked(tmp_path: Path) -> None:
    table = normal(5, 2)

    def fn(x: fb.Tensor, at: fb.Tensor) -> fb.Tensor:
        fb.take_along_axis(table, at, axis=0)
        return x * 2.0

    program = ExportedProgram(web.export(fn, [normal(3), host([[0, 1], [4, 2]])], tmp_path / "page").folder)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(program({"x": x, "at": np.array([[-5, 4], [0, 0]])})["output"], 2.0 * x)
    with pytest.raises(IndexError, match=r"gather: -6$"):
        program({"x": x, "at": np.array([[-5, 4], [0, -6]])})


def test_what_a_layer_checks_of_its_arguments_is_checked_by_the_program(tmp_path: Path) -> None:
    fn, inputs = PROGRAMS["tokens"]
    program = ExportedProgram(web.export(fn, inputs, tmp_path / "page").folder)
    with pytest.raises(IndexError, match=r"Embedding: indices must lie in \[0, 11\)"):
        program({"tokens": np.array([[1, -1, 0, 3]])})  # which take would accept


def test_a_plan_is_the_same_for_the_same_program(tmp_path: Path) -> None:
    fn, inputs = PROGRAMS["tokens"]
    a, b = (web.export(fn, inputs, tmp_path / name).folder for name in "ab")
    for one in sorted(p.relative_to(a) for p in a.rglob("*") if p.is_file()):
        assert (a / one).read_bytes() == (b / one).read_bytes(), one


def test_every_pair_of_programs_has_equal_kernels_once(tmp_path: Path) -> None:
    x = normal(4, 4)
    made = web.export(lambda y: (y @ x) @ x, [normal(4, 4)], tmp_path / "page")
    assert (made.kernels, made.launches) == (1, 2)
    names = [p.read_text() for p in sorted((made.folder / "kernels").iterdir())]
    assert all(a != b for a, b in itertools.combinations(names, 2))
