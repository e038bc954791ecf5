"""Traps around what a compiled function draws, returns and changes, one test each, with what happens here.

Random numbers go on from call to call as in eager; results are nobody else's memory; what the function changes is changed at
each call.
"""

from __future__ import annotations

from collections import namedtuple
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

import firebrick as fb

pytestmark = pytest.mark.usefixtures("nothing_left")


def ones(n: int = 2) -> fb.Tensor:
    return fb.ones(n)


# random numbers


def test_a_dropout_mask_differs_from_call_to_call_and_is_eagers(device) -> None:
    x = fb.ones((4, 16), device=device)
    compiled_drop, drop = fb.nn.Dropout(0.5, seed=1), fb.nn.Dropout(0.5, seed=1)
    f = fb.jit(compiled_drop)
    compiled = [f(x).tolist() for _ in range(3)]
    assert compiled == [drop(x).tolist() for _ in range(3)]
    assert compiled[0] != compiled[1] != compiled[2]
    assert f.traces == 1


def test_seeding_between_calls_begins_again_without_a_new_trace(device) -> None:
    f = fb.jit(lambda x: x + fb.random.uniform((3,), device=device))
    x = fb.zeros(3, device=device)
    drawn = []
    for run in (f, f.fn, f):
        fb.random.seed(1)
        drawn.append([run(x).tolist() for _ in range(3)])
    assert drawn[0] == drawn[1] == drawn[2]
    saved = fb.random.state()
    after = f(x).tolist()
    fb.random.set_state(saved)
    assert f(x).tolist() == after
    assert f.traces == 1


def test_numbers_drawn_and_not_used_are_drawn_all_the_same() -> None:
    a, b = fb.random.Generator(1), fb.random.Generator(1)

    def g(x: fb.Tensor, generator: fb.random.Generator) -> fb.Tensor:
        generator.uniform((2,))
        return x + 1.0

    f = fb.jit(g)
    for _ in range(2):
        f(ones(), a)
        g(ones(), b)
    assert a.state()["counter"].tolist() == b.state()["counter"].tolist() == [2, 0]


def test_a_generator_made_inside_draws_the_same_at_each_call_as_in_eager() -> None:
    f = fb.jit(lambda x: x + fb.random.Generator(4).uniform((2,)))
    assert f(ones()).tolist() == f(ones()).tolist() == f.fn(ones()).tolist()


def test_a_generator_that_jit_cannot_find_raises() -> None:
    hidden = SimpleQueue()
    hidden.put(fb.random.Generator(0))
    f = fb.jit(lambda x: x + hidden.get().uniform((2,)))
    with pytest.raises(fb.TraceError, match=r"(?s)random generators .*held elsewhere"):
        f(ones())


@pytest.mark.parametrize("act", ["seed", "set_state", "fork"])
def test_acting_on_a_generator_inside_raises(act) -> None:
    generator = fb.random.Generator(0)
    acts = {
        "seed": lambda: fb.random.seed(1),
        "set_state": lambda: generator.set_state(fb.random.Generator(2).state()),
        "fork": lambda: generator.fork(1),
    }
    chosen = acts[act]

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        chosen()
        return x + generator.uniform((2,))

    with pytest.raises(fb.UnsupportedError, match="call it before"):
        f(ones())


def test_numbers_of_other_librarys_generators_raise_rather_than_being_kept_as_they_are() -> None:
    import random

    own, rng = np.random.default_rng(0), random.Random(0)
    for draw in (lambda: own.normal(), lambda: rng.random(), lambda: np.random.rand(), lambda: random.random()):  # noqa: NPY002
        f = fb.jit(lambda x, draw=draw: x * draw())
        before = own.bit_generator.state, rng.getstate(), random.getstate()
        with pytest.raises(fb.StateChangedError, match="random"):
            f(ones())
        assert (own.bit_generator.state, rng.getstate(), random.getstate()) == before


def test_a_generator_in_a_closure_an_attribute_or_an_argument_goes_on_as_in_eager() -> None:
    for reach in ("closure", "attribute", "argument"):
        generator = fb.random.Generator(5)
        held = SimpleNamespace(g=generator)

        def draw(x: fb.Tensor, g: fb.random.Generator | None, reach=reach, held=held, generator=generator) -> fb.Tensor:
            source = {"closure": generator, "attribute": held.g, "argument": g}[reach]
            return x + source.uniform((2,))

        f = fb.jit(draw)
        compiled = [f(ones(), generator).tolist() for _ in range(3)]
        twin = fb.random.Generator(5)
        assert compiled == [(ones() + twin.uniform((2,))).tolist() for _ in range(3)]
        assert generator.state()["counter"].tolist() == twin.state()["counter"].tolist()
        generator.set_state(fb.random.Generator(5).state())
        assert f(ones(), generator).tolist() == compiled[0]
        assert f.traces == 1


