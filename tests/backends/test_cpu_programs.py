"""Whole programs on the ``cpu`` engine's kernels: all widths of vectors, other processors, threads, processes, odd values."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size
from kept_results import kept_assembly
from rounding import Exact, exact

import firebrick as fb
from firebrick import nn
from firebrick.backends.cpu import native
from firebrick.compiler.targets.llvm.lower import lower
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.large import calls

Array = np.ndarray[Any, Any]
WIDTHS = [w for w in (128, 256, 512) if w <= Target.host(0).width_bits]


class Words(nn.Module):
    """Embedded tokens through a block of attention to classes: gathers, rows, products, and their gradients."""

    def __init__(self) -> None:
        self.embed, self.positions = nn.Embedding(40, 16), nn.LearnedPositions(12, 16)
        self.block, self.head = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1), nn.Linear(16, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map tokens [batch, 12] to logits [batch, 10]."""
        return self.head(fb.mean(self.block(self.positions(self.embed(x))), axis=1))


def _images(bias: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, bias=bias), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, groups=2), nn.GELU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def _series() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            self.lstm, self.head = nn.LSTM(3, 8), nn.Linear(8, 10)

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    return Last()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "words": (Words, (4, 12)), "images": (_images, (4, 1, 14, 14)), "series": (_series, (4, 9, 3)),
}  # fmt: skip


def prepared(name: str, jit: bool, device: str = "cpu", dtype: str = "float32") -> tuple[Callable[[], fb.Tensor], nn.Module]:
    """A step of SGD on a network, and the network."""
    build, shape = NETWORKS[name]
    rng = np.random.default_rng(0)
    with fb.use_device(device):
        fb.random.seed(0)
        model = build().astype(dtype)
        x = rng.integers(0, 40, shape) if name == "words" else rng.normal(size=shape).astype(np.float32).astype(dtype)
        data, labels = fb.asarray(x), fb.asarray(rng.integers(0, 10, shape[0]))
    optimizer = fb.optim.SGD(model, 0.05, momentum=0.9)
    gradient = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        loss, grads = gradient(model, x, y)
        optimizer.update(model, grads)
        return loss

    run = fb.jit(step) if jit else step
    return lambda: run(data, labels), model


def trained(step: Callable[[], fb.Tensor], model: nn.Module, steps: int = 3) -> list[Array]:
    """Losses of some steps, and the parameters after them."""
    losses = [step().numpy() for _ in range(steps)]
    return [np.stack(losses), *(p.numpy() for p in model.parameters())]


def training(name: str, jit: bool, steps: int = 3) -> list[Array]:
    return trained(*prepared(name, jit), steps)


@cache
def exactly(name: str) -> Exact:
    """Training in float64, with what rounding of float32 may change."""
    return exact(lambda: trained(*prepared(name, False, "numpy", "float64")), "float32")


@pytest.mark.turns
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_the_same_with_vectors_of_any_width(name: str, width: int) -> None:
    with fb.config.scope(cpu_vector_bits=width), kernels_of_any_size():
        found = training(name, True)
    exactly(name).check(found)


@cache
def bodies() -> list[Graph]:
    """What the engine has kernels for in a step of each of the networks."""
    found: list[Graph] = []

    def noted(body: Graph, target: Target) -> Any:
        found.append(body)
        return lower(body, target)

    with pytest.MonkeyPatch.context() as patch, kernels_of_any_size():
        patch.setattr(native, "lower", noted)
        for name in NETWORKS:
            training(name, True, 1)
    return found


@pytest.mark.parametrize(
    ("arch", "width", "uses", "never"),
    [
        ("aarch64", 0, r"\bv\d+\.(2s|2d|4s|8b|16b|8h|4h)", r"\b[xyz]mm\d"),
        ("x86_64", 512, r"\bzmm\d", r"\bv\d+\.4s"),
        ("x86_64", 256, r"\bymm\d", r"\bzmm\d|\b[xy]mm(1[6-9]|[23]\d)\b"),
        ("x86_64", 128, r"\bxmm\d", r"\b[yz]mm\d|\bxmm(1[6-9]|[23]\d)\b|\bv\w+ps\b"),
    ],
)
def test_every_generator_writes_code_for_every_processor(arch: str, width: int, uses: str, never: str) -> None:
    target = Target.named(arch, width)
    texts: dict[str, str] = {}
    for body in bodies():
        made = lower(body, target)
        texts.setdefault(made.text, ", ".join(n.op.name for n in body.nodes))
    assert len(texts) > 40
    vectors = 0
    for text, ops in texts.items():
        code = kept_assembly(text, target)
        assert not re.search(never, code), ops
        vectors += bool(re.search(uses, code))
    assert vectors > 0.8 * len(texts)


def _bits(arrays: list[Array]) -> str:
    digest = hashlib.sha256()
    for a in arrays:
        digest.update(a.tobytes())
    return digest.hexdigest()


_CHILD = """
import sys
sys.path[:0] = {paths!r}
import firebrick as fb
from forced import kernels_of_any_size
from kept_results import kept_assembly
from test_cpu_programs import NETWORKS, _bits, training
with kernels_of_any_size():
    for name in NETWORKS:
        print(_bits(training(name, True)))
"""


def test_a_program_has_the_same_bits_cold_and_cached_with_1_2_and_4_threads_in_two_processes(tmp_path: Any) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    source = _CHILD.format(paths=[here, os.path.join(os.path.dirname(here), "shared")])
    found = []
    for cached, threads in (("objects", 2), ("objects", 1), ("objects", 4), ("off", 1)):
        folder = "off" if cached == "off" else str(tmp_path / cached)
        env = {**os.environ, "FIREBRICK_CACHE_DIR": folder, "FIREBRICK_NUM_THREADS": str(threads)}
        done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert len(found[0].split()) == len(NETWORKS)
    assert len(set(found)) == 1
    assert list((tmp_path / "objects").rglob("*.fbo"))


