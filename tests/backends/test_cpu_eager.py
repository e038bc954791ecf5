"""Eager operations on compiled kernels: which ones, their results, and what they leave as it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.backends.cpu import eager
from firebrick.backends.cpu.engine import CpuBackend
from firebrick.backends.numpy.engine import HostBackend
from firebrick.core.dtypes import float32
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing import conformance

LARGE = np.random.default_rng(5).standard_normal((512, 1024)).astype(np.float32)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuBackend]:
    """The engine, with no kernels yet and compilation switched on."""
    found = fb.device("cpu").backend
    assert isinstance(found, CpuBackend)
    monkeypatch.setattr(found, "_eager", eager.EagerKernels(found.compile_operation))
    with fb.config.scope(cpu_compile=True):
        yield found


@pytest.mark.parametrize("name", sorted(eager.ESTIMATES))
def test_every_op_of_the_table_agrees_with_its_reference(
    name: str, engine: CpuBackend, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:  # fmt: skip
    monkeypatch.setattr(eager, "EXPENSIVE_US", -1.0)
    monkeypatch.setattr(eager, "KEPT", 1 << 20)
    with kernels_of_any_size():
        report = conformance("cpu", [name], subset="thin", seed=seed, modes=["eager"])
    assert report.ok, report
    assert any(engine._eager._made.values()), "some of them have kernels"


def test_what_is_heavy_runs_on_a_kernel_and_what_is_light_does_not(engine: CpuBackend) -> None:
    x = fb.asarray(LARGE)
    got = fb.gelu(x).numpy()
    assert len(engine._eager) == 1
    want = run_reference(OPS["gelu"], (LARGE,), {})
    assert check_results(OPS["gelu"], (LARGE,), {}, (got,), want).ok
    fb.gelu(x).numpy()
    assert len(engine._eager) == 1
    fb.gelu(x[:4])
    fb.exp(x)
    assert len(engine._eager) == 1


def test_equal_operations_have_equal_bits_from_the_first_on_in_any_layout(engine: CpuBackend) -> None:
    first = fb.sigmoid(fb.asarray(LARGE)).numpy()
    strided = np.empty((512, 2048), np.float32)[:, ::2]
    strided[...] = LARGE
    for native in (LARGE, strided, np.asfortranarray(LARGE)):
        assert engine.execute(OPS["sigmoid"], (native,), {}).tobytes() == first.tobytes()


def test_without_compilation_numpys_kernels_run(engine: CpuBackend) -> None:
    want = HostBackend.execute(fb.device("numpy").backend, OPS["sigmoid"], (LARGE,), {})
    with fb.config.scope(cpu_compile=False):
        assert fb.sigmoid(fb.asarray(LARGE)).numpy().tobytes() == want.tobytes()
    assert len(engine._eager) == 0


def test_operands_stay_as_they_are_and_out_takes_the_result(engine: CpuBackend) -> None:
    x = fb.asarray(LARGE)
    before = fb.sigmoid(x)
    kept = before.numpy().copy()
    y = fb.sigmoid(x)
    y += 1.0
    fb.sigmoid(x, out=y)
    assert (x.numpy() == LARGE).all()
    assert (before.numpy() == kept).all()
    assert (y.numpy() == kept).all()
    fb.sigmoid(x, out=x)
    assert (x.numpy() == kept).all()
    assert len(engine._eager) == 1


def test_gradients_go_through_the_kernels(engine: CpuBackend) -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((32, 16, 28, 28)).astype(np.float32)
    w = rng.standard_normal((16, 16, 5, 5)).astype(np.float32) / 20

    def gradients(device: str) -> list[Any]:
        def loss(both: Any) -> Any:
            return (fb.conv2d(*both, padding=2) ** 2).mean()

        return [g.numpy() for g in fb.grad(loss)((fb.asarray(a, device=device), fb.asarray(w, device=device)))]

    got = gradients("cpu")
    assert {key[0] for key, program in engine._eager._made.items() if program} >= {"conv", "conv_input", "conv_weight"}
    for g, want in zip(got, gradients("numpy"), strict=True):
        assert np.abs(g - want).max() <= 1e-5 * np.abs(want).max()


def test_random_numbers_are_those_of_every_engine(engine: CpuBackend) -> None:
    key = np.asarray([1, 2, 3, 4], np.uint32)
    params = {"shape": (400_000,), "offset": 7, "dtype": float32}
    got = engine.execute(OPS["random_uniform"], (key,), params)
    assert len(engine._eager) == 1
    want = fb.device("numpy").backend.execute(OPS["random_uniform"], (key,), params)
    assert got.tobytes() == want.tobytes()


def test_what_has_no_kernel_runs_on_numpys_and_is_asked_once(engine: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    make = eager.EagerKernels._program

    def program(self: Any, *args: Any) -> Any:
        asked.append(args[0].name)
        return make(self, *args)

    monkeypatch.setattr(eager.EagerKernels, "_program", program)
    z = (LARGE + 1j).astype(np.complex64)
    for _ in range(2):
        got = engine.execute(OPS["sigmoid"], (z,), {})
    assert asked == ["sigmoid"]
    assert got.tobytes() == HostBackend.execute(fb.device("numpy").backend, OPS["sigmoid"], (z,), {}).tobytes()


def test_the_kernels_that_are_kept_are_those_used_last(engine: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "EXPENSIVE_US", -1.0)
    monkeypatch.setattr(eager, "KEPT", 2)
    for n in (8, 16, 8, 24):
        engine.execute(OPS["sigmoid"], (LARGE[:1, :n],), {})
    assert [key[2][0] for key in engine._eager._made] == [(1, 8), (1, 24)]
    engine.memory_cleanup(fb.device("cpu"))
    assert len(engine._eager) == 0


def test_threads_may_run_one_operation_at_once(engine: CpuBackend) -> None:
    arrays = [LARGE + np.float32(i) for i in range(4)]
    want = [HostBackend.execute(fb.device("numpy").backend, OPS["softmax"], (a,), {"axis": 1}) for a in arrays]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(5):
            got = engine._eager.run(OPS["softmax"], (arrays[i],), {"axis": 1})
            if not np.allclose(got, want[i], rtol=1e-5, atol=1e-9):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(engine._eager) == 1