def test_another_generator_in_the_same_place_draws_its_own_numbers() -> None:
    held = SimpleNamespace(g=fb.random.Generator(1))
    f = fb.jit(lambda x: x + held.g.uniform((2,)))
    f(ones())
    held.g = fb.random.Generator(9)
    assert f(ones()).tolist() == (ones() + fb.random.Generator(9).uniform((2,))).tolist()
    g = fb.jit(lambda x, generator: x + generator.uniform((2,)))
    for seed in (1, 2, 1):
        assert g(ones(), fb.random.Generator(seed)).tolist() == (ones() + fb.random.Generator(seed).uniform((2,))).tolist()


def test_a_trace_that_fails_takes_no_random_numbers() -> None:
    generator = fb.random.Generator(3)

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        generator.uniform((2,))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        f(ones())
    assert generator.state()["counter"].tolist() == [0, 0]


# results


def test_the_results_of_two_calls_do_not_share_memory() -> None:
    f = fb.jit(lambda x: x + 1.0)
    a = f(fb.zeros(3))
    b = f(fb.ones(3))
    assert a.tolist() == [1.0, 1.0, 1.0]
    assert b.tolist() == [2.0, 2.0, 2.0]


def test_a_graph_of_which_nothing_is_left_gives_each_input_in_its_place(device) -> None:
    f = fb.jit(lambda a, b: (b * 1.0, a * 1.0, b * 1.0))
    a, b = fb.zeros(2, device=device), fb.ones(2, device=device)
    for _ in range(2):
        made = f(a, b)
        assert [t.tolist() for t in made] == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
        made[0][0] = 9.0
        a += 0.0
        assert (made[2].tolist(), a.tolist(), b.tolist()) == ([1.0, 1.0], [0.0, 0.0], [1.0, 1.0])


def test_results_that_are_inputs_views_or_constants_are_safe_to_change(device) -> None:
    w = fb.asarray([1.0, 2.0], device=device)
    f = fb.jit(lambda x: (x, fb.reshape(x, (2, 1)), w, w + 0.0, fb.zeros(2, device=device), x))
    x = fb.asarray([3.0, 4.0], device=device)
    first = f(x)
    assert first[0] is x is first[5]
    assert first[2] is w
    first[1][0, 0] = 100.0
    first[4][0] = 100.0
    first[3][0] = 100.0
    assert x.tolist() == [3.0, 4.0]
    assert w.tolist() == [1.0, 2.0]
    again = f(x)
    assert again[1].tolist() == [[3.0], [4.0]]
    assert again[4].tolist() == [0.0, 0.0]
    assert f.traces == 1


def test_a_result_that_aliases_state_keeps_its_value_when_the_state_changes(device) -> None:
    state = fb.zeros(2, device=device)

    @fb.jit
    def step(x: fb.Tensor) -> fb.Tensor:
        nonlocal_state = state
        nonlocal_state += x
        return state + 0.0

    @fb.jit
    def shown(x: fb.Tensor) -> fb.Tensor:
        state[...] = state + x
        return fb.reshape(state, (1, 2))

    x = fb.ones(2, device=device)
    a = step(x)
    b = shown(x)
    c = shown(x)
    assert (a.tolist(), b.tolist(), c.tolist(), state.tolist()) == ([1.0, 1.0], [[2.0, 2.0]], [[3.0, 3.0]], [3.0, 3.0])


def test_a_view_of_state_taken_before_a_call_keeps_its_value(device) -> None:
    state = fb.zeros((2, 2), device=device)
    before, twin = state[0], state.detach()

    @fb.jit
    def step(x: fb.Tensor) -> None:
        state[...] = state + x

    step(fb.ones((2, 2), device=device))
    step(fb.ones((2, 2), device=device))
    assert before.tolist() == [0.0, 0.0]
    assert twin.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert state.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_numpys_view_of_state_taken_before_a_call_keeps_its_value() -> None:
    for name in fb.devices():
        if "meta" in str(name):
            continue
        state = fb.zeros(2, device=name)
        host = state.numpy()

        @fb.jit
        def step(x: fb.Tensor, state=state) -> None:
            state[...] = state + x

        step(fb.ones(2, device=name))
        step(fb.ones(2, device=name))
        assert host.tolist() == [0.0, 0.0]
        assert state.tolist() == [2.0, 2.0]


def test_the_same_tensor_returned_twice_is_one_handle_as_in_eager() -> None:
    def g(x: fb.Tensor) -> tuple[fb.Tensor, ...]:
        y = x + 1.0
        return y, y, y.detach()

    f = fb.jit(g)
    for _ in range(2):
        a, b, c = f(ones())
        assert a is b
        assert c is not a
        a[0] = 9.0
        assert b.tolist() == [9.0, 2.0]
        assert c.tolist() == [2.0, 2.0]


