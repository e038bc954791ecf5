"""Modules: parts by type, ties by identity, state, places, and the errors on the way in."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DeviceMismatchError, DTypeError, GradientError, OperandError, ShapeError


class Tied(nn.Module):
    """Two names for one weight, one of them inside a list, and one part in two places."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.again = [self.second, nn.Linear(3, 2)]
        self.count = nn.Buffer(fb.asarray(0))
        self.note = fb.ones(2)  # a plain tensor is no state

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.again[1](self.again[0](self.first(x)))


def test_parts_are_found_in_attributes_lists_tuples_and_dicts_in_their_order() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.weights = {"b": nn.Parameter(fb.zeros(1)), "a": [nn.Parameter(fb.zeros(2))]}
            self.layers = (nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1, bias=False)))

    assert [n for n, _ in Model().named_parameters()] == [
        "weights.b",
        "weights.a.0",
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.layers.0.weight",
    ]


def test_a_shared_parameter_is_reported_once_and_trained_once() -> None:
    model = Tied()
    names = [n for n, _ in model.named_parameters()]
    assert names == ["first.weight", "first.bias", "second.bias", "again.1.weight", "again.1.bias"]
    assert [n for n, _ in model.named_buffers()] == ["count"]
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 3)))))(model)
    assert len(grads) == len(names)
    assert grads[model.second.weight] is grads[model.first.weight]


def test_parameters_and_buffers_are_told_apart_by_type() -> None:
    model = nn.Module()
    model.weight_buffer = nn.Parameter(fb.zeros(1))
    model.parameter = nn.Buffer(fb.zeros(1))
    assert [n for n, _ in model.named_parameters()] == ["weight_buffer"]
    assert [n for n, _ in model.named_buffers()] == ["parameter"]


def test_a_parameter_needs_a_floating_tensor() -> None:
    with pytest.raises(DTypeError, match=r"a parameter has a floating dtype\nReceived: value: int64\[2\] on cpu:0"):
        nn.Parameter(fb.asarray([1, 2]))
    with pytest.raises(OperandError, match="Parameter: value must be a Firebrick tensor"):
        nn.Parameter(np.zeros(2))  # type: ignore[arg-type]


def test_assigning_a_tensor_over_a_parameter_changes_its_values_and_keeps_its_identity() -> None:
    model = Tied()
    held = model.first.weight
    model.first.weight = fb.ones((3, 3))
    assert model.first.weight is held is model.second.weight
    assert model.second.weight.tolist() == [[1.0] * 3] * 3
    replaced = model.first.weight = nn.Parameter(fb.zeros((3, 3)))
    assert model.first.weight is replaced
    assert model.second.weight is held


@pytest.mark.parametrize("how", [lambda f: f, fb.jit])
def test_gradients_pass_through_a_parameter_to_the_tensor_that_it_was_given(how) -> None:
    layer = nn.Linear(2, 1, bias=False)

    def loss(w: fb.Tensor) -> fb.Tensor:
        generated = copy.deepcopy(layer)
        generated.weight = 3.0 * w
        return fb.sum(generated(fb.asarray([[5.0, 7.0]]))) + fb.sum(w)

    assert how(fb.grad(loss))(fb.ones((1, 2))).tolist() == [[16.0, 22.0]]


def test_a_buffer_takes_the_value_of_a_tracked_tensor_without_its_history() -> None:
    model = nn.Module()
    model.running = nn.Buffer(fb.zeros(2))
    model.running = fb.ones(2).require_grad() * 2.0
    assert (model.running.tolist(), model.running.tracked) == ([2.0, 2.0], False)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (lambda: fb.ones((2, 2)), ShapeError, r"Linear: a new value of weight has its shape\nReceived: weight: float32\[3,3\]"),
        (lambda: fb.ones((3, 3), dtype=fb.float64), DTypeError, "Linear: a new value of weight has its dtype"),
        (lambda: fb.ones((3, 3), device="cpu:1"), DeviceMismatchError, r'Remedy: move it: value.to\("cpu:0"\)'),
    ],
)
def test_a_new_value_of_another_kind_is_refused(value, error, text: str) -> None:
    model = Tied()
    before = model.first.weight.tolist()
    with pytest.raises(error, match=text):
        model.first.weight = value()
    assert model.first.weight.tolist() == before


