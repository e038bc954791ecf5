"""What tensors occupy: live, peak, persistent and the largest with their labels, on every engine."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import OutOfMemoryError
from firebrick.graph import tell


def test_live_follows_tensors_and_the_peak_what_was(device: str) -> None:
    fb.memory_cleanup(device)
    before = fb.memory_stats(device)["live"]
    x = fb.zeros(1000, dtype=fb.float32, device=device) + 1.0
    y = fb.zeros(500, dtype=fb.float64, device=device) + 1.0
    view = x[10:]
    del x
    assert fb.memory_stats(device)["live"] - before == 8000, "a view keeps the memory it shows"
    del view, y
    stats = fb.memory_stats(device)
    assert stats["live"] == before
    assert stats["peak"] - before >= 8000
    fb.memory_cleanup(device)
    assert fb.memory_stats(device)["peak"] == fb.memory_stats(device)["live"]


def test_the_largest_allocations_come_first_and_with_their_labels(device: str) -> None:
    big = fb.zeros((600, 1000), dtype=fb.float64, device=device) + 1.0
    big.label = "the big one"
    small = fb.ones((300, 1000), dtype=fb.float64, device=device) + 1.0
    first, second = fb.largest_allocations(device, most=2)
    assert (first.nbytes, first.label) == (4_800_000, "the big one")
    assert str(big.aval) in str(first)
    assert second.nbytes == small.nbytes
    text = fb.memory_summary(device, most=1)
    assert "the big one" in text
    assert "live" in text


def test_objects_that_another_thread_is_building_do_not_disturb_the_search(device: str) -> None:
    half = object.__new__(fb.Tensor)
    half.device = fb.device(device)
    bare = object.__new__(fb.Tensor)
    big = fb.ones((700, 1000), dtype=fb.float64, device=device) + 1.0
    assert fb.largest_allocations(device, most=1)[0].nbytes >= big.nbytes
    assert str(big.aval) in fb.memory_summary(device)
    del half, bare


def test_memory_that_only_the_tape_holds_is_among_them(device: str) -> None:
    x = fb.asarray(np.ones((700, 1000)), dtype=fb.float64, device=device).require_grad()
    y = fb.sum(fb.exp(fb.sin(x)))
    found = [a.what for a in fb.largest_allocations(device, most=4) if a.nbytes == x.nbytes]
    assert "kept for a gradient" in found
    del y
    found = [a.what for a in fb.largest_allocations(device, most=4) if a.nbytes == x.nbytes]
    assert "kept for a gradient" not in found


def test_persistent_allocations_are_counted_as_long_as_they_live(device: str) -> None:
    def persistent() -> int:
        return fb.memory_stats(device)["persistent"]

    before, live = persistent(), fb.memory_stats(device)["live"]
    with fb.memory_persistent_allocations(device):
        with fb.memory_persistent_allocations(device):
            kept = fb.zeros(1000, dtype=fb.float32, device=device) + 1.0
        more = fb.zeros(1000, dtype=fb.float32, device=device) + 1.0
    passing = fb.zeros(1000, dtype=fb.float32, device=device) + 1.0
    assert persistent() - before == kept.nbytes + more.nbytes
    assert fb.memory_stats(device)["live"] - live == kept.nbytes + more.nbytes + passing.nbytes
    del kept
    assert persistent() - before == more.nbytes


def test_the_mode_ends_with_the_block_also_by_an_exception(device: str) -> None:
    before = fb.memory_stats(device)["persistent"]
    with pytest.raises(RuntimeError), fb.memory_persistent_allocations(device):
        raise RuntimeError
    x = fb.zeros(1000, dtype=fb.float32, device=device) + 1.0
    assert fb.memory_stats(device)["persistent"] == before
    assert x.nbytes


def test_parameters_and_moments_are_persistent_also_after_updates(device: str) -> None:
    before = fb.memory_stats(device)["persistent"]
    model = nn.Linear(100, 50, device=device)
    size = sum(p.nbytes for p in model.parameters())
    assert fb.memory_stats(device)["persistent"] - before == size
    optimizer = fb.optim.Adam(model, lr=1e-3)
    x = fb.ones((4, 100), device=device)
    for _ in range(3):
        grads = fb.grad(lambda m: fb.sum(m(x)))(model)
        optimizer.update(model, grads)
    del grads
    gc.collect()
    assert 3 * size <= fb.memory_stats(device)["persistent"] - before <= 3 * size + 100


def test_running_out_of_memory_names_the_largest_allocations() -> None:
    x = fb.zeros((500, 1000), dtype=fb.float64) + 1.0
    x.label = "the hoard"
    with pytest.raises(OutOfMemoryError, match="the hoard"):
        fb.zeros((2**45,), dtype=fb.float64)


# a deep network


class Mixer(nn.Module):
    """A block that mixes tokens, then channels."""

    def __init__(self, tokens: int, channels: int) -> None:
        self.norms = [nn.LayerNorm(channels), nn.LayerNorm(channels)]
        self.tokens = [nn.Linear(tokens, 2 * tokens), nn.Linear(2 * tokens, tokens)]
        self.channels = [nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = fb.matrix_transpose(self.norms[0](x))
        x = x + fb.matrix_transpose(self.tokens[1](fb.gelu(self.tokens[0](y))))
        return x + self.channels[1](fb.gelu(self.channels[0](self.norms[1](x))))


def mixer() -> nn.Module:
    return nn.Sequential(*(Mixer(16, 32) for _ in range(24)))


def transformer() -> nn.Module:
    return nn.Sequential(*(nn.TransformerEncoderLayer(32, 4, dropout=0.1) for _ in range(24)))


@pytest.mark.turns
@pytest.mark.parametrize("build", [mixer, transformer])
def test_balanced_lowers_the_peak_of_a_deep_network_and_changes_no_bit(build: Callable[[], nn.Module], device: str) -> None:
    fb.random.seed(0)
    model = build().to(device)
    x = fb.asarray(np.random.default_rng(0).normal(size=(16, 16, 32)), dtype=fb.float32, device=device)
    start = {n: g.state() for n, g in model.generators().items()}

    def run(how: AbstractContextManager[None]) -> tuple[bytes, int]:
        for n, g in model.generators().items():
            g.set_state(start[n])
        fb.memory_cleanup(device)
        before = fb.memory_stats(device)["live"]
        with how:
            _, grads = fb.value_and_grad(lambda m: fb.mean(fb.square(m(x))))(model)
        peak = fb.memory_stats(device)["peak"] - before
        return b"".join(grads[p].numpy().tobytes() for p in model.parameters()), peak

    plain, whole = run(nullcontext())
    balanced, less = run(fb.checkpointing("balanced"))
    assert balanced == plain
    assert less <= 0.6 * whole, f"{less / whole:.2f} of the peak"
    gradients = sum(p.nbytes for p in model.parameters())
    for share in (0.5, 0.25):
        kept, peak = run(fb.checkpointing(budget=int(share * whole)))
        assert kept == plain
        assert peak <= share * whole + gradients + 0.1 * whole, f"{peak / whole:.2f} of the peak"


@pytest.mark.parametrize("telling", [False, True], ids=["at once", "in stages"])
def test_the_peak_has_what_a_program_takes_while_it_runs(telling: bool) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        y = fb.sort(x @ x)
        if telling:
            tell(bool, fb.sum(y) > 0)
        return fb.sum(fb.sort(y @ x))

    x, compiled = fb.ones((256, 256), device="cpu"), fb.jit(f)
    compiled(x)
    fb.memory_cleanup("cpu")
    before = fb.memory_stats("cpu")["peak"]
    compiled(x)
    assert fb.memory_stats("cpu")["peak"] - before >= x.nbytes