def test_threads_train_on_devices_of_their_own_and_all_find_the_same() -> None:
    found: dict[int, str] = {}

    def work(k: int, made: tuple[Callable[[], fb.Tensor], nn.Module]) -> None:
        found[k] = _bits(trained(*made))

    with kernels_of_any_size():
        want = _bits(training("series", True))
        workers = [threading.Thread(target=work, args=(k, prepared("series", True, f"cpu:{k}"))) for k in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    assert found == dict.fromkeys(range(4), want)


def one(name: str, arrays: tuple[Array, ...], params: dict[str, Any]) -> tuple[Array, ...]:
    """A program of one operation, compiled."""
    graph = Graph([Aval(a.shape, fb.dtype(a.dtype)) for a in arrays])
    graph.outputs = graph.add(OPS[name], *range(len(arrays)), **params)
    device = fb.device("cpu")
    program = device.backend.compile(graph, device)
    found: tuple[Array, ...] = program([device.backend.from_host(a, device) for a in arrays])
    return found


def test_large_operands_agree_with_the_reference() -> None:
    tried = set()
    with kernels_of_any_size():
        for name, arrays, params in calls():
            want = run_reference(OPS[name], arrays, params)
            worst = check_results(OPS[name], arrays, params, one(name, arrays, params), want)
            assert worst.ok, f"{name} {[a.shape for a in arrays]} {params}: {worst}"
            tried.add(name)
    assert {"add", "exp", "sum", "softmax", "matmul", "index_add", "take"} <= tried


TINY = 1e-42  # float32 has no normal number so small


@pytest.mark.parametrize("value", [TINY, np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize("name", ["matmul", "conv2d", "max_pool2d", "softmax", "layer_norm", "sum", "mean", "maximum", "take"])
def test_denormals_infinities_and_nan_go_through_kernels_as_through_numpys(name: str, value: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 9, 9)).astype(np.float32)
    x[1, 1, 4, 4] = x[0, 2, 0, 8] = value
    if value == TINY:
        x *= np.float32(TINY)  # products of these are 0, their sums are denormal
        x[..., 3] = TINY
    w = rng.integers(-2, 3, (4, 3, 3, 3)).astype(np.float32)
    f: Callable[..., Any] = {
        "matmul": lambda x, w: fb.reshape(x, (6, 81)) @ fb.broadcast_to(w[:1, :1, :1, :1] + 1.0, (1, 1, 81, 20))[0, 0],
        "conv2d": lambda x, w: fb.conv2d(x, w), "max_pool2d": lambda x, w: fb.max_pool2d(x, 2),
        "softmax": lambda x, w: fb.softmax(x), "layer_norm": lambda x, w: fb.layer_norm(x),
        "sum": lambda x, w: fb.sum(x, axis=3), "mean": lambda x, w: fb.mean(x, axis=(0, 2, 3)),
        "maximum": lambda x, w: fb.maximum(x, -x) * 0.5 + x,
        "take": lambda x, w: fb.take(fb.reshape(x, (6, 81)), fb.asarray([5, 0, 3], device=x.device), axis=0) * 2.0,
    }[name]  # fmt: skip
    with kernels_of_any_size():
        step = fb.jit(f)
        got = step(fb.asarray(x), fb.asarray(w)).numpy()
        assert "compiled kernels" in step.explain(fb.asarray(x), fb.asarray(w))
    with np.errstate(all="ignore"):
        want = f(fb.asarray(x, device="numpy"), fb.asarray(w, device="numpy")).numpy()
    if value == TINY and name not in ("softmax", "layer_norm"):
        assert ((want != 0) & (np.abs(want) < np.finfo(np.float32).tiny)).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-44 if value == TINY and want.max() < 1e-30 else 1e-5)


def test_verify_bears_what_is_0_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    # batch normalisation takes the bias before it away again: its gradient is what rounding leaves, one way or another
    monkeypatch.setitem(NETWORKS, "images", (lambda: _images(bias=True), NETWORKS["images"][1]))
    with fb.verify("cpu"), kernels_of_any_size():
        training("images", True)


@pytest.mark.parametrize("name", NETWORKS)
def test_verify_holds_each_kernel_of_a_program_against_the_reference(name: str) -> None:
    with fb.verify("cpu"), kernels_of_any_size():
        found = training(name, True)
    exactly(name).check(found)


def test_more_layers_of_the_same_shapes_need_no_more_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[set[str]] = []
    whole = native.compile_many

    def counted(texts: list[str]) -> Any:
        found[-1].update(texts)
        return whole(texts)

    monkeypatch.setattr(native, "compile_many", counted)
    x = fb.asarray(np.random.default_rng(0).normal(size=(2, 6, 16)).astype(np.float32))
    for layers in (3, 5):
        found.append(set())
        model = nn.TransformerEncoder(16, 2, layers, 32)
        with kernels_of_any_size():
            fb.jit(fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0)))(model, x)
    assert len(found[0]) > 10
    assert len(found[1]) == len(found[0])


def test_equal_bodies_have_the_same_kernels_while_they_are_alive() -> None:
    def body(size: int) -> Graph:
        graph = Graph([Aval((size,), fb.float32)])
        graph.outputs = graph.add(OPS["exp"], *graph.add(OPS["negative"], 0))
        return graph

    target = Target.host()
    first = lower(body(7), target)
    assert lower(body(7), target) is first
    assert lower(body(8), target) is not first
    assert lower(body(7), Target.host(128)) is not first or target.width_bits == 128
