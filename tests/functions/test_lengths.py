"""Sequences of any length by a few graphs, with the results of the sequences themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import data, nn, optim
from firebrick.core.errors import ArgumentError, ConfigError, ShapeError

SIZES = fb.length_sizes(256, shortest=8)


class Encoder(nn.Module):
    """Attention over a sequence, and the mean of its elements."""

    def __init__(self, features: int = 12) -> None:
        self.query, self.key, self.value = (nn.Linear(features, features) for _ in range(3))
        self.head = nn.Linear(features, 3)

    def forward(self, x: fb.Tensor, mask: fb.Tensor) -> fb.Tensor:
        """Map [length, features] to one output for each element, [length, 3]."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        seen = fb.broadcast_to(mask, (len(x), len(x)))
        found = fb.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], mask=seen)
        out: fb.Tensor = self.head(x + found[0, 0])
        return out


def masked(x: fb.Tensor, length: Any) -> fb.Tensor:
    return fb.arange(x.shape[0]) < length


def sequences(count: int, longest: int, features: int = 12) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(count)
    lengths = [1, 2, 7, 8, 9, longest - 1, longest, *rng.integers(1, longest + 1, count).tolist()]
    return [rng.standard_normal((n, features)).astype(np.float32) for n in lengths]


def test_sizes_are_powers_of_two_and_the_longest() -> None:
    assert SIZES == (8, 16, 32, 64, 128, 256)
    assert fb.length_sizes(2048) == (16, 32, 64, 128, 256, 512, 1024, 2048)
    assert fb.length_sizes(5) == (5,)
    assert fb.length_sizes(16) == (16,)
    assert fb.length_sizes(100, count=2, shortest=3) == (64, 100)
    for wrong in (
        {"longest": 0},
        {"longest": 8.0},
        {"longest": 8, "count": 0},
        {"longest": 8, "shortest": -1},
        {"longest": True},
    ):
        with pytest.raises(ConfigError, match="is an int ≥ 1"):
            fb.length_sizes(**wrong)


def test_sizes_may_be_numpys_integers() -> None:
    sizes = fb.length_sizes(np.int32(100), count=np.int64(2), shortest=np.uint8(3))
    assert repr(sizes) == "(64, 100)"
    padded = fb.pad_lengths(np.asarray([4, 8]))(fb.jit(lambda x, length: length + 0 * fb.sum(x)))
    assert repr(padded.sizes) == "(4, 8)"
    assert padded(fb.ones(3)).item() == 3
    assert data.pad_collate([[1, 2, 3]], sizes=np.asarray([2, 4]))[0].shape == (1, 4)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_outputs_of_each_element_are_those_without_padding(device: str) -> None:
    with fb.use_device(device):
        model = Encoder()

        @fb.pad_lengths(SIZES, result_axis=0)
        @fb.jit
        def outputs(x: fb.Tensor, length: int) -> fb.Tensor:
            return model(x, masked(x, length))

        for row in sequences(25, 256):
            x = fb.asarray(row)
            found, wanted = outputs(x).numpy(), model(x, fb.ones(len(x), dtype=fb.bool)).numpy()
            assert found.shape == wanted.shape == (len(row), 3)
            assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert outputs.function.traces == len(SIZES)


def test_lengths_1_to_2048_need_8_graphs_and_gradients_are_right() -> None:
    weight = fb.asarray(np.linspace(-1, 1, 2048))

    @fb.pad_lengths(fb.length_sizes(2048))
    @fb.jit
    def gradient(x: fb.Tensor, length: int) -> tuple[fb.Tensor, fb.Tensor]:
        def loss(w: fb.Tensor) -> fb.Tensor:
            score = fb.where(masked(x, length), fb.sin(x * w[: len(x)]), 0.0)
            return fb.sum(score) / length

        return fb.value_and_grad(loss)(weight)

    rng = np.random.default_rng(0)
    for n in [1, 2, 15, 16, 17, 1023, 1024, 1025, 2047, 2048, *rng.integers(1, 2049, 40).tolist()]:
        x = rng.standard_normal(n)
        value, slope = gradient(fb.asarray(x))
        w = weight.numpy()
        assert abs(value.item() - np.sin(x * w[:n]).mean()) < 1e-12
        assert np.allclose(slope.numpy()[:n], np.cos(x * w[:n]) * x / n, atol=1e-14)
        assert not slope.numpy()[n:].any()
    assert gradient.function.traces == 8


