"""Drivers that do something else than they should: a shim between the printer and the driver rewrites shaders or calls. Each is
noticed and named, and no result is wrong without notice."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_on_gpu import Rewrite, measured

import firebrick as fb
from firebrick.backends.decorators import VerificationError
from firebrick.backends.webgpu import commands, probes
from firebrick.backends.webgpu.adapters import adapters
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.launches import PreparedLaunch
from firebrick.testing import conformance

MIB = 1 << 20


def software() -> None:
    if "llvmpipe" not in adapters()[0].name:
        pytest.skip("a driver that is not known to cancel terms")


def test_without_a_shim_the_driver_is_as_it_is(planted: Callable[[Rewrite], fb.Device]) -> None:
    """What the tests below look for is not there before."""
    device = planted(lambda text: text)
    facts = measured(device)
    software()
    assert "denormals: kept" in facts
    assert "longest loop: 65,53" in facts


def test_a_driver_that_sees_through_fences_is_refused_by_name(planted: Callable[[Rewrite], fb.Device]) -> None:
    """It knows the zero that results are combined with, so it cancels terms."""
    software()
    device = planted(lambda text: re.sub(r"let zero = [^;]+;", "let zero = 0u;", text))
    with pytest.raises(fb.DeviceError, match=r"(?s)computes errors of sums of float32 as IEEE 754 does.*use another driver"):
        fb.ones(3, device=device)


def test_a_driver_that_rounds_wrongly_is_refused_by_name(planted: Callable[[Rewrite], fb.Device]) -> None:
    device = planted(lambda text: text.replace("round(x)", "floor(x + 0.5)"))
    with pytest.raises(fb.DeviceError, match="computes round of float32"):
        fb.ones(3, device=device)


FLUSH = """
fn flushed(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return select(x, bitcast<f32>(bits & 0x80000000u), (bits & 0x7f800000u) == 0u);
}
"""


def flushes(text: str) -> str:
    """Results of arithmetic that are denormal become zero."""
    text = re.sub(r"= bitcast<u32>\((x [*+] y)\);", r"= bitcast<u32>(flushed(\1));", text)
    begin = "bitcast<f32>(bitcast<u32>("
    at = text.find(begin)
    while at >= 0:
        first = end = at + len(begin)
        depth = 1
        while depth:  # the bracket that ends what is fenced
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if text[end:].startswith(" | zero)"):
            text = f"{text[:first]}flushed({text[first : end - 1]}){text[end - 1 :]}"
        at = text.find(begin, first)
    return text + FLUSH if "flushed(" in text else text


def test_a_driver_that_flushes_denormals_is_noticed_and_changes_only_denormal_results(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    device = planted(flushes)
    assert "denormals: flushed to zero" in measured(device)
    assert not device.backend.groups(device).gpu.measured.capabilities.denormals
    smallest = np.finfo(np.float32).tiny
    x = np.concatenate([np.linspace(-120.0, 80.0, 4001), [-87.4, -87.3, -88.0, -103.9]]).astype(np.float32)
    y = np.geomspace(1.2e-38, 1e38, 4005).astype(np.float32)
    with np.errstate(all="ignore"):
        cases = [(fb.exp, x, np.exp(x.astype(np.float64))), (fb.log, y, np.log(y.astype(np.float64)))]
        cases += [(fb.tanh, x, np.tanh(x.astype(np.float64))), (lambda v: v * 0.5, y, y.astype(np.float64) * 0.5)]
    for fn, given, want in cases:
        got = fn(fb.asarray(given, device=device)).numpy().astype(np.float64)
        normal = np.abs(want) >= smallest
        np.testing.assert_allclose(got[normal], want[normal], rtol=1e-6)
        assert np.all(np.abs(got[~normal] - want[~normal]) <= smallest)


def wrong_results(device: fb.Device) -> list[str]:
    """Failures of conformance of some ops at their special values, by name."""
    found = conformance(device, ["divide", "multiply"], ["float32"], subset="thin", modes=["eager"])
    assert found.checked > 20
    return [v.message for v in found.failures]


def test_conformance_allows_denormal_results_to_be_flushed_where_the_driver_was_measured_to_do_so(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    device = planted(flushes)
    assert device.backend.flushes_denormals(device)
    assert not wrong_results(device)


def halved(device: fb.Device, x: Any) -> None:
    """Operations with denormal results, eagerly and in a program, compared with their references."""
    given = fb.asarray(np.asarray(x, np.float32), device=device)
    with fb.verify("webgpu"):
        assert (given * 0.5).shape == given.shape
        fb.jit(lambda v: (fb.exp(v) * 0.25, v * v - v))(given)


def test_verification_allows_denormal_results_to_be_flushed_where_the_driver_was_measured_to_do_so(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    halved(planted(flushes), [1.2e-38, 2e-38, -1.5e-38, -87.0, 0.0, 3.0])


def test_a_driver_that_flushes_normal_numbers_too_fails_verification(planted: Callable[[Rewrite], fb.Device]) -> None:
    with pytest.raises(VerificationError, match="multiply on webgpu"):
        halved(planted(lambda text: flushes(text).replace("& 0x7f800000u) == 0u", "& 0x7f800000u) <= 0x02000000u")), [1e-37])


def test_a_driver_that_flushes_denormals_without_a_measurement_that_says_so_fails_verification(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_denormals", lambda run: "kept")
    with pytest.raises(VerificationError, match="multiply on webgpu"):
        halved(planted(flushes), [1.2e-38])


def test_a_driver_that_flushes_denormals_without_a_measurement_that_says_so_fails_conformance(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_denormals", lambda run: "kept")
    device = planted(flushes)
    assert not device.backend.flushes_denormals(device)
    assert any(re.search(r"got -?0\.0, want -?\d\.\d+e-39", message) for message in wrong_results(device))


def test_a_driver_that_flushes_normal_numbers_too_fails_conformance(planted: Callable[[Rewrite], fb.Device]) -> None:
    device = planted(lambda text: flushes(text).replace("& 0x7f800000u) == 0u", "& 0x7f800000u) <= 0x02000000u"))
    assert device.backend.flushes_denormals(device)
    assert wrong_results(device)


def cuts(limit: int) -> Rewrite:
    """Loops of an item end after so many iterations in all, without an error."""

    def rewrite(text: str) -> str:
        cut = re.sub(r"(for \([^;]*; )([^;]+)(;)", r"\1(\2) && more()\3", text)
        cut = re.sub(r"loop \{", "loop { if (!more()) { break; }", cut)
        declared = f"var<private> turns: u32 = 0u;\nfn more() -> bool {{ turns++; return turns <= {limit}u; }}\n"
        return f"{cut}\n{declared}"

    return rewrite


@pytest.mark.parametrize("limit", [100, 3000])
def test_a_driver_that_cuts_loops_is_noticed_and_no_sum_loses_terms(
    limit: int, planted: Callable[[Rewrite], fb.Device]
) -> None:
    device = planted(cuts(limit))
    assert f"longest loop: {limit:,} iterations, then it ends without an error" in measured(device)
    x = np.ones((3, 50_000), np.float32)
    with fb.config.scope(fallback="silent"):
        on = fb.asarray(x, device=device)
        assert fb.sum(on, axis=1).tolist() == [50_000.0] * 3
        assert fb.sum(on, axis=0).tolist() == [3.0] * 50_000
        assert (on @ on.mT).tolist() == [[50_000.0] * 3] * 3
        assert fb.max(on * 2.0).item() == 2.0
        assert fb.sort(on[:, :5000] * 3.0, axis=1).numpy().sum() == 45_000.0


def test_a_driver_whose_loops_are_cut_would_lose_terms(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: with the limit of another driver, terms are lost."""
    monkeypatch.setattr(probes, "_longest_loop", lambda run: 65535)
    device = planted(cuts(100))
    on = fb.asarray(np.ones((3, 20_000), np.float32), device=device)
    with fb.config.scope(fallback="error"):
        assert (on @ on.mT).tolist() != [[20_000.0] * 3] * 3


