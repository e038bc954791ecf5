"""L-BFGS: torch's steps in float64, whole state in and out, and refusal of what does not fit."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim

START = {"rosenbrock": np.asarray([-1.2, 1.0, 0.7, -0.5]), "quadratic": np.linspace(-1.0, 2.0, 4), "quartic": np.ones(4) * 2.0}


def value(name: str, x: Any) -> Any:
    """A function of a vector of four, written for tensors of either framework."""
    if name == "rosenbrock":
        total = (1.0 - x[0]) ** 2.0 + 100.0 * (x[1] - x[0] ** 2.0) ** 2.0
        return total + (1.0 - x[2]) ** 2.0 + 100.0 * (x[3] - x[2] ** 2.0) ** 2.0
    if name == "quadratic":
        return x[0] ** 2.0 + 3.0 * x[1] ** 2.0 + 0.5 * (x[2] - x[3] + 1.0) ** 2.0 + 0.1 * (x[3] + x[0]) ** 2.0
    return (x[0] ** 4.0 + x[1] ** 4.0 + (x[2] * x[3] - 1.0) ** 2.0 + x[2] ** 2.0 * 0.1) * 0.1


class Point(nn.Module):
    """Two parameters that together are the vector; a third takes no part."""

    def __init__(self, start: np.ndarray, device: str = "cpu", dtype: Any = None) -> None:
        self.a = nn.Parameter(fb.asarray(start[:3].reshape(3, 1), device=device, dtype=dtype))
        self.b = nn.Parameter(fb.asarray(start[3:], device=device, dtype=dtype))
        self.idle = nn.Parameter(fb.asarray([1.0, 2.0], device=device, dtype=dtype))

    def vector(self) -> fb.Tensor:
        return fb.concat([fb.reshape(self.a, (3,)), self.b])


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed steps": ("quadratic", {"lr": 0.3, "iterations": 4}),
    "fixed steps, short memory": ("quartic", {"lr": 0.2, "iterations": 3, "history": 2}),
    "one iteration a step": ("quadratic", {"lr": 0.5, "iterations": 1}),
    "line search": ("rosenbrock", {"line_search": "strong_wolfe", "iterations": 4}),
    "line search, short memory": ("rosenbrock", {"line_search": "strong_wolfe", "iterations": 3, "history": 2}),
    "line search from afar": ("quartic", {"line_search": "strong_wolfe", "iterations": 5, "lr": 0.01}),
    "line search that overshoots": ("quartic", {"line_search": "strong_wolfe", "iterations": 5, "lr": 20.0}),
    "few evaluations": ("rosenbrock", {"line_search": "strong_wolfe", "iterations": 4, "evaluations": 3}),
}
THEIRS = {
    "iterations": "max_iter", "evaluations": "max_eval", "history": "history_size", "line_search": "line_search_fn",
    "tolerance_gradient": "tolerance_grad",
}  # fmt: skip


@pytest.mark.turns
@pytest.mark.parametrize("case", CASES)
def test_every_step_equals_torchs(case: str, device: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    name, settings = CASES[case]
    model = Point(START[name], device)
    ours = optim.LBFGS(model, **settings)
    a = torch.tensor(START[name][:3].reshape(3, 1), requires_grad=True)
    b = torch.tensor(START[name][3:], requires_grad=True)
    theirs = torch.optim.LBFGS([a, b], **{THEIRS.get(k, k): v for k, v in settings.items()})

    def closure() -> Any:
        theirs.zero_grad()
        loss = value(name, torch.cat([a.reshape(3), b]))
        loss.backward()
        return loss

    # twenty iterations: a start changed by 1e-15 moves torch's own iterates by more than 1e-10 from about thirty on
    for step in range(-(-20 // settings["iterations"])):
        want = theirs.step(closure)
        got = ours.step(model, lambda m: value(name, m.vector()))
        np.testing.assert_allclose(got.item(), want.item(), rtol=1e-9, atol=1e-10, err_msg=f"step {step}")
        np.testing.assert_allclose(model.a.numpy(), a.detach().numpy(), rtol=1e-10, atol=1e-10, err_msg=f"step {step}")
        np.testing.assert_allclose(model.b.numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-10, err_msg=f"step {step}")
    assert ours.evaluations == theirs.state[a]["func_evals"]
    assert model.idle.tolist() == [1.0, 2.0]


def test_rosenbrock_is_solved(device: str) -> None:
    model = Point(START["rosenbrock"], device)
    opt = optim.LBFGS(model, line_search="strong_wolfe", iterations=100, tolerance_change=1e-16, tolerance_gradient=1e-10)
    opt.step(model, lambda m: value("rosenbrock", m.vector()))
    np.testing.assert_allclose(model.vector().numpy(), 1.0, rtol=1e-6)


def test_a_step_found_by_the_line_search_fulfils_the_strong_wolfe_conditions() -> None:
    from firebrick.optim.line_search import CURVATURE, SUFFICIENT, Point, strong_wolfe

    functions = [
        lambda x: (np.cos(x) * -1.0 + 0.1 * x**2, np.sin(x) + 0.2 * x),
        lambda x: ((x - 7.0) ** 4, 4.0 * (x - 7.0) ** 3),
        lambda x: (-x / (x**2 + 2.0), (x**2 - 2.0) / (x**2 + 2.0) ** 2),
    ]
    for f in functions:
        for origin, first in ((-1.4, 1e-3), (-1.0, 1.0), (-0.5, 30.0)):

            def at(step: float, f: Any = f, origin: float = origin) -> Point:
                loss, slope = f(origin + step)
                return Point(step, float(loss), float(slope))

            start = at(0.0)
            found, count = strong_wolfe(at, start, first, 40, 1e-12, 1.0)
            assert found.loss <= start.loss + SUFFICIENT * found.step * start.slope
            assert abs(found.slope) <= -CURVATURE * start.slope
            assert count <= 41


def test_only_the_second_step_in_a_row_near_an_end_of_the_interval_is_moved_in() -> None:
    """As torch's search, and Matlab's before it: the minimum of the cubic is tried first, wherever in the interval it is."""
    from firebrick.optim.line_search import Point, strong_wolfe

    steps: list[float] = []

    def at(step: float) -> Point:
        steps.append(step)
        return Point(step, 11.0 * step**2 - step, 22.0 * step - 1.0)

    found, count = strong_wolfe(at, Point(0.0, 0.0, -1.0), 1.0, 25, 1e-9, 1.0)
    assert steps == [1.0, pytest.approx(1.0 / 22.0)]
    assert (found.step, count) == (steps[1], 2)


def test_the_line_search_tries_torchs_steps() -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    from torch.optim.lbfgs import _strong_wolfe

    from firebrick.optim.line_search import Point, strong_wolfe

    lengths = set()
    for seed in range(120):
        rng = np.random.default_rng(seed)
        size, rate, bowl = rng.normal(size=6), rng.uniform(0.2, 6.0, 6), rng.uniform()
        first = float(10.0 ** rng.uniform(-3.0, 1.3))

        def f(t: float, size: Any = size, rate: Any = rate, bowl: Any = bowl) -> tuple[float, float]:
            waves, slopes = size * np.sin(rate * t), size * rate * np.cos(rate * t)
            return float(bowl * (t - 3.0) ** 2 + waves.sum()), float(2.0 * bowl * (t - 3.0) + slopes.sum())

        ours: list[float] = []
        theirs: list[float] = []

        def at(t: float, f: Any = f, ours: list[float] = ours) -> Point:
            ours.append(t)
            return Point(t, *f(t))

        def objective(x: Any, t: float, d: Any, f: Any = f, theirs: list[float] = theirs) -> tuple[float, Any]:
            theirs.append(float(t))
            loss, slope = f(float(t))
            return loss, torch.tensor([slope], dtype=torch.float64)

        loss, slope = f(0.0)
        if slope < 0.0:
            found, count = strong_wolfe(at, Point(0.0, loss, slope), first, 25, 1e-9, 1.0)
            x, g = torch.zeros(1, dtype=torch.float64), torch.tensor([slope], dtype=torch.float64)
            _, _, want, calls = _strong_wolfe(objective, x, first, torch.ones_like(x), loss, g, g[0])
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=f"seed {seed}")
            np.testing.assert_allclose(found.step, float(want), rtol=1e-9)
            assert count == calls == len(ours)
            lengths.add(count)
    assert {1, 2, 3, 4, 5, 6} <= lengths


@pytest.mark.parametrize("through", ["tensors", "pickle"])
@pytest.mark.parametrize("case", ["fixed steps, short memory", "line search"])
def test_a_resumed_run_is_bit_identical(case: str, through: str) -> None:
    name, settings = CASES[case]

    def run(model: Point, opt: optim.LBFGS, steps: int) -> None:
        for _ in range(steps):
            opt.step(model, lambda m: value(name, m.vector()))

    whole, first, second = (Point(START[name]) for _ in range(3))
    run(whole, optim.LBFGS(whole, **settings), 6)
    opt = optim.LBFGS(first, **settings)
    run(first, opt, 3)
    state, weights = opt.state_dict(), first.state_dict()
    if through == "pickle":
        state = pickle.loads(pickle.dumps(fb.tree_map(lambda v: v.numpy() if isinstance(v, fb.Tensor) else v, state)))
    run(first, opt, 1)
    second.load_state_dict(weights)
    resumed = optim.LBFGS(second, lr=9.0)
    resumed.load_state_dict(state)
    run(second, resumed, 3)
    assert [p.numpy().tobytes() for p in second.parameters()] == [p.numpy().tobytes() for p in whole.parameters()]
    assert resumed.iterations > 3


def test_narrow_parameters_are_moved_in_float32() -> None:
    model = Point(START["quadratic"], dtype="bfloat16")
    opt = optim.LBFGS(model, line_search="strong_wolfe")
    before = opt.step(model, lambda m: value("quadratic", m.vector()))
    assert model.a.dtype is fb.bfloat16
    assert opt.state_dict()["direction"].dtype is fb.float32
    assert value("quadratic", model.vector()).item() < before.item() / 10


def test_frozen_parameters_stay() -> None:
    model = Point(START["quadratic"])
    model.b.frozen = True
    optim.LBFGS(model, line_search="strong_wolfe").step(model, lambda m: value("quadratic", m.vector()))
    assert model.b.tolist() == START["quadratic"][3:].tolist()
    assert model.a.tolist() != START["quadratic"][:3].reshape(3, 1).tolist()


def test_what_does_not_fit_is_refused() -> None:
    model = Point(START["quadratic"])
    opt = optim.LBFGS(model)
    with pytest.raises(fb.UnsupportedError, match=r"call step\(model, loss_fn\)"):
        opt.update(model, fb.grad(lambda m: fb.sum(m.vector()))(model))
    with pytest.raises(fb.ConfigError, match=r"LBFGS\.step: the model holds the parameters"):
        opt.step(Point(START["quadratic"]), lambda m: fb.sum(m.vector()))
    with pytest.raises(nn.StateError, match="Received: the state of SGD"):
        opt.load_state_dict(optim.SGD(model, lr=0.1).state_dict())
    opt.step(model, lambda m: value("quadratic", m.vector()))
    with pytest.raises(nn.StateError, match=r"vectors of 3 elements(.|\n)*\[6\]"):
        optim.LBFGS(nn.Linear(2, 1)).load_state_dict(opt.state_dict())
    model.b = nn.Parameter(model.b.to("cpu:1"))
    with pytest.raises(fb.ConfigError, match="all parameters are on one device"):
        optim.LBFGS(model).step(model, lambda m: fb.sum(m.a))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_loss_without_end_or_of_nan_neither_raises_nor_spoils_parameters(search: str | None) -> None:
    model = Point(START["quadratic"])
    optim.LBFGS(model, line_search=search).step(model, lambda m: fb.sum(m.a) + fb.sum(m.b))  # falls along a line for ever
    assert np.isfinite(model.a.numpy()).all()
    kept = model.a.numpy().copy()
    loss = optim.LBFGS(model, line_search=search).step(model, lambda m: fb.sum(m.a) * float("nan"))
    assert np.isnan(loss.item())
    np.testing.assert_array_equal(model.a.numpy(), kept)


def test_a_search_may_shrink_to_a_point() -> None:
    from firebrick.optim.line_search import Point as Trial
    from firebrick.optim.line_search import cubic_minimum

    assert cubic_minimum(Trial(1.0, 2.0, 3.0), Trial(1.0, 2.0, 3.0)) == 1.0
    assert cubic_minimum(Trial(0.0, 0.0, -1.0), Trial(1.0, -1.0, -1.0), 1.0, 3.0) == 2.0  # a line has no minimum


def test_a_line_search_grows_its_step_by_a_factor_of_ten_at_most() -> None:
    """The parabola's minimum, 1000, is that of the cubic through the first two points: too far to go in one trial."""
    from firebrick.optim.line_search import Point as Trial
    from firebrick.optim.line_search import strong_wolfe

    tried = []

    def at(step: float) -> Trial:
        tried.append(step)
        return Trial(step, (step - 1000.0) ** 2, 2.0 * (step - 1000.0))

    found, count = strong_wolfe(at, at(0.0), 1.0, 25, 1e-12, 1.0)
    assert tried == [0.0, 1.0, 10.0, 100.0]
    assert (found.step, count) == (100.0, 3)
