"""Whole training steps under ``jit``: the bits of the same steps without it, in one graph, whatever optimizer and schedule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick import nn, optim
from firebrick.core import trees
from firebrick.optim import optimizer as optimizer_module

pytestmark = pytest.mark.usefixtures("numpy_kernels")

Hook = Callable[[int, nn.Module, Any], None]
ENGINES = ["cpu", "numpy", "torch:cpu"]
STEPS = 12
ROWS = np.random.default_rng(0)
INPUTS = ROWS.normal(size=(4, 16, 5)).astype(np.float32)
LABELS = ROWS.integers(0, 3, (4, 16))

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": optim.SGD,
    "SGD with momentum": lambda m, lr, **k: optim.SGD(m, lr, momentum=0.9, dampening=0.1, weight_decay=0.01, **k),
    "SGD with Nesterov and a cycle": lambda m, lr, **k: optim.SGD(
        m, lr, momentum=optim.one_cycle_momentum(0.8, 0.9, 20), nesterov=True, **k
    ),
    "Adam": optim.Adam,
    "Adam with amsgrad and a cycle": lambda m, lr, **k: optim.Adam(
        m, lr, betas=(optim.one_cycle_momentum(0.8, 0.9, 20), 0.99), weight_decay=0.01, amsgrad=True, **k
    ),
    "AdamW": optim.AdamW,
    "Adamax": optim.Adamax,
    "NAdam": optim.NAdam,
    "NAdam, decoupled": lambda m, lr, **k: optim.NAdam(m, lr, weight_decay=0.1, decoupled=True, **k),
    "RAdam": optim.RAdam,
    "RAdam, decoupled": lambda m, lr, **k: optim.RAdam(m, lr, weight_decay=0.1, decoupled=True, **k),
    "RMSprop": optim.RMSprop,
    "RMSprop, centered": lambda m, lr, **k: optim.RMSprop(m, lr, momentum=0.9, centered=True, **k),
    "Adagrad": lambda m, lr, **k: optim.Adagrad(m, lr, lr_decay=0.1, weight_decay=0.1, initial=0.1, **k),
    "Adadelta": optim.Adadelta,
    "LAMB": optim.LAMB,
    "Lion": optim.Lion,
    "Muon": optim.Muon,
    "Muon as AdamW": lambda m, lr, **k: optim.Muon(m, lr, adjust="match_rms_adamw", nesterov=False, **k),
}
SCHEDULES: dict[str, Callable[[], Any]] = {
    "number": lambda: 1e-2,
    "step": lambda: optim.step(1e-2, 5),
    "multi_step": lambda: optim.multi_step(1e-2, (3, 7)),
    "exponential": lambda: optim.exponential(1e-2, 0.9),
    "linear": lambda: optim.linear(1e-2, 10),
    "polynomial": lambda: optim.polynomial(1e-2, 20, 2.0),
    "cosine": lambda: optim.cosine(1e-2, 20, warmup=3),
    "cosine_restarts": lambda: optim.cosine_restarts(1e-2, 3, 2),
    "one_cycle": lambda: optim.one_cycle(1e-2, 20),
    "warmup": lambda: optim.warmup(optim.exponential(1e-2, 0.9), 4),
    "sequential": lambda: optim.sequential((1e-2, optim.cosine(1e-2, 10)), (5,)),
    "product": lambda: optim.product((optim.cosine(1e-2, 20), 0.5, optim.reduce_on_plateau(1.0, patience=1, factor=0.5))),
    "reduce_on_plateau": lambda: optim.reduce_on_plateau(1e-2, patience=1, factor=0.5),
    "a function": lambda: lambda step: step * 1e-3,
}
GROUPS = [{"params": "*.bias", "lr": optim.step(1e-3, 4)}, {"params": "layers.4.weight", "lr_scale": 2.0}]


class Run:
    """Some steps of a small net with dropout, clipping and averages: what they came to, as bytes, and how."""

    def __init__(
        self, optimizer: Callable[..., Any], rate: Any, jit: bool, *, device: str = "cpu", groups: Any = (),
        hook: Hook | None = None, bias: bool = True,
    ) -> None:  # fmt: skip
        fb.random.seed(0)
        first = nn.Linear(5, 8, bias=bias)
        model = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)).to(device)
        opt = optimizer(model, rate, groups=[dict(g) for g in groups])
        ema = optim.EMA(model, 0.9, warmup=True)
        differentiated = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))

        def step(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
            loss, grads = differentiated(model, x, y)
            norm = optim.clip_norm(grads, 0.5)
            opt.update(model, grads)
            ema.update()
            return loss, norm

        self.step = fb.jit(step) if jit else step
        self.shown = []
        for i in range(STEPS):
            x, y = fb.asarray(INPUTS[i % 4], device=device), fb.asarray(LABELS[i % 4], device=device)
            self.shown += [t.numpy().tobytes() for t in self.step(x, y)]
            for plateau in opt.plateaus():
                plateau.observe(1.0)
            if hook is not None:
                hook(i, model, opt)
        held = {"model": dict(model.state_dict()), "optimizer": opt.state_dict(), "ema": ema.state_dict()}
        flat = trees.flatten(held)[0]
        self.losses = [np.frombuffer(b, np.float32) for b in self.shown]
        self.values = [(str(n), t.numpy()) for part in held.values() for n, t in _tensors(part)]
        self.state = [t.numpy().tobytes() if isinstance(t, fb.Tensor) else repr(t) for t in flat]


def _tensors(held: Any, name: str = "") -> list[tuple[str, fb.Tensor]]:
    """The tensors of nested dicts by name."""
    if isinstance(held, dict):
        return [found for k, v in held.items() for found in _tensors(v, f"{name}.{k}")]
    return [(name, held)] if isinstance(held, fb.Tensor) else []


def compared(optimizer: Callable[..., Any], rate: Callable[[], Any], **more: Any) -> Any:
    """Run without and with ``jit``, hold them against each other bit for bit, and return the function under ``jit``."""
    plain, compiled = (Run(optimizer, rate(), jit, **more) for jit in (False, True))
    assert compiled.shown == plain.shown
    assert compiled.state == plain.state
    assert len(set(plain.shown)) > STEPS  # the runs are no standstill
    return compiled.step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gives_the_same_bits_in_one_graph(name: str) -> None:
    assert compared(OPTIMIZERS[name], SCHEDULES["cosine"], groups=GROUPS).traces == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gives_the_same_in_kernels_of_its_own(name: str) -> None:
    # without the bias that batch normalisation takes away again: its gradient is 0 but for rounding
    plain = Run(OPTIMIZERS[name], SCHEDULES["cosine"](), False, groups=GROUPS, bias=False)
    with fb.config.scope(cpu_compile=True), kernels_of_any_size():
        compiled = Run(OPTIMIZERS[name], SCHEDULES["cosine"](), True, groups=GROUPS, bias=False)
    assert compiled.step.traces == 1
    np.testing.assert_allclose(compiled.losses, plain.losses, rtol=1e-4)
    assert len(plain.values) == len(compiled.values) > 10
    for (where, got), (_, want) in zip(compiled.values, plain.values, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=where)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_gives_the_same_bits_in_one_graph(name: str) -> None:
    assert compared(optim.Adam, SCHEDULES[name]).traces == 1


@pytest.mark.parametrize("device", ENGINES[1:])
@pytest.mark.parametrize("name", ["AdamW", "SGD with momentum", "NAdam", "Muon"])
def test_other_engines_give_the_same_bits_in_one_graph(name: str, device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch")
    assert compared(OPTIMIZERS[name], SCHEDULES["product"], device=device, groups=GROUPS).traces == 1


# what changes between steps


def test_a_number_assigned_as_learning_rate_acts_at_once_and_traces_nothing() -> None:
    def assign(i: int, model: nn.Module, opt: Any) -> None:
        if i in (3, 6):
            opt.learning_rate = 1e-3 * i

    assert compared(optim.Adam, SCHEDULES["number"], hook=assign).traces == 1


def test_another_kind_of_schedule_is_a_graph_of_its_own_and_a_number_again_is_the_first_one() -> None:
    def assign(i: int, model: nn.Module, opt: Any) -> None:
        if i in (3, 6):
            opt.learning_rate = optim.cosine(1e-2, 10) if i == 3 else 2e-3

    step = compared(optim.Adam, SCHEDULES["number"], hook=assign)
    assert step.traces == 2
    assert "opt.schedule: object constant → object cosine" in fb.explain_recompiles(step)[1].reason


def test_frozen_parameters_keep_their_values_and_count_the_steps_they_missed() -> None:
    def freeze(i: int, model: Any, opt: Any) -> None:
        if i == 3:
            model.layers[0].freeze()
        if i == 6:
            model.layers[0].unfreeze()

    step = compared(optim.NAdam, SCHEDULES["cosine"], hook=freeze)
    assert step.traces == 3  # none frozen; some; none, with steps that were missed
    assert "float32[8,5] on cpu:0, frozen" in fb.explain_recompiles(step)[1].reason


def test_a_parameter_that_is_used_now_and_then_is_updated_now_and_then() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.always, self.sometimes = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any, both: bool) -> Any:
            return self.always(self.sometimes(x) if both else x)

    def run(jit: bool) -> tuple[list[bytes], dict[str, int], Any]:
        fb.random.seed(1)
        model = Two()
        opt = optim.Adam(model, 1e-2)

        def step(x: fb.Tensor, both: bool) -> None:
            opt.update(model, fb.grad(lambda m: fb.sum(m(x, both) ** 2.0))(model))

        fn = fb.jit(step) if jit else step
        for i in range(9):
            fn(fb.ones((2, 3)), i % 3 == 0)
        held = trees.flatten([dict(model.state_dict()), opt.state_dict()["moments"]])[0]
        return [t.numpy().tobytes() for t in held], opt.state_dict()["missed"], fn

    plain, missed, _ = run(False)
    compiled, counted, fn = run(True)
    assert compiled == plain
    assert counted == missed == {"sometimes.weight": 6, "sometimes.bias": 6}
    assert fn.traces == 3  # with both; with one, which begins to count; with both and the count


@pytest.mark.parametrize("rate", ["number", "reduce_on_plateau", "product"])
@pytest.mark.parametrize("name", ["Adam", "SGD with momentum", "NAdam", "Muon"])
def test_a_state_that_is_loaded_goes_on_in_the_same_graph(name: str, rate: str) -> None:
    kept: dict[str, Any] = {}

    def load(i: int, model: nn.Module, opt: Any) -> None:
        if i == 3:
            kept.update(opt=opt.state_dict(), model=dict(model.state_dict()))
        if i == 7:
            opt.load_state_dict(kept["opt"])
            model.load_state_dict(kept["model"])

    assert compared(OPTIMIZERS[name], SCHEDULES[rate], hook=load, groups=GROUPS).traces == 1


def test_training_and_evaluation_are_two_graphs_however_often_they_alternate() -> None:
    def switch(i: int, model: nn.Module, opt: Any) -> None:
        model.train() if i % 4 < 2 else model.eval()

    assert compared(optim.Adam, SCHEDULES["number"], hook=switch).traces == 2


# what cannot be


def test_lbfgs_is_no_graph_and_says_what_can_be_one() -> None:
    model = nn.Linear(2, 1)
    opt = optim.LBFGS(model, line_search="strong_wolfe")
    before = model.weight.tolist()
    x, y = fb.asarray(INPUTS[0][:, :2]), fb.asarray(INPUTS[0][:, 2:3])

    def loss(m: nn.Module) -> fb.Tensor:
        return fb.mse_loss(m(x), y)

    with pytest.raises(fb.DataDependentError, match=r"LBFGS reads the loss(.|\n)*under jit, at .*test_under_jit") as caught:
        fb.jit(lambda: opt.step(model, loss))()
    assert "fb.jit(loss_fn)" in caught.value.remedy
    assert model.weight.tolist() == before
    assert opt.evaluations == 0
    compiled = fb.jit(loss)  # what the error advises
    first = opt.step(model, compiled).item()
    assert loss(model).item() < first
    assert compiled.traces == 1


def test_an_optimizer_left_behind_by_its_model_says_so() -> None:
    model = nn.Linear(2, 1)
    opt = optim.Adam(model)
    model.to("cpu:1")

    @fb.jit
    def step(x: fb.Tensor) -> None:
        opt.update(model, fb.grad(lambda m: fb.sum(m(x)))(model))

    x = fb.ones((1, 2), device="cpu:1")
    with pytest.raises(
        fb.DeviceMismatchError, match=r"state lies on the device of its parameters(.|\n)*step counter"
    ) as caught:
        step(x)
    assert "load_state_dict" in caught.value.remedy
    opt.load_state_dict(opt.state_dict())
    step(x)
    assert opt.step == 1


def test_a_norm_that_is_not_finite_is_an_error_of_each_run_and_changes_nothing() -> None:
    model = nn.Linear(2, 1)
    opt = optim.SGD(model, 0.1)

    @fb.jit
    def step(x: fb.Tensor) -> fb.Tensor:
        grads = fb.grad(lambda m: fb.sum(m(x)))(model)
        norm = optim.clip_norm(grads, 1.0, error_if_nonfinite=True)
        opt.update(model, grads)
        return norm

    assert step(fb.ones((1, 2))).item() == pytest.approx(3**0.5)
    before = model.weight.tolist()
    with pytest.raises(fb.GradientError, match="the norm of the gradients is finite"):
        step(fb.asarray([[1.0, np.inf]]))
    assert model.weight.tolist() == before
    assert opt.step == 1
    assert step(fb.ones((1, 2))).item() > 0
    assert step.traces == 1


def test_the_step_counter_and_the_rate_are_read_outside() -> None:
    model = nn.Linear(2, 1)
    opt = optim.SGD(model, optim.cosine(0.1, 10))
    for read, remedy in (
        (lambda: opt.step, r"optimizer\.counter is the number as a tensor"),
        (lambda: opt.learning_rate, "return the tensor and read it after the call|static_argnames"),
    ):
        with pytest.raises(fb.DataDependentError, match=remedy):
            fb.jit(read)()


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam"])
def test_an_update_after_missed_ones_repeats_none_from_before_them(name: str) -> None:
    """Eagerly, updates that repeat are run by what the last one was made of, which has no count of missed updates."""

    class Two(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Parameter(fb.asarray([-1.0, 0.25, 1.0])), nn.Parameter(fb.ones(3))

    def trained(step: Any) -> np.ndarray[Any, Any]:
        model = Two()
        optimizer = getattr(optim, name)(model, optim.cosine(0.05, steps=20))
        for k in range(16):

            def loss(m: Any, without: bool = 7 <= k < 12) -> fb.Tensor:
                return fb.sum(m.b**2) + (0.0 if without else fb.sum(fb.sin(m.a * 3.0)))

            step(optimizer, model, fb.value_and_grad(loss)(model)[1])
        return model.a.numpy()

    plain = trained(lambda optimizer, model, grads: optimizer.update(model, grads))

    def alone(optimizer: Any, model: Any, grads: Any) -> None:
        optimizer_module._AGAIN.clear()  # so that no update repeats another
        optimizer.update(model, grads)

    np.testing.assert_array_equal(plain, trained(alone))


def test_the_number_of_updates_has_no_value_in_a_graph() -> None:
    layer = nn.Linear(2, 1)
    optimizer = optim.SGD(layer, lr=0.1)
    with pytest.raises(
        fb.DataDependentError,
        match=r"optimizer\.step is the number .*\nReceived: optimizer.step under jit\.\nRemedy: write optimizer\.update",
    ):
        fb.jit(lambda x: x * int(optimizer.step))(fb.ones(1))


@pytest.mark.parametrize("changed", [False, True])
def test_averages_that_are_applied_in_a_graph_are_those_of_the_model_and_changes_raise(changed: bool) -> None:
    layer = nn.Linear(2, 1)
    ema = optim.EMA(layer, 0.5)
    with fb.no_grad():
        layer.weight[:] = layer.weight * 0.0 + 1.0
        layer.bias[:] = layer.bias * 0.0
    ema.update()
    x = fb.ones((1, 2))
    with ema.applied():
        want = layer(x).tolist()

    def run(x: fb.Tensor) -> fb.Tensor:
        with ema.applied():
            y = layer(x)
            if changed:
                layer.weight[:] = layer.weight * 2.0
        return y

    if changed:
        with pytest.raises(fb.ConfigError, match=r"parameters stay the averages within the block\nReceived: changes of weight"):
            fb.jit(run)(x)
    else:
        np.testing.assert_allclose(fb.jit(run)(x).tolist(), want, rtol=1e-6)
    assert layer.weight.tolist() == [[1.0, 1.0]]
