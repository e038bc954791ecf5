"""Compiled functions: what a call costs, and whole training steps beside hand-written PyTorch.

``python -m benchmarks.steps [FILE.json]``. A step is forward, gradient and update. PyTorch's is written as its users do, with
autograd and ``torch.optim``; ``torch.compile`` of it is measured where its compiler works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

import firebrick as fb
from benchmarks.measure import Result, interleaved, report

ENGINES = ("numpy", "cpu", "torch:cpu")
Contenders = dict[str, Callable[[], Any]]


def call_overhead() -> Result:
    """A function of two small tensors under ``jit``, beside the operation alone."""
    contenders: Contenders = {}
    host = np.ones(8, np.float32)
    for device in ENGINES:
        x, y = fb.asarray(host, device=device), fb.asarray(host, device=device)
        add = fb.jit(lambda x, y: x + y)
        contenders[f"firebrick {device} jit"] = lambda f=add, x=x, y=y: f(x, y)
        contenders[f"firebrick {device} eager"] = lambda x=x, y=y: x + y
    return interleaved("jit of x + y, float32 [8]", contenders, 2000, target="firebrick jit ≤ 20 µs")


class _Leaves(fb.nn.Module):
    """Many parameters, one of which is used."""

    def __init__(self, count: int) -> None:
        self.leaves = [fb.nn.Parameter(fb.ones(1)) for _ in range(count)]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [n] to [n]."""
        return x * self.leaves[0]


def leaf_overhead(count: int = 1000) -> Result:
    """What a tensor that a function can reach adds to a call: the difference of many and one, for each."""
    x = fb.ones(8)
    few, many = fb.jit(_Leaves(1)), fb.jit(_Leaves(count + 1))
    found = interleaved("calls with state", {"one": lambda: few(x), "many": lambda: many(x)}, 200)
    one, all_ = found.seconds.values()
    each = {"firebrick a leaf": [(b - a) / count for a, b in zip(one, all_, strict=True)]}
    return Result("jit, each leaf of state", each, target="firebrick ≤ 0.25 µs")


def _ours(
    device: str, jit: bool, build: Callable[[], fb.nn.Module], x: Any, y: Any, loss: Callable[..., Any]
) -> tuple[Callable[[], Any], Any]:
    with fb.use_device(device):
        fb.random.seed(0)
        model = build()
        opt = fb.optim.Adam(model, lr=1e-3)
        gradient = fb.value_and_grad(lambda m, x, y: loss(m(x), y))
        a, b = fb.asarray(x), fb.asarray(y)

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        found, grads = gradient(model, x, y)
        opt.update(model, grads)
        return found

    run = fb.jit(step) if jit else step
    return lambda: run(a, b), run


def _theirs(build: Callable[[Any], Any], x: Any, y: Any, loss: str, compiled: bool) -> Callable[[], Any]:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = build(torch)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    error = getattr(torch.nn.functional, loss)
    a, b = torch.from_numpy(x), torch.from_numpy(y)

    def step() -> Any:
        opt.zero_grad(set_to_none=True)
        found = error(model(a), b)
        found.backward()
        opt.step()
        return found.detach()

    return torch.compile(step) if compiled else step  # type: ignore[no-any-return]


def training_step(
    name: str, build: Callable[[], fb.nn.Module], theirs: Callable[[Any], Any] | None, x: Any, y: Any, calls: int,
    loss: str = "cross_entropy", target: str = "", compiled: bool = True,
) -> Result:  # fmt: skip
    """A training step with Adam, eager and under ``jit`` on each engine, and PyTorch's own."""
    contenders: Contenders = {}
    compiled_steps: dict[str, Any] = {}
    for device in ENGINES:
        for jit in (True, False):
            call, run = _ours(device, jit, build, x, y, getattr(fb, loss))
            contenders[f"firebrick {device} {'jit' if jit else 'eager'}"] = call
            if jit:
                compiled_steps[device] = run
    if theirs is not None:
        contenders["torch eager"] = _theirs(theirs, x, y, loss, False)
        if compiled:
            step = _theirs(theirs, x, y, loss, True)
            try:
                step()
                contenders["torch.compile"] = step
            except (RuntimeError, OSError, ImportError) as e:  # no C++ compiler, or one that fails
                print(f"torch.compile is left out: {type(e).__name__}: {str(e).splitlines()[0]}")
    found = interleaved(name, contenders, calls, target=target)
    for device in ENGINES:
        pair = [found.median(f"firebrick {device} {how}") for how in ("eager", "jit")]
        found.notes[f"{device}: eager / jit"] = round(pair[0] / pair[1], 2)
        spent = sum(r.seconds for r in fb.explain_recompiles(compiled_steps[device]))
        found.notes[f"{device}: traced and compiled in"] = f"{spent * 1e3:.0f} ms"
    if theirs is not None:
        found.notes["torch:cpu jit / torch eager"] = round(
            found.median("firebrick torch:cpu jit") / found.median("torch eager"), 2
        )
    return found


def _mlp(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def _block(torch: Any) -> Any:
    return torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)


def _lstm(torch: Any) -> Any:
    class Last(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(8, 32, batch_first=True), torch.nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Last()


class _OurLstm(fb.nn.Module):
    """An LSTM and a layer on its last output."""

    def __init__(self) -> None:
        self.lstm, self.head = fb.nn.LSTM(8, 32), fb.nn.Linear(32, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        """Map [batch, time, 8] to [batch, 10]."""
        return self.head(self.lstm(x)[0][:, -1])


def steps(torch: bool) -> list[Result]:
    """The training steps: a small network, an LSTM, a block of a transformer."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    nn, classes = fb.nn, rng.integers(0, 10, 64)
    return [
        training_step(
            "MLP step 64-128-10, batch 64", lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
            _mlp if torch else None, draw(64, 64), classes, 50,
            target="torch:cpu jit ≤ torch eager; numpy and cpu jit ≤ eager / 1.3",
        ),
        training_step(
            "LSTM step 8-32, batch 16, 20 times", _OurLstm, _lstm if torch else None, draw(16, 20, 8), classes[:16], 4,
            compiled=False,
        ),
        training_step(
            "transformer block step 64, 4 heads", lambda: nn.TransformerEncoderLayer(64, 4, hidden=256, dropout=0.0),
            _block if torch else None, draw(8, 32, 64), draw(8, 32, 64), 10, loss="mse_loss", compiled=False,
        ),
    ]  # fmt: skip


def everything() -> list[Result]:
    """All of these workloads; without PyTorch where it is not installed."""
    return [call_overhead(), leaf_overhead(), *steps(find_spec("torch") is not None)]


def main() -> None:
    """Measure and write the table."""
    report(everything(), sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results/steps.json")


if __name__ == "__main__":
    main()