class ShortBindings(PreparedLaunch):
    """A driver that binds no more than 6 MiB: reads of the rest are zeros, and writes are dropped."""

    __slots__ = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for k in range(len(self.arrays)):
            self.entries[k].size = min(self.entries[k].size, 6 * MIB)


def test_a_driver_that_returns_zeros_for_unbound_tails_is_noticed(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PreparedLaunch", ShortBindings)
    small = fb.asarray(np.ones(MIB, np.float32), device=anew)
    assert fb.sum(small).item() == MIB
    with pytest.raises(
        fb.ExecutionError, match=r"a buffer of 8,\d+,\d+ bytes in which it does not keep what is written at byte 8,"
    ):
        fb.asarray(np.ones(2 * MIB, np.float32), device=anew)
    assert fb.sum(small * 2.0).item() == 2 * MIB  # nothing else is lost


def test_without_the_proof_of_memory_tails_would_be_zeros(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(commands, "PreparedLaunch", ShortBindings)
    monkeypatch.setattr(Gpu, "_prove", lambda *args: None)
    values = np.arange(2 * MIB, dtype=np.float32)
    assert abs(fb.sum(fb.asarray(values, device=anew)).item() / values.sum(dtype=np.float64) - 1.0) > 0.01


def test_a_driver_that_claims_memory_it_has_not_is_noticed(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to large buffers does not stay there."""
    gpu = anew.backend.groups(anew).gpu
    read = type(gpu._device.queue).read_buffer

    def forgets(self: Any, buffer: Any, offset: int = 0, size: int | None = None) -> Any:
        found = read(self, buffer, offset, size)
        return found if buffer.size < 16 * MIB else memoryview(bytes(len(found)))

    monkeypatch.setattr(type(gpu._device.queue), "read_buffer", forgets)
    assert fb.sum(fb.ones(MIB, device=anew)).item() == MIB
    with pytest.raises(fb.ExecutionError, match=r"a buffer of 33,\d+,\d+ bytes in which it does not keep"):
        fb.ones(8 * MIB, device=anew)


def test_kernels_depend_on_no_subgroup_size_unless_a_variant_with_shuffles_is_chosen(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    """``test_subgroups`` has those."""
    seen: list[str] = []
    device = planted(lambda text: seen.append(text) or text)  # type: ignore[func-returns-value]
    x = fb.asarray(np.ones((64, 64), np.float32), device=device)
    seen.clear()  # the shaders that measure the driver
    fb.sum(fb.softmax(x @ x, axis=-1)).item()
    assert len(seen) > 2
    assert not any("subgroup" in text for text in seen)


LOST = """
import sys
import numpy as np, firebrick as fb
from firebrick.train import load_checkpoint, save_checkpoint
folder, device = sys.argv[1], fb.device("webgpu:0")
fb.config.fallback = "silent"
def made(on):
    with fb.use_device(on):
        model = fb.nn.Linear(4, 2, generator=fb.random.Generator(0))
    return model.to(on), fb.optim.Adam(model, lr=0.1)
@fb.jit
def step(model, optimizer, x, y):
    loss, gradients = fb.value_and_grad(lambda m: fb.mse_loss(m(x), y))(model)
    optimizer.update(model, gradients)
    return loss
rng = np.random.default_rng(0)
batches = [(rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=(8, 2)).astype(np.float32)) for _ in range(8)]
model, optimizer = made(device)
gpu = device.backend.groups(device).gpu
reached = 0
try:
    for k, (x, y) in enumerate(batches):
        loss = step(model, optimizer, fb.asarray(x, device=device), fb.asarray(y, device=device))
        if k == 3:
            save_checkpoint(folder, model=model.state_dict(), optimizer=optimizer.state_dict())
        if k == 5:  # in the middle of a step: it is recorded, and not started
            gpu._device.destroy()
        loss.item()
        reached = k
except fb.DeviceLostError as e:
    assert "from its last checkpoint" in str(e), e
else:
    raise AssertionError("a lost device was not noticed")
assert reached == 4
def trained(from_checkpoint):
    model, optimizer = made("cpu")
    first = 0
    if from_checkpoint:
        found = load_checkpoint(folder)
        model.load_state_dict(found.model), optimizer.load_state_dict(found.optimizer)
        first = 4
    for x, y in batches[first:]:
        step(model, optimizer, fb.asarray(x, device="cpu"), fb.asarray(y, device="cpu"))
    return model.weight.numpy()
np.testing.assert_allclose(trained(True), trained(False), rtol=2e-4, atol=2e-5)
print("went on")
"""


@pytest.mark.slow
def test_a_device_lost_in_the_middle_of_a_step_loses_no_more_than_the_last_checkpoint(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOST, str(tmp_path / "checkpoint")], capture_output=True, text=True, check=False
    )
    assert found.stdout == "went on\n", found.stderr