def test_errors_name_a_parameter_by_its_path_from_the_root() -> None:
    model = fb.models.cnn(image=8)
    with pytest.raises(DeviceMismatchError) as e:
        model(fb.zeros((2, 1, 8, 8), device="cpu:1"))
    assert str(e.value) == (
        "Conv2d: all tensors must be on one device\n"
        "Received: x: float32[2,1,8,8] on cpu:1 and conv1.weight: float32[16,1,3,3] on cpu:0.\n"
        'Remedy: move the input, x.to("cpu:0"), or the model, model.to("cpu:1").'
    )


def test_arguments_are_checked_before_any_part_of_a_layer_runs() -> None:
    class Outer(nn.Module):
        ran = False

        def __init__(self) -> None:
            self.scale = nn.Parameter(fb.ones(()))

        def forward(self, xs: list[fb.Tensor], by: fb.Tensor | None = None) -> None:
            self.ran = True

    model = Outer()
    here, there = fb.ones(2), fb.ones(2, device="cpu:1")
    with pytest.raises(DeviceMismatchError, match=r"xs\[0\]: float32\[2\] on cpu:0 and xs\[1\]: float32\[2\] on cpu:1"):
        model([here, there])
    with pytest.raises(DeviceMismatchError, match=r"xs\[0\]: float32\[2\] on cpu:0 and by: float32\[2\] on cpu:1"):
        model([here], by=there)
    with pytest.raises(OperandError, match="Outer: by must be a Firebrick tensor"):
        model([here], by=np.ones(2))  # type: ignore[arg-type]
    assert not model.ran


def test_a_part_that_is_replaced_is_named_by_its_path_too() -> None:
    model = fb.models.cnn(image=8)
    model.eval()(fb.zeros((1, 1, 8, 8)))
    model.linear2 = nn.Linear(128, 3)
    assert model.linear2.weight.label == "linear2.weight"
    assert dict(model.named_parameters())["linear2.weight"] is model.linear2.weight


def test_a_parameter_has_the_label_that_it_is_given_or_else_its_tensors() -> None:
    x = fb.ones(2)
    assert nn.Parameter(x).label is None
    assert nn.Parameter(x, label="own").label == "own"
    x.label = "theirs"
    assert (nn.Parameter(x).label, nn.Parameter(x, label="own").label) == ("theirs", "own")


def test_labels_are_the_first_path_from_the_outermost_module() -> None:
    inner = Tied()
    inner(fb.ones((1, 3)))
    assert inner.second.weight.label == "first.weight"
    outer = nn.Sequential(inner)
    outer(fb.ones((1, 3)))
    assert inner.second.weight.label == "layers.0.first.weight"
    assert next(n for n, _ in inner.named_parameters()) == "first.weight"
    assert inner.first.weight.label == "layers.0.first.weight"


# state


def test_a_state_is_a_snapshot_that_later_changes_do_not_reach() -> None:
    model = Tied()
    state = model.state_dict()
    before = state["first.weight"].tolist()
    model.first.weight = fb.zeros((3, 3))
    assert state["first.weight"].tolist() == before
    assert sorted(state) == ["again.1.bias", "again.1.weight", "count", "first.bias", "first.weight", "second.bias"]
    assert state.aliases == {
        "second.weight": "first.weight",
        "again.0.weight": "first.weight",
        "again.0.bias": "second.bias",
    }


@pytest.mark.parametrize("through", ["as it is", "pickle", "numpy"])
def test_a_state_round_trip_restores_values_and_keeps_identity_and_ties(through: str) -> None:
    a, b = Tied(), Tied()
    state = a.state_dict()
    if through == "pickle":
        state = pickle.loads(pickle.dumps(state))
    if through == "numpy":
        state = nn.StateDict({k: v.numpy() for k, v in state.items()}, state.aliases)  # type: ignore[misc]
    held = b.parameters()
    assert b.load_state_dict(state) == ([], [])
    assert all(p is q for p, q in zip(held, b.parameters(), strict=True))
    assert b.first.weight is b.second.weight
    x = fb.random.Generator(0).normal((2, 3))
    assert a(x).tolist() == b(x).tolist()
    b.first.weight = fb.zeros((3, 3))  # the two do not share what they show
    assert a(x).tolist() != b(x).tolist()