Pair = namedtuple("Pair", "first second")


def test_functions_may_return_anything() -> None:
    model = fb.nn.Linear(2, 2)
    f = fb.jit(
        lambda x, n: {"t": x + 1.0, "n": n, "none": None, "s": "text", "pair": Pair(x * 2.0, 3), "m": model, "l": [n, True]}
    )
    for n in (2, 3):
        made = f(ones(), n)
        assert made["t"].tolist() == [2.0, 2.0]
        assert (made["n"], made["none"], made["s"]) == (n, None, "text")
        assert type(made["pair"]) is Pair
        assert made["pair"].first.tolist() == [2.0, 2.0]
        assert made["pair"].second == 3
        assert made["m"] is model
        assert made["l"] == [n, True]
        assert type(made["n"]) is int
    assert f.traces == 1
    assert fb.jit(lambda: 5)() == 5
    assert fb.jit(lambda x: None)(ones()) is None
    assert fb.jit(lambda: fb.zeros(2))().tolist() == [0.0, 0.0]


def test_a_list_that_is_returned_is_another_one_at_each_call() -> None:
    f = fb.jit(lambda x: [x + 1.0, "a"])
    a = f(ones())
    a.append("more")
    assert len(f(ones())) == 2


# what the function changes


def test_assigning_to_an_argument_is_seen_by_the_caller_as_in_eager(device) -> None:
    def g(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        x += 1.0
        y[0] = 7.0
        fb.multiply(x, 2.0, out=x)
        return x * y

    f = fb.jit(g)
    for run in (f, g, f):
        x, y = fb.ones(2, device=device), fb.zeros(2, device=device)
        kept = x.detach()
        assert run(x, y).tolist() == [28.0, 0.0]
        assert (x.tolist(), y.tolist(), kept.tolist()) == ([4.0, 4.0], [7.0, 0.0], [1.0, 1.0])


def test_one_handle_given_twice_and_changed_inside_is_one_tensor() -> None:
    def g(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        x += 1.0
        return x + y

    f = fb.jit(g)
    a, b = fb.ones(2), fb.ones(2)
    assert f(a, b).tolist() == [3.0, 3.0]
    assert f(a, a).tolist() == [6.0, 6.0]
    assert a.tolist() == [3.0, 3.0]
    assert f.traces == 2
    assert f(b, fb.ones(2)).tolist() == [3.0, 3.0]
    assert f.traces == 2


def test_an_argument_that_is_also_captured_is_one_tensor() -> None:
    w = fb.ones(2)

    def g(x: fb.Tensor) -> fb.Tensor:
        x += 1.0
        return w * 10.0

    f = fb.jit(g)
    assert f(fb.ones(2)).tolist() == [10.0, 10.0]
    assert f(w).tolist() == [20.0, 20.0]
    assert w.tolist() == [2.0, 2.0]


def test_two_handles_on_one_storage_stay_two_values(device) -> None:
    def g(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        x += 1.0
        return x + y

    a = fb.ones(2, device=device)
    b = a.detach()
    f = fb.jit(g)
    for _ in range(2):
        f(a, b)
    assert (a.tolist(), b.tolist()) == ([3.0, 3.0], [1.0, 1.0])


def test_two_handles_that_swap_their_values_do(device) -> None:
    a, b = fb.zeros(2, device=device), fb.ones(2, device=device)

    @fb.jit
    def swap() -> None:
        kept = a.detach()
        a[...] = b
        b[...] = kept

    for i in range(3):
        swap()
        assert (a.tolist()[0], b.tolist()[0]) == ((1.0, 0.0) if i % 2 == 0 else (0.0, 1.0))


def test_a_scheduled_rate_makes_one_graph_and_eagers_numbers() -> None:
    def run(compiled: bool) -> tuple[list[float], int]:
        fb.random.seed(0)
        model = fb.nn.Linear(4, 1)
        optimizer = fb.optim.SGD(model, lr=fb.optim.cosine(0.1, 10))
        grads = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))

        def step(x: fb.Tensor) -> fb.Tensor:
            loss, g = grads(model, x)
            optimizer.update(model, g)
            return loss

        f = fb.jit(step)
        losses = [(f if compiled else step)(fb.ones((3, 4))).item() for _ in range(10)]
        return losses, f.traces

    compiled, traces = run(True)
    assert traces == 1
    assert compiled == pytest.approx(run(False)[0], rel=1e-5)


def test_setting_the_rate_by_hand_is_seen() -> None:
    model = fb.nn.Linear(2, 1)
    optimizer = fb.optim.SGD(model, lr=0.5)
    grads = fb.value_and_grad(lambda m, x: fb.sum(m(x)))

    @fb.jit
    def step(x: fb.Tensor) -> None:
        optimizer.update(model, grads(model, x)[1])

    for rate in (0.5, 0.0, 0.25):
        optimizer.learning_rate = rate
        before = model.weight.tolist()
        step(fb.ones((1, 2)))
        moved = np.subtract(before, model.weight.tolist())
        assert np.allclose(moved, rate, atol=1e-6)


def test_a_shared_layer_stays_one_layer_and_a_tie_made_or_broken_is_seen() -> None:
    class Tied(fb.nn.Module):
        def __init__(self) -> None:
            self.a = fb.nn.Linear(2, 2)
            self.b = self.a

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return self.b(self.a(x))

    model = Tied()
    x = fb.asarray([[1.0, 2.0]])

    def step(x: fb.Tensor) -> fb.Tensor:
        grads = fb.grad(lambda m, x: fb.sum(m(x)))(model, x)
        model.a.weight = model.a.weight - 0.1 * grads[model.a.weight]
        return model(x)

    f = fb.jit(step)
    made = f(x)
    assert model.a is model.b
    assert made.tolist() == model(x).tolist()
    model.b = fb.nn.Linear(2, 2)
    assert f(x).tolist() == model(x).tolist()
    model.b.weight = model.a.weight
    assert f(x).tolist() == model(x).tolist()
    model.b = model.a
    assert f(x).tolist() == model(x).tolist()
    assert f.traces == 3  # one layer, one weight, none


@pytest.mark.usefixtures("numpy_kernels")
def test_switching_training_freezing_and_back_makes_the_graphs_that_are_needed_once() -> None:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(4, 4), fb.nn.BatchNorm1d(4), fb.nn.Dropout(0.5))
    f = fb.jit(model)
    x = fb.random.normal((8, 4))
    f(x)
    model.eval()
    assert f(x).tolist() == model(x).tolist()
    model.train()
    f(x)
    assert f.traces == 2
    assert "training" in fb.explain_recompiles(f)[-1].reason

    step = fb.jit(lambda x: fb.value_and_grad(lambda m, x: fb.sum(m(x)))(model, x)[1])
    before = len(step(x))
    model.layers[0].freeze()
    after = len(step(x))
    assert before - after == 2
    model.layers[0].unfreeze()
    assert len(step(x)) == before
    assert step.traces == 2
    assert "frozen" in fb.explain_recompiles(step)[-1].reason


