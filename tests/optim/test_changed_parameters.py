"""Between two steps a model changes its dtype: moments and averages follow it, under ``jit`` as without it."""

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ShapeError

pytestmark = pytest.mark.usefixtures("numpy_kernels")
X = np.random.default_rng(0).normal(size=(4, 3))


def run(device: str, jit: bool, start: Any, goal: Any, *, adam: bool = True) -> list[Any]:
    fb.random.seed(0)
    model = nn.Linear(3, 2).to(device).astype(start)
    opt, ema = optim.Adam(model, 0.01, amsgrad=True), optim.EMA(model, 0.5)
    differentiated = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))

    def step(x: fb.Tensor) -> fb.Tensor:
        loss, grads = differentiated(model, x)
        if adam:
            opt.update(model, grads)
        ema.update()
        return loss

    stepped = fb.jit(step) if jit else step
    for dtype in (start, start, goal, goal, start):
        model.astype(dtype)
        stepped(fb.asarray(X, device=device).astype(dtype))
        held = [*opt.state_dict()["moments"].values(), ema.averages]
        assert all(t.dtype is (dtype if dtype.itemsize >= 4 else fb.float32) for h in held for t in h.values())
    tensors = [t for h in held for t in h.values()]
    return [model.weight.tolist(), opt.step, ema.step, *(t.tolist() for t in tensors)]


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize(
    ("start", "goal"), [(fb.float32, fb.float64), (fb.float64, fb.float32), (fb.float32, fb.bfloat16)], ids=str
)
def test_moments_and_averages_follow_a_model_that_is_cast_between_compiled_steps(device: str, start: Any, goal: Any) -> None:
    eager, compiled = (run(device, jit, start, goal) for jit in (False, True))
    assert eager[1:3] == [5, 5] == compiled[1:3]
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2 if goal is fb.bfloat16 else 1e-5, atol=1e-6)


def test_averages_alone_follow_too() -> None:
    run("numpy", True, fb.float32, fb.float64, adam=False)


@pytest.mark.parametrize("jit", [False, True])
def test_a_parameter_of_another_shape_than_its_moments_is_refused_by_name(jit: bool) -> None:
    model = nn.Linear(3, 2).to("numpy")
    opt, ema = optim.Adam(model), optim.EMA(model)

    def step() -> None:
        opt.update(model, fb.grad(lambda m: fb.sum(m.weight * m.weight) + fb.sum(m.bias))(model))

    stepped = fb.jit(step) if jit else step
    stepped()
    model.weight._rebind(fb.ones((1, 3), device="numpy"))
    with pytest.raises(ShapeError, match=r"the moments of a parameter have its shape\n.*weight") as caught:
        stepped()
    assert "make a new optimizer" in str(caught.value)
    with pytest.raises(ShapeError, match="the average of a parameter has its shape"):
        ema.update()
    assert opt.step == 1