def test_a_tied_state_fills_an_untied_model() -> None:
    tied, free = Tied(), Tied()
    free.second.weight = nn.Parameter(fb.zeros((3, 3)))
    free.load_state_dict(tied.state_dict())
    assert free.second.weight is not free.first.weight
    assert free.second.weight.tolist() == tied.first.weight.tolist()


def test_an_untied_state_fills_a_tied_model_only_if_its_values_agree() -> None:
    tied, free = Tied(), Tied()
    free.second.weight = nn.Parameter(fb.zeros((3, 3)))
    with pytest.raises(nn.StateError, match=r"second.weight: differs from first.weight, which it is tied to here"):
        tied.load_state_dict(free.state_dict())
    free.second.weight = free.first.weight.detach()
    tied.load_state_dict(free.state_dict())
    assert tied.first.weight.tolist() == free.first.weight.tolist()


def test_a_state_that_does_not_fit_lists_every_difference_and_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = {k: v.tolist() for k, v in model.state_dict().items()}
    state = dict(model.state_dict())
    del state["layers.0.bias"]
    state["layers.9.bias"] = fb.zeros(3)
    state["layers.1.weight"] = fb.zeros((1, 4))
    state["layers.1.bias"] = fb.zeros(1, dtype=fb.float64)
    state["layers.0.weight"] = fb.zeros((3, 2))
    with pytest.raises(nn.StateError) as e:
        model.load_state_dict(state)
    assert str(e.value) == (
        "Sequential: a state has the paths, shapes and dtypes of the module that loads it\n"
        "Received: missing: layers.0.bias; unexpected: layers.9.bias; "
        "different: layers.1.weight: float32[1, 4] for float32[1, 3], layers.1.bias: float64[1] for float32[1].\n"
        "Remedy: build the model with the same settings; strict=False ignores missing and unexpected paths. "
        "Nothing was loaded."
    )
    assert {k: v.tolist() for k, v in model.state_dict().items()} == before


@pytest.mark.parametrize("value", [[0.0, 0.0, 0.0], 1.0])
def test_a_state_of_anything_but_arrays_is_refused_by_name(value: object) -> None:
    model = nn.Linear(2, 3)
    with pytest.raises(nn.StateError, match=r"bias: builtins\.\w+ is neither a Firebrick tensor nor a NumPy array"):
        model.load_state_dict({"weight": fb.ones((3, 2)), "bias": value})


def test_a_load_that_is_not_strict_says_what_it_left_out() -> None:
    model = nn.Linear(2, 3)
    found = model.load_state_dict({"weight": fb.ones((3, 2)), "other": fb.ones(1)}, strict=False)
    assert (found.missing, found.unexpected) == (["bias"], ["other"])
    assert model.weight.tolist() == [[1.0, 1.0]] * 3


# modes and places


def test_frozen_parameters_get_no_gradient_until_unfrozen() -> None:
    model = Tied()
    model.first.freeze()
    assert [n for n, _ in model.trainable_parameters()] == ["second.bias", "again.1.weight", "again.1.bias"]
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 3)))))(model)
    assert model.first.weight not in grads
    with pytest.raises(GradientError, match=r"first.bias\): it was never tracked"):
        grads[model.first.bias]
    model.unfreeze()
    assert len(model.trainable_parameters()) == 5


def test_train_and_eval_reach_every_part() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    assert model.training
    assert [m.training for _, m in model.eval().modules()] == [False] * 4
    assert [m.training for _, m in model.train().modules()] == [True] * 4


@pytest.mark.parametrize("device", ["numpy", "cpu:1", "torch:cpu"])
def test_moving_keeps_identity_ties_and_values(device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    model = Tied()
    x = fb.random.Generator(0).normal((2, 3))
    held, before = model.parameters(), model(x).numpy()
    assert model.to(device) is model
    assert all(p is q and p.device is fb.device(device) for p, q in zip(held, model.parameters(), strict=True))
    assert model.count.device is fb.device(device)
    assert model.first.weight is model.second.weight
    within(model(x.to(device)), before, 16, scale=np.abs(before).max())
    assert model.first.weight.label == "first.weight"


def test_moving_to_a_device_that_is_not_there_changes_nothing() -> None:
    model = Tied()
    with pytest.raises(fb.DeviceError):
        model.to("cpu:99")
    assert {p.device.name for p in model.parameters()} == {"cpu:0"}


def test_gradients_are_not_read_by_parameters_that_moved_since() -> None:
    model = nn.Linear(2, 1)
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 2)))))(model)
    model.to("cpu:1")
    with pytest.raises(GradientError, match="rebound since"):
        grads[model.weight]