def test_a_training_step_is_that_without_padding_and_the_comparison_leaves_nothing() -> None:
    runs = []
    for pads in (True, False):
        fb.random.seed(0)
        model = Encoder()
        optimizer = optim.SGD(model, lr=1e-2, momentum=0.9)

        def step(x: fb.Tensor, y: fb.Tensor, length: Any, model: Any = model, optimizer: Any = optimizer) -> fb.Tensor:
            def loss(m: Encoder) -> fb.Tensor:
                mask = masked(x, length)
                error = fb.sum(fb.square(m(x, mask) - y), axis=-1)
                return fb.sum(fb.where(mask, error, 0.0)) / length

            value, gradients = fb.value_and_grad(loss)(model)
            optimizer.update(model, gradients)
            return value

        function = fb.pad_lengths(SIZES, arguments=("x", "y"))(fb.jit(step)) if pads else lambda x, y: step(x, y, len(x))
        losses = [float(function(fb.asarray(row), fb.asarray(row[:, :3]))) for row in sequences(10, 60)]
        runs.append((losses, [t.numpy() for t in model.state_dict().values()]))
    for found, wanted in zip(runs[0][1], runs[1][1], strict=True):
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.allclose(runs[0][0], runs[1][0], rtol=1e-4)


def test_the_comparison_draws_no_further_random_numbers() -> None:
    def drawn(x: fb.Tensor, length: int) -> fb.Tensor:
        return fb.random.uniform(()) + fb.sum(fb.where(masked(x, length), x, 0.0))

    found = []
    for check in (True, False):
        fb.random.seed(5)
        function = fb.pad_lengths((8, 16), check=check)(fb.jit(drawn))
        found.append([function(fb.ones(n)).item() for n in (3, 5, 12)])
    assert found[0] == found[1]


