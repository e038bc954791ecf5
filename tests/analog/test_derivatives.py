"""Second derivatives and forward mode through tiles, beside those of the digital layer with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn
from firebrick.core.errors import GradientError, UnsupportedError

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 4)).astype(np.float32)
X = fb.asarray(RNG.normal(size=(2, 4)).astype(np.float32))
V = fb.asarray(RNG.normal(size=(2, 4)).astype(np.float32))
PERFECT = analog.IOParameters(is_perfect=True)
EXACT: dict[str, analog.RPUConfig] = {
    "tile": analog.RPUConfig(analog.FloatingPointDevice(), forward=PERFECT, backward=PERFECT),
    "scaled tile": analog.RPUConfig(
        analog.FloatingPointDevice(),
        forward=PERFECT,
        backward=PERFECT,
        mapping=analog.MappingParameter(weight_scaling_omega=0.5),
    ),
    "inference tile": analog.InferenceRPUConfig(forward=PERFECT),
    "inference tile with an input range": analog.InferenceRPUConfig(
        forward=PERFECT, input_range=analog.InputRangeParameter(enable=True, init_from_data=0)
    ),
}


class Pair(nn.Module):
    """A digital layer, and a layer behind it."""

    def __init__(self, second: nn.Module) -> None:
        self.first = nn.Linear(4, 4, generator=fb.random.Generator(5))
        self.second = second

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.tanh(self.second(fb.tanh(self.first(x))))


def pairs(name: str) -> tuple[Pair, Pair]:
    """The same network with a digital and with an analog second layer."""
    digital = nn.Linear(4, 3, generator=fb.random.Generator(1))
    digital.weight = nn.Parameter(fb.asarray(W))
    made = analog.Linear(4, 3, config=EXACT[name], seed=0)
    made.tiles.set_weights(W)
    made.bias = nn.Parameter(digital.bias.detach())
    return Pair(digital), Pair(made)


def close(a: Any, b: Any) -> None:
    assert np.abs(b.numpy()).max() > 1e-3
    np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-5 * np.abs(b.numpy()).max())


@pytest.mark.parametrize("name", EXACT)
def test_a_penalty_of_gradients_has_the_gradient_of_the_digital_layer(name: str) -> None:
    digital, made = pairs(name)

    def penalty(model: Pair) -> fb.Tensor:
        return fb.sum(fb.grad(lambda x: fb.sum(model(x) ** 2) + fb.sum(x**3))(X) ** 2)

    (_, want), (_, got) = fb.value_and_grad(penalty)(digital), fb.value_and_grad(penalty)(made)
    close(got[made.first.weight], want[digital.first.weight])
    tile = made.second.tiles.tiles[0][0]
    factor = 1.0 if tile.scale is None else tile.scale.detach()[:, None]
    close(got[tile.weight], want[digital.second.weight] * factor)


@pytest.mark.parametrize("name", EXACT)
def test_forward_mode_and_hessians_are_those_of_the_digital_layer(name: str) -> None:
    digital, made = (m.eval() for m in pairs(name))

    def along(m: Pair) -> fb.Tensor:
        return fb.jvp(m, (X,), (V,))[1]

    def hessian(m: Pair) -> fb.Tensor:
        return fb.hessian(lambda v: fb.sum(m(v) ** 2))(X[0])

    def of_tangent(m: Pair) -> fb.Tensor:
        return fb.grad(lambda x: fb.sum(fb.jvp(m, (x,), (V,))[1] ** 2))(X)

    for derivative in (along, hessian, of_tangent):
        close(derivative(made), derivative(digital))


def test_a_tangent_passes_the_converters_as_a_gradient_does() -> None:
    tile = analog.Tile(3, 4, analog.RPUConfig(analog.FloatingPointDevice(), backward=PERFECT), seed=0)
    tile.set_weights(W)
    close(fb.jvp(tile, (X,), (V,))[1], V @ fb.asarray(W.T))  # the derivative of the rounded product would be 0 or of its scale
    close(fb.jvp(tile.backward, (X[:, :3],), (V[:, :3],))[1], V[:, :3] @ fb.asarray(W))
    close(fb.grad(lambda d: fb.sum(tile.backward(d) * V))(X[:, :3]), V @ fb.asarray(W.T))


def test_inputs_beyond_the_range_have_no_tangent() -> None:
    tile = analog.InferenceTile(3, 4, EXACT["inference tile with an input range"], seed=0)  # type: ignore[arg-type]
    tile.set_weights(W)
    x = fb.asarray([[5.0, 0.5, -4.0, 1.0]])
    close(fb.jvp(tile, (x,), (fb.ones((1, 4)),))[1], fb.asarray([[0.0, 1.0, 0.0, 1.0]]) @ fb.asarray(W.T))


def noisy(kind: str) -> analog.Tile:
    if kind == "tile":
        return analog.Tile(3, 4, analog.RPUConfig(analog.SoftBoundsDevice(dw_min=0.001)), seed=0)
    if kind == "running means":
        average = analog.IOParameters(noise_management=analog.NoiseManagementType.AVERAGE_ABS_MAX)
        return analog.Tile(3, 4, analog.RPUConfig(analog.FloatingPointDevice(), average, average), seed=0)
    limits = analog.InputRangeParameter(enable=True, init_value=2.0)
    bounded = analog.IOParameters(noise_management=analog.NoiseManagementType.NONE)
    modifier = analog.WeightModifierParameter(type=analog.WeightModifierType.ADD_NORMAL, std_dev=0.1)
    config = analog.InferenceRPUConfig(forward=bounded, input_range=limits, modifier=modifier)
    tile = analog.InferenceTile(3, 4, config, seed=0)
    return tile if kind == "inference tile in training" else tile.eval()


@pytest.mark.parametrize("kind", ["tile", "inference tile", "inference tile in training", "running means"])
@pytest.mark.parametrize("jit", [False, True])
def test_a_product_inside_vmap_and_its_derivatives_are_those_of_the_batch(kind: str, jit: bool) -> None:
    def product(m: analog.Tile, x: fb.Tensor) -> fb.Tensor:
        return m(x)

    def mapped(m: analog.Tile, x: fb.Tensor) -> fb.Tensor:
        return fb.vmap(m)(x)

    found = []
    for call in (product, mapped):
        tile = noisy(kind)
        tile.place(W)
        losses = fb.value_and_grad(lambda m, call=call: fb.sum(fb.sin(call(m, X))))
        value, gradients = (fb.jit(losses) if jit else losses)(tile)
        of_x = fb.grad(lambda x, call=call, tile=tile: fb.sum(fb.sin(call(tile, x))))(X)
        y, along = fb.jvp(lambda x, call=call, tile=tile: call(tile, x), (X,), (V,))
        back = tile.backward if call is product else fb.vmap(tile.backward)
        of_d = fb.grad(lambda d, back=back: fb.sum(fb.sin(back(d))))(V[:, :3])
        means = [b.detach() for name, b in tile.named_buffers() if name.startswith(("range_of", "average"))]
        found.append([value, gradients[tile.weight], of_x, y, along, of_d, *means])
    for one, other in zip(*found, strict=True):
        close(one, other)


def network(config: analog.RPUConfig | None) -> nn.Module:
    """A network with layers in front of layers, digital or with tiles of the same weights."""
    made = nn.Sequential(*(nn.Linear(a, b, generator=fb.random.Generator(a)) for a, b in ((4, 5), (5, 3))))
    return made if config is None else analog.convert(made, config, seed=0)


def sines(model: nn.Module, x: fb.Tensor) -> fb.Tensor:
    return fb.sum(fb.sin(model(x)))


def of_bias(of_model: Any, m: nn.Module) -> fb.Tensor:
    return fb.grad(of_model)(m)[m.layers[0].bias]


BATCH = fb.asarray(RNG.normal(size=(6, 2, 4)).astype(np.float32))
WHOLE_MODELS: dict[str, Any] = {
    "gradient of parameters": lambda m: of_bias(lambda m: sines(fb.vmap(m), BATCH), m),
    "nested": lambda m: of_bias(lambda m: sines(fb.vmap(fb.vmap(m)), BATCH), m),
    "in a graph": lambda m: fb.jit(lambda m: fb.grad(lambda m: sines(fb.vmap(m), BATCH))(m))(m)[m.layers[0].bias],
    "recomputed": lambda m: of_bias(lambda m: sines(fb.vmap(fb.checkpoint(m)), BATCH), m),
    "gradient inside of another": lambda m: of_bias(
        lambda m: fb.sum(fb.vmap(lambda x: fb.grad(lambda z: fb.sum(m(x) * fb.sin(z)))(fb.ones(())))(BATCH)), m
    ),
    "gradient of inputs": lambda m: fb.grad(lambda x: sines(fb.vmap(m), x))(BATCH),
    "gradients of each example": lambda m: fb.vmap(fb.grad(lambda x: sines(m, x)))(BATCH),
    "gradients of parameters of each example": lambda m: fb.vmap(lambda x: of_bias(lambda m: sines(m, x), m))(BATCH),
    "derivatives of gradients": lambda m: fb.vmap(lambda x: fb.jvp(fb.grad(lambda x: sines(m, x)), (x,), (x,))[1])(BATCH),
}  # fmt: skip


@pytest.mark.parametrize("use", WHOLE_MODELS.values(), ids=WHOLE_MODELS)
@pytest.mark.parametrize("name", ["tile", "inference tile"])
def test_derivatives_of_whole_models_inside_vmap_are_those_of_the_digital_one(name: str, use: Any) -> None:
    close(use(network(EXACT[name])), use(network(None)))


def test_a_backward_pass_inside_vmap_of_what_was_tracked_outside_is_refused() -> None:
    tile = analog.Tile(3, 4, EXACT["tile"], seed=0)
    tile.set_weights(W)
    tile.weight.require_grad()

    def of_each(x: fb.Tensor) -> fb.Tensor:
        return fb.backward(fb.sum(tile(x)) + fb.sum(tile.weight * tile.weight))[tile.weight]

    with pytest.raises(UnsupportedError, match=r"fb\.backward inside of fb\.vmap(.|\n)*fb\.grad inside"):
        fb.vmap(of_each)(X)


def test_running_means_that_each_example_changes_by_itself_are_refused_and_stay() -> None:
    tile = noisy("running means")

    def own(x: fb.Tensor) -> fb.Tensor:
        y = tile(x)
        tile.average_input = fb.max(x)
        return y

    def failing(x: fb.Tensor) -> fb.Tensor:
        tile(x)
        raise ValueError("an error of the caller's")

    for function, error in ((own, fb.StateChangedError), (failing, ValueError)):
        with pytest.raises(error):
            fb.vmap(function)(X)
        assert tile.average_input is not None
        assert tile.average_input.item() == 0.0


def test_inputs_and_errors_inside_vmap_make_the_pulses_of_the_batch() -> None:
    weights = []
    for call in (lambda m: m(X), lambda m: fb.vmap(m)(X)):
        layer = analog.Linear(4, 3, config=analog.RPUConfig(analog.SoftBoundsDevice(dw_min=0.001)), seed=0)
        _, gradients = fb.value_and_grad(lambda m, call=call: fb.mean(call(m) ** 2))(layer)
        analog.SGD(layer, 0.1).update(layer, gradients)
        weights.append(layer.tiles.get_weights().numpy())
    np.testing.assert_array_equal(*weights)


def test_derivatives_around_examples_that_have_products_of_their_own_are_refused() -> None:
    tile = analog.Tile(3, 4, analog.RPUConfig(analog.FloatingPointDevice(), forward=PERFECT, backward=PERFECT), seed=0)

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(tile(x) ** 2)

    of_each = fb.vmap(fb.grad(loss))
    assert of_each(X).shape == X.shape
    with pytest.raises(UnsupportedError, match="pass the tile all vectors at once"):
        fb.grad(lambda m: fb.sum(of_each(X) ** 2))(tile)
    with pytest.raises(UnsupportedError, match="pass the tile all vectors at once"):
        fb.jvp(of_each, (X,), (V,))


def test_pulses_do_not_follow_from_a_penalty_of_gradients() -> None:
    layer = analog.Linear(4, 3, config=analog.RPUConfig(analog.SoftBoundsDevice(), forward=PERFECT, backward=PERFECT), seed=0)

    def penalty(m: analog.Linear) -> fb.Tensor:
        return fb.sum(fb.grad(lambda x: fb.sum(m(x) ** 2))(X) ** 2)

    _, gradients = fb.value_and_grad(penalty)(layer)
    with pytest.raises(GradientError, match="penalties of the weights"):
        analog.SGD(layer, 0.1).update(layer, gradients)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", [*EXACT, "with converters", "for inference"])
def test_mixed_precision_leaves_tiles_in_float32(kind: str, dtype: str) -> None:
    others = {"with converters": analog.RPUConfig(analog.FloatingPointDevice()), "for inference": analog.InferenceRPUConfig()}
    config = {**EXACT, **others}[kind]

    def results(mixed: bool) -> list[Any]:
        tile = (analog.InferenceTile if isinstance(config, analog.InferenceRPUConfig) else analog.Tile)(3, 4, config, seed=0)
        tile.set_weights(W)
        x = fb.astype(fb.astype(X, dtype), fb.float32)
        with fb.autocast(dtype if mixed else None):
            y, tangent = fb.jvp(tile, (x,), (V,))
            _, gradients = fb.value_and_grad(lambda t: fb.sum(t(fb.astype(x, dtype if mixed else "float32")) ** 2))(tile)
            gradient = gradients[tile.weight]
            tile.update(x, y, 0.1)
        return [y, tangent, gradient, tile.weight]

    for got, want in zip(results(True), results(False), strict=True):
        assert got.dtype is fb.float32
        np.testing.assert_array_equal(got.numpy(), want.numpy())


SIZES = [(1, 1, 1, 1), (3, 3, 3, 3), (2, 5, 7, 3), (5, 2, 1, 3), (4, 4, 2, 4), (3, 2, 4, 0), (3, 2, 0, 2)]
"""Rows, columns, examples, and samples of each."""


def loss_of(product: Any) -> Any:
    return lambda x: fb.sum(fb.sin(product(x)))


def near(found: fb.Tensor, want: Any) -> None:
    assert found.shape == want.shape
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["arithmetic", "pulses", "inference"])
@pytest.mark.parametrize("jit", [False, True])
def test_products_inside_vmap_and_their_derivatives_are_numpys_for_any_sizes(kind: str, jit: bool) -> None:
    """A perfect periphery: y = W x, in every way of taking values and derivatives with one or two maps."""
    for rows, columns, examples, samples in SIZES:
        r = np.random.default_rng(100 * rows + 10 * columns + examples)
        if kind == "inference":
            ideal = analog.InferenceRPUConfig(forward=PERFECT, backward=PERFECT)
            tile: analog.Tile = analog.InferenceTile(rows, columns, ideal, seed=0).eval()
        else:
            device = analog.SoftBoundsDevice() if kind == "pulses" else analog.FloatingPointDevice()
            tile = analog.Tile(rows, columns, analog.RPUConfig(device, PERFECT, PERFECT), seed=0)
        tile.set_weights((0.05 * r.normal(size=(rows, columns))).clip(-0.1, 0.1))
        w = tile.weight.numpy().astype(np.float64)
        x, v = r.normal(size=(2, examples, samples, columns)).astype(np.float32)

        def of(product: Any, jit: bool = jit) -> Any:
            return fb.jit(product) if jit else product

        y, back = x @ w.T, fb.vmap(lambda x, t=tile: t.backward(t(x)))
        given, along = fb.asarray(x), fb.asarray(v)
        for axis in (0, 1):
            mapped = fb.vmap(tile, in_axes=axis)
            want = np.moveaxis(y, axis, 0)
            near(of(mapped)(given), want)
            near(of(lambda x, t, f=mapped: fb.jvp(f, (x,), (t,))[1])(given, along), np.moveaxis(v @ w.T, axis, 0))
            near(of(fb.grad(loss_of(mapped)))(given), np.cos(y) @ w)
            near(of(fb.vmap(fb.vmap(tile), in_axes=axis))(given), want)
        near(of(fb.grad(loss_of(fb.vmap(fb.vmap(tile)))))(given), np.cos(y) @ w)
        near(of(fb.vmap(fb.grad(loss_of(tile))))(given), np.cos(y) @ w)
        near(of(fb.vmap(lambda x, t, f=tile: fb.jvp(f, (x,), (t,))[1]))(given, along), v @ w.T)
        near(of(fb.vmap(lambda c, x=given, f=tile: c * f(x)))(fb.asarray([0.0, 2.0])), np.stack([0.0 * y, 2.0 * y]))
        near(of(back)(given), y @ w)
        near(of(fb.grad(loss_of(back)))(given), np.cos(y @ w) @ w.T @ w)