def test_astype_casts_floating_parameters_and_buffers_in_place() -> None:
    model = Tied()
    held = model.first.weight
    model.astype(fb.float64)
    assert model.first.weight is held
    assert {t.dtype.name for t in model.parameters()} == {"float64"}
    assert model.count.dtype is fb.int64
    with pytest.raises(DTypeError, match="a module's parameters have a floating dtype\nReceived: int32"):
        model.astype(fb.int32)


@pytest.mark.parametrize("how", ["fork", "deepcopy", "pickle", "fork to cpu:1"])
def test_a_copy_has_equal_values_ties_and_generators_and_a_life_of_its_own(how: str) -> None:
    model = nn.Sequential(Tied(), nn.Dropout(0.5, seed=3))
    model[1].generator.uniform(())
    model[0].first.bias.frozen = True
    twin = {
        "fork": lambda: model.fork(),
        "deepcopy": lambda: copy.deepcopy(model),
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "fork to cpu:1": lambda: model.fork("cpu:1"),
    }[how]()
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert twin[0].first.weight is twin[0].second.weight is not model[0].first.weight
    assert isinstance(twin[0].count, nn.Buffer)
    assert twin[0].first.bias.frozen
    home = "cpu:1" if how == "fork to cpu:1" else "cpu:0"
    assert {p.device.name for p in twin.parameters()} == {home}
    x = fb.ones((4, 3))
    y = twin(x.to(home)).tolist()
    assert y == model(x).tolist()  # the same dropout mask, too
    opt = fb.optim.SGD(twin, lr=1.0)
    opt.update(twin, fb.grad(lambda m: fb.sum(m(x.to(home))))(twin))
    assert model.state_dict()["layers.0.second.bias"].tolist() != twin.state_dict()["layers.0.second.bias"].tolist()


def test_a_fork_of_a_module_being_differentiated_is_untracked() -> None:
    model = nn.Linear(2, 1)
    seen = []

    def loss(m: nn.Module) -> fb.Tensor:
        seen.append(any(p.tracked for p in m.fork().parameters()))
        return fb.sum(m(fb.ones((1, 2))))

    fb.grad(loss)(model)
    assert seen == [False]


def test_a_state_that_is_none_of_a_generator_is_named_and_moves_no_generator() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    states, other = model.generator_states(), fb.random.Generator(9)
    other.uniform((3,))
    wrong = {"layers.0.generator": other.state(), "layers.1.generator": {"seed": 1}}
    with pytest.raises(nn.StateError, match=r"layers\.1\.generator: \{'seed': 1\}(.|\n)*Nothing was loaded"):
        model.set_generator_states(wrong)
    assert repr(model.generator_states()) == repr(states)
    assert repr(wrong["layers.0.generator"]) != repr(states["layers.0.generator"])


def test_generators_are_found_by_path() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.1, seed=0))
    assert list(model.generators()) == ["layers.1.generator"]


# words


def test_repr_shows_the_parts_with_their_settings() -> None:
    assert repr(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Sequential(nn.Linear(2, 1, bias=False)))) == (
        "Sequential(\n"
        "  (layers.0): Conv2d(1, 2, (3, 3), padding=1)\n"
        "  (layers.1): Sequential(\n"
        "    (layers.0): Linear(2, 1, bias=False)\n"
        "  )\n"
        ")"
    )


def test_a_summary_counts_a_shared_parameter_once_and_shows_output_shapes() -> None:
    text = fb.models.cnn(image=8).summary((2, 1, 8, 8))
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "[2, 16, 8, 8]" in rows["conv1 (Conv2d)"]
    assert rows["CNN"].split()[-2:] == ["71,754", "287,016"]
    assert Tied().summary().splitlines()[-1].split()[-2:] == ["23", "92"]


def test_a_shape_is_summarised_in_the_dtype_of_the_first_parameter() -> None:
    assert "[4, 3]" in nn.Linear(2, 3, bias=False, dtype=fb.float64).summary((4, 2))
    assert "[4, 2]" in nn.ReLU().summary((4, 2))


def test_an_embedding_is_summarised_from_a_tensor_like_its_argument() -> None:
    assert "[2, 5, 3]" in nn.Embedding(4, 3).summary(fb.zeros((2, 5), dtype=fb.int64))


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(fb.ones(1))