def test_a_smaller_last_batch_another_dtype_or_device_is_one_more_graph_that_says_why() -> None:
    f = fb.jit(lambda x: x + 1.0)
    f(fb.ones((4, 2)))
    f(fb.ones((3, 2)))
    f(fb.ones((4, 2), dtype=fb.float64))
    f(fb.ones((4, 2), device="numpy"))
    for _ in range(2):
        f(fb.ones((4, 2)))
        f(fb.ones((3, 2)))
    reasons = [r.reason for r in fb.explain_recompiles(f)]
    assert reasons[1:] == [
        "argument x: float32[4,2] on cpu:0 → float32[3,2] on cpu:0",
        "argument x: float32[3,2] on cpu:0 → float64[4,2] on cpu:0",  # from the last one
        "argument x: float64[4,2] on cpu:0 → float32[4,2] on numpy:0",
    ]


def test_a_model_moved_or_cast_is_seen() -> None:
    model = fb.nn.Linear(2, 2)
    f = fb.jit(model)
    x = fb.ones((1, 2))
    f(x)
    model.to("numpy")
    assert f(x.to("numpy")).device.name.startswith("numpy")
    model.astype(fb.float64)
    assert f(x.to("numpy").astype(fb.float64)).dtype is fb.float64


def test_printing_inside_shows_what_is_known(capsys) -> None:
    @fb.jit
    def f(x: fb.Tensor, n: float) -> fb.Tensor:
        y = x * n
        print(x, y, n, f"{y}")
        return y

    f(ones(), 2.0)
    f(ones(), 3.0)
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1  # while it is traced only
    assert "tensor(<value 0 of " in shown
    assert "shape=(2,), dtype=float32, device=cpu:0)" in shown


def test_tracking_asked_for_inside_gives_gradients_inside() -> None:
    def g(x: fb.Tensor) -> fb.Tensor:
        y = (x * 2.0).detach()
        y.require_grad()
        return fb.backward(fb.sum(y * y * x))[y]

    f = fb.jit(g)
    assert f(ones()).tolist() == g(ones()).tolist() == [4.0, 4.0]
    assert f(ones()).tolist() == [4.0, 4.0]
