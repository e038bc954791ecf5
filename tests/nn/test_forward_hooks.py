"""Forward hooks see and change what a module returns: eagerly, in gradients, under ``jit``, and in copies of the module."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import data, nn, optim, train
from firebrick.core.errors import StateChangedError

X = fb.asarray([[1.0, -2.0], [3.0, 4.0]])


def doubled(module: nn.Module, args: tuple[Any, ...], result: Any) -> Any:
    return result * 2.0


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def test_a_hook_gets_the_module_its_arguments_and_its_result() -> None:
    net, seen = model(), []
    net[1].register_forward_hook(lambda *given: seen.append(given))
    result = net(X)
    ((module, (x,), y),) = seen
    assert module is net[1]
    assert fb.all(y == fb.relu(x))
    assert fb.all(net[2](y) == result)


def test_hooks_run_in_the_order_of_their_registration_each_on_what_the_last_returned() -> None:
    layer, order = nn.ReLU(), []
    layer.register_forward_hook(lambda m, a, y: order.append(float(fb.sum(y))))
    layer.register_forward_hook(doubled)
    layer.register_forward_hook(lambda m, a, y: order.append(float(fb.sum(y))))
    assert layer(X).tolist() == [[2.0, 0.0], [6.0, 8.0]]
    assert order == [8.0, 16.0]


def test_one_function_registered_twice_is_removed_once_for_each_handle() -> None:
    layer = nn.ReLU()
    first, second = layer.register_forward_hook(doubled), layer.register_forward_hook(doubled)
    assert layer(fb.ones(())).item() == 4.0
    first.remove()
    first.remove()
    assert layer(fb.ones(())).item() == 2.0
    second.remove()
    assert layer(fb.ones(())).item() == 1.0


def test_a_hook_ends_with_its_block_also_by_an_exception() -> None:
    layer = nn.ReLU()
    with pytest.raises(ZeroDivisionError), layer.register_forward_hook(lambda m, a, y: 1 / 0):
        layer(X)
    assert fb.all(layer(X) == fb.relu(X))


def test_a_hook_that_is_no_function_is_refused() -> None:
    with pytest.raises(fb.ConfigError, match="a forward hook is a function"):
        nn.ReLU().register_forward_hook(None)  # type: ignore[arg-type]


def test_gradients_flow_through_what_a_hook_returns() -> None:
    layer = nn.Linear(2, 1)
    loss = lambda m: fb.sum(m(X))  # noqa: E731
    plain = fb.grad(loss)(layer)
    layer.register_forward_hook(doubled)
    for of in (fb.grad(loss)(layer), fb.jit(fb.grad(loss))(layer), fb.grad(fb.checkpoint(loss))(layer)):
        assert fb.allclose(of.get(layer.weight), 2.0 * plain.get(layer.weight))


def test_a_checkpointed_module_calls_its_hook_again_in_the_backward_pass() -> None:
    layer, calls = nn.Linear(2, 1), []
    layer.register_forward_hook(lambda m, a, y: calls.append(y.shape))
    fb.grad(lambda m: fb.sum(fb.checkpoint(m)(X)))(layer)
    assert calls == [(2, 1), (2, 1)]


def test_a_graph_is_made_anew_when_a_hook_is_added_and_when_it_is_removed() -> None:
    net = model()
    compiled = fb.jit(lambda x: net(x))
    plain = compiled(X).tolist()
    handle = net.register_forward_hook(doubled)
    assert compiled(X).tolist() == (2.0 * net.layers[2](fb.relu(net.layers[0](X)))).tolist()
    handle.remove()
    assert compiled(X).tolist() == plain


def test_a_hook_whose_captured_value_changes_is_traced_again() -> None:
    layer, scale = nn.ReLU(), {"by": 2.0}
    layer.register_forward_hook(lambda m, a, y: y * scale["by"])
    compiled = fb.jit(lambda x: layer(x))
    assert compiled(fb.ones(2)).tolist() == [2.0, 2.0]
    scale["by"] = 3.0
    assert compiled(fb.ones(2)).tolist() == [3.0, 3.0]


def test_a_hook_under_jit_writes_a_buffer_at_each_run() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            self.layer, self.largest = nn.Linear(2, 3), nn.Buffer(fb.zeros(()))
            self.layer.register_forward_hook(self.note)

        def note(self, module: nn.Module, args: tuple[Any, ...], result: fb.Tensor) -> None:
            self.largest[...] = fb.max(fb.abs(result)).detach()

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return self.layer(x)

    net = Watched()
    compiled = fb.jit(lambda x: net(x))
    for x in (X, 2.0 * X, 3.0 * X):
        assert net.largest.item() != (largest := float(fb.max(fb.abs(net.layer.forward(x)))))
        compiled(x)
        assert net.largest.item() == pytest.approx(largest)


def test_a_hook_that_keeps_a_traced_value_in_a_list_raises() -> None:
    layer, kept = nn.ReLU(), []
    layer.register_forward_hook(lambda m, a, y: kept.append(y))
    with pytest.raises(StateChangedError, match=r"keeps a tensor of its trace|changed something"):
        fb.jit(lambda x: layer(x))(X)
    layer._forward_hooks = ()
    assert fb.jit(lambda x: layer(x))(X).shape == X.shape


def test_copies_have_the_hooks_and_each_removes_its_own() -> None:
    layer = nn.Linear(2, 1)
    plain = layer(X)
    handle = layer.register_forward_hook(doubled)
    for twin in (copy.deepcopy(layer), layer.fork(), pickle.loads(pickle.dumps(layer))):
        assert fb.all(twin(X) == 2.0 * plain)
    handle.remove()
    assert fb.all(layer(X) == plain)


def test_the_owner_of_a_hook_is_not_copied_with_the_module() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.shapes: list[Any] = []

        def note(self, module: nn.Module, args: tuple[Any, ...], result: fb.Tensor) -> None:
            self.shapes.append(result.shape)

    layer, recorder = nn.ReLU(), Recorder()
    layer.register_forward_hook(recorder.note)
    copy.deepcopy(layer)(X)
    assert recorder.shapes == [(2, 2)]


def test_a_module_as_a_hook_is_no_part_of_the_model() -> None:
    class Record(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(fb.ones(()))

        def forward(self, module: nn.Module, args: tuple[Any, ...], result: fb.Tensor) -> fb.Tensor:
            return result * self.weight

    net = nn.Linear(2, 1)
    net.register_forward_hook(Record())
    assert [n for n, _ in net.named_parameters()] == ["weight", "bias"]
    assert set(net.state_dict()) == {"weight", "bias"}
    assert repr(net) == repr(nn.Linear(2, 1))
    assert net(X).shape == (2, 1)


def test_a_summary_does_not_call_hooks() -> None:
    net = model()
    net[0].register_forward_hook(lambda m, a, y: y.numpy())
    assert "[2, 1]" in net.summary((2, 2))
    assert len(net[0]._forward_hooks) == 1


def test_a_learner_trains_with_a_hook_on_one_device_and_on_two() -> None:
    loader = data.DataLoader(data.ArrayDataset(np.ones((8, 2)), np.ones((8, 1))), 4)
    weights = []
    for strategy in (None, train.DataParallel(["cpu:0", "cpu:1"])):
        net = nn.Linear(2, 1)
        net.weight, net.bias = fb.ones((1, 2)), fb.zeros(1)
        net.register_forward_hook(doubled)
        train.Learner(net, optim.SGD(net, lr=0.01), fb.mse_loss, log=None, strategy=strategy).fit(loader, epochs=2)
        weights.append(net.weight.tolist())
    # loss (2 (w1 + w2 + b) - 1)²: its gradient by a weight is 4 (2 s - 1), and s falls by 3 · 0.04 (2 s - 1) a step
    s = 2.0
    w = 1.0
    for _ in range(4):
        w, s = w - 0.04 * (2 * s - 1), s - 0.12 * (2 * s - 1)
    for found in weights:
        np.testing.assert_allclose(found, [[w, w]], rtol=1e-5)