def test_sequential_takes_modules_only() -> None:
    with pytest.raises(ConfigError, match=r"Sequential takes modules\nReceived: layers\[1\]: function"):
        nn.Sequential(nn.ReLU(), fb.relu)  # type: ignore[arg-type]


def test_a_member_that_is_there_twice_has_two_paths() -> None:
    """Also where both names are of one module or parameter."""
    layer = nn.Linear(1, 1)
    for value in (layer, layer.weight):
        model = nn.Sequential(nn.Linear(1, 1))
        model.parts = {1: value, "1": value}  # type: ignore[attr-defined]
        with pytest.raises(nn.StateError, match=r"every member has a path of its own\nReceived: parts\.1 twice"):
            model.state_dict()
        model.parts = {1: value, "2": value}  # type: ignore[attr-defined]
        assert any(name.startswith("parts.1") for name in model.state_dict())


def test_two_members_of_one_path_are_refused_before_state_is_lost() -> None:
    class Colliding(nn.Module):
        def __init__(self) -> None:
            self.parts = {1: nn.Linear(2, 2), "1": nn.Linear(2, 2)}

    with pytest.raises(nn.StateError, match=r"every member has a path of its own[\s\S]*parts.1"):
        Colliding().state_dict()


def test_apply_calls_each_part_once_and_the_module_last() -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(nn.ReLU(), shared))
    seen: list[nn.Module] = []
    assert model.apply(seen.append) is model
    assert len(seen) == 4
    assert seen[-1] is model
    assert seen.index(model[1]) > seen.index(model[1][0])
    assert model.named_modules() == model.modules()


@pytest.mark.parametrize(
    "container", [deque, set, frozenset, lambda items: partial(map, *items), lambda items: partial(items[0].describe)]
)
def test_parts_in_a_container_that_is_not_looked_into_warn_at_the_users_line(container: Any) -> None:
    model, part = nn.Module(), nn.Linear(2, 2)
    with pytest.warns(UserWarning, match=r"Module\.parts is a \w+ with a Linear, .* keep it in an attribute") as caught:
        model.parts = container([part])
    assert caught[0].filename == __file__
    assert not model.parameters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.first = part
        model.again = container([part])  # it is found elsewhere
        model.others = deque([1, 2])
        model.made = partial(nn.Linear, 2)
    assert len(model.parameters()) == 2


def test_an_attribute_that_requires_gradients_but_is_no_parameter_warns_at_the_users_line() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            self.weight = fb.ones(3).require_grad()

    with pytest.warns(UserWarning, match=r"Scale\.weight is a tensor with require_grad\(\).*nn\.Parameter\(value\)") as caught:
        Scale()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = nn.Linear(2, 1)
        layer.scale = fb.ones(2)
        layer.bias.require_grad()
        layer.again = layer.bias

        def kept(x: fb.Tensor) -> fb.Tensor:
            layer.last = x
            return fb.sum(x * x)

        fb.grad(kept)(fb.ones(2))


def test_arrays_with_a_mask_are_not_loaded_and_those_of_another_byte_order_are() -> None:
    layer = nn.Linear(4, 3)
    masked = np.ma.masked_values(np.full((3, 4), -999, np.float32), -999)
    with pytest.raises(nn.StateError, match="weight: a NumPy masked array, to be filled first"):
        layer.load_state_dict({"weight": masked, "bias": np.zeros(3, np.float32)})
    given = np.arange(12).reshape(3, 4)
    for order in "<>":
        layer.load_state_dict({"weight": given.astype(f"{order}f4"), "bias": np.zeros(3, f"{order}f4")})
        assert layer.weight.tolist() == given.tolist()


def test_repr_shows_a_spectral_norm_and_parts_in_lists() -> None:
    assert (
        repr(nn.SpectralNorm(nn.Linear(3, 4), iterations=2))
        == "SpectralNorm(weight, iterations=2, axis=0\n  (layer): Linear(3, 4)\n)"
    )
    shown = repr(fb.models.GPT(vocabulary=7, length=4, dim=8, layers=2, heads=2))
    assert shown.startswith("GPT(7, length=4, dim=8, heads=2\n  (embed): Embedding(7, 8)\n  (blocks.0): ")
    assert "(blocks.1): " in shown