MISTAKES: dict[str, Callable[..., Any]] = {
    "no mask": lambda x, length: fb.sum(x),
    "mean by the padded size": lambda x, length: fb.sum(fb.where(masked(x, length), x, 0.0)) + fb.max(x),
    "mask off by one": lambda x, length: fb.sum(fb.where(fb.arange(len(x)) <= length, x, 0.0)),
    "softmax over everything": lambda x, length: fb.softmax(x, axis=0)[0],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_forgotten_mask_is_an_error(name: str) -> None:
    function = fb.pad_lengths((8, 16))(fb.jit(MISTAKES[name]))
    with pytest.raises(fb.PaddingError, match="do not depend on the elements behind `length`"):
        function(fb.asarray([1.0, 2.0, -3.0]))


OF_THE_SIZE: dict[str, Callable[..., Any]] = {
    "a mean over the padded size": lambda x, length: fb.mean(fb.where(masked(x, length), x, 0.0)),
    "divided by the padded size": lambda x, length: {"s": fb.sum(fb.where(masked(x, length), x, 0.0)) / float(len(x))},
    "positions from the end": lambda x, length: fb.sum(
        fb.where(masked(x, length), x * fb.flip(fb.arange(len(x), dtype=fb.float32), axis=0), 0.0)
    ),
    "the number of elements": lambda x, length: fb.asarray(len(x)),
}


@pytest.mark.parametrize("name", OF_THE_SIZE)
def test_a_result_that_depends_on_the_padded_size_is_an_error(name: str) -> None:
    function = fb.pad_lengths((8, 16))(fb.jit(OF_THE_SIZE[name]))
    with pytest.raises(fb.PaddingError, match="are those of the sequence without padding"):
        function(fb.asarray([1.0, 2.0, 4.0]))
    assert fb.pad_lengths((8, 16), check=False)(fb.jit(OF_THE_SIZE[name]))(fb.asarray([1.0, 2.0, 4.0])) is not None


def test_bools_half_precision_complex_and_padded_results_are_compared() -> None:
    two = (8, 16)
    anywhere = fb.pad_lengths(two)(fb.jit(lambda x, length: fb.any(x)))
    assert anywhere(fb.asarray([False, True])).item()
    for dtype in (fb.bfloat16, fb.float16, fb.complex64, fb.float64):
        total = fb.pad_lengths(two)(fb.jit(lambda x, length: fb.sum(fb.where(masked(x, length), x, fb.zeros_like(x))) / length))
        assert total(fb.ones(5, dtype=dtype)).item() == 1.0
        mean = fb.pad_lengths(two)(fb.jit(lambda x, length: fb.sum(fb.where(masked(x, length), x, fb.zeros_like(x))) / len(x)))
        with pytest.raises(fb.PaddingError):
            mean(fb.ones(5, dtype=dtype))
    kept = fb.pad_lengths(two)(fb.jit(lambda x, length: fb.where(masked(x, length), x, 0.0)))  # as long as the padded one
    assert kept(fb.ones(3)).tolist() == [1.0] * 3 + [0.0] * 5


def test_a_state_that_takes_the_padding_in_is_an_error_and_as_before() -> None:
    total = fb.zeros(())

    @fb.pad_lengths((8,))
    @fb.jit
    def add(x: fb.Tensor, length: int) -> int:
        nonlocal total
        total += fb.sum(x)
        return 0

    with pytest.raises(fb.PaddingError, match="that it returns or changes"):
        add(fb.ones(3))
    assert total.item() == 0.0


def test_integers_and_sequences_of_the_full_size() -> None:
    @fb.pad_lengths((4, 8), axis=1, result_axis=1, value=9)
    @fb.jit
    def kept(tokens: fb.Tensor, length: int) -> dict[str, fb.Tensor]:
        return {"tokens": tokens, "negated": -tokens, "kind": "kept"}

    for n in (1, 3, 4, 5, 8):
        x = np.arange(2 * n).reshape(2, n)
        found = kept(fb.asarray(x))
        assert np.array_equal(found["tokens"].numpy(), x)
        assert np.array_equal(found["negated"].numpy(), -x)
        assert found["kind"] == "kept"


def test_methods_and_named_arguments() -> None:
    class Scorer:
        def __init__(self) -> None:
            self.scale = fb.asarray(2.0)

        @fb.pad_lengths((4, 8), arguments="x")
        @fb.jit
        def score(self, bias: float, x: fb.Tensor, length: int) -> fb.Tensor:
            return fb.sum(fb.where(masked(x, length), x, 0.0)) * self.scale + bias

    scorer = Scorer()
    assert scorer.score(1.0, fb.ones(3)).item() == 7.0
    assert scorer.score(bias=2.0, x=fb.ones(5)).item() == 12.0


def test_bad_input_is_refused() -> None:
    for sizes in ((), (8, 4), (4, 4), (0, 4), (4.0,), (True, 4), (np.bool_(True), 4), (np.float64(4.0),)):
        with pytest.raises(ConfigError, match="sizes are ascending ints"):
            fb.pad_lengths(sizes)
    with pytest.raises(ArgumentError, match="has a parameter 'length'"):
        fb.pad_lengths((8,))(fb.jit(lambda x: x))
    with pytest.raises(ArgumentError, match="names parameters of"):
        fb.pad_lengths((8,), arguments="z")(fb.jit(lambda x, length: x))
    same = fb.pad_lengths((8,), arguments=("x", "y"))(fb.jit(lambda x, y, length: length + 0 * fb.zeros(())))
    with pytest.raises(ShapeError, match="at most 8 elements"):
        same(fb.ones(9), fb.ones(9))
    with pytest.raises(ShapeError, match="of one length along axis 0"):
        same(fb.ones(3), fb.ones(4))
    with pytest.raises(ShapeError, match="a tensor of shape"):
        same(fb.asarray(1.0), fb.asarray(2.0))
    with pytest.raises(ShapeError, match="tensors to pad"):
        same(1, 2)
    wrong = fb.pad_lengths((8,), result_axis=0)(fb.jit(lambda x, length: fb.zeros((3, 8))))
    with pytest.raises(ShapeError, match="elements along result_axis=0"):
        wrong(fb.ones(3))


def test_batches_of_a_loader_have_few_shapes() -> None:
    samples = [(np.arange(n, dtype=np.float32), n % 2) for n in (2, 5, 3, 1, 8, 7)]
    loader = data.DataLoader(samples, batch_size=2, collate=partial(data.pad_collate, sizes=(4, 8)))
    batches = list(loader)
    assert [x.shape for x, _, _ in batches] == [(2, 8), (2, 4), (2, 8)]
    assert [length.tolist() for _, length, _ in batches] == [[2, 5], [3, 1], [8, 7]]
    with pytest.raises(data.LoaderError, match="at most 4 elements"):
        data.pad_collate(samples, sizes=(2, 4))
    with pytest.raises(data.LoaderError, match="ascending"):
        data.pad_collate(samples, sizes=(8, 4))
