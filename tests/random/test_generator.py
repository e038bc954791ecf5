"""Draws: equal on every engine, at any split of a batch, and after going back to a state."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from limits import check_limit

import firebrick as fb
from firebrick.core.errors import ConfigError, DTypeError
from firebrick.ops.bits import philox
from firebrick.random import Generator

ENGINES = ["numpy", "cpu", "torch:cpu"]


@pytest.fixture(params=ENGINES[1:])
def device(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    return str(request.param)


DRAWS = {
    "uniform": lambda g, d: g.uniform((5, 3), device=d),
    "uniform float64 in a range": lambda g, d: g.uniform((5, 3), low=-2.0, high=7.0, dtype=fb.float64, device=d),
    "bernoulli": lambda g, d: g.bernoulli((100,), p=0.3, device=d),
    "integers": lambda g, d: g.integers((101,), low=-5, high=1000, device=d),
    "integers of a wide range": lambda g, d: g.integers((11,), low=-(2**62), high=2**62, dtype=fb.int64, device=d),
    "permutation": lambda g, d: g.permutation(57, device=d),
    "a key": lambda g, d: g.key(device=d),
    "0-d": lambda g, d: g.uniform((), device=d),
    "empty": lambda g, d: g.uniform((0, 4), device=d),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_draws_the_same_bits_on_every_engine(name: str, device: str) -> None:
    here, there = (DRAWS[name](Generator(11), d) for d in ("numpy", device))
    assert there.device is fb.device(device)
    assert here.dtype is there.dtype
    assert here.numpy().tobytes() == there.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_agree_within_4_ulp_on_every_engine(dtype: str, device: str) -> None:
    a, b = (Generator(3).normal((4000,), dtype=dtype, device=d).numpy() for d in ("numpy", device))
    assert np.max(np.abs(a - b) / np.spacing(np.abs(a))) <= 4


def test_two_draws_differ_and_two_seeds_differ() -> None:
    g = Generator(0)
    first, second, other = g.uniform((8,)).tolist(), g.uniform((8,)).tolist(), Generator(1).uniform((8,)).tolist()
    assert len({tuple(first), tuple(second), tuple(other)}) == 3


def test_a_draw_is_the_philox_stream_of_seed_and_counter() -> None:
    g = Generator(5 | 7 << 32)
    g.uniform((2,))
    expected = (philox(np.array([5, 7, 1, 0], np.uint32), 0, 6) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
    assert g.uniform((6,), dtype=fb.float32).tolist() == expected.tolist()


def test_moments_of_large_draws_are_those_of_their_distributions() -> None:
    n, g = 40_000, Generator(2)
    sigma = 4 / np.sqrt(n)  # four standard errors
    u, z = g.uniform((n,), dtype=fb.float64).numpy(), g.normal((n,), mean=1.0, std=2.0, dtype=fb.float64).numpy()
    assert abs(u.mean() - 0.5) < sigma * np.sqrt(1 / 12)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert abs(z.mean() - 1.0) < sigma * 2
    assert abs(z.std() - 2.0) < sigma * 2
    assert abs(g.bernoulli((n,), p=0.25).numpy().mean() - 0.25) < sigma * 0.5
    counts = np.bincount(g.integers((n,), low=0, high=7).numpy(), minlength=7)
    assert np.sum((counts - n / 7) ** 2 / (n / 7)) < 22.5  # chi², 6 degrees of freedom, p = 0.001


def test_integers_are_the_high_half_of_a_64_bit_product() -> None:
    words = philox(np.array([9, 0, 0, 0], np.uint32), 0, 12).tolist()
    for span in (1, 10, 2**31 - 1, 2**31, 2**31 + 1, 2**40):
        expected = [((hi << 32 | lo) * span >> 64) - 3 for hi, lo in zip(words[::2], words[1::2], strict=True)]
        assert Generator(9).integers((6,), low=-3, high=span - 3, dtype=fb.int64).tolist() == expected


def test_integers_reach_the_ends_of_uint64() -> None:
    drawn = Generator(0).integers((50,), low=2**64 - 3, high=2**64, dtype=fb.uint64).tolist()
    assert set(drawn) == {2**64 - 3, 2**64 - 2, 2**64 - 1}


def test_a_probability_of_0_is_never_and_of_1_is_always() -> None:
    assert not Generator(0).bernoulli((1000,), p=0.0).numpy().any()
    assert Generator(0).bernoulli((1000,), p=1.0).numpy().all()


@pytest.mark.parametrize("draw", ["uniform", "normal", "bernoulli", "integers"])
def test_a_share_of_a_batch_draws_what_the_whole_would_have_drawn(draw: str) -> None:
    def make(rows: int) -> np.ndarray:
        g = Generator(4)
        shape = (rows, 3, 5)
        return (g.integers(shape, low=0, high=99) if draw == "integers" else getattr(g, draw)(shape)).numpy()

    whole, parts, start = make(7), [], 0
    for rows in (2, 1, 4):
        with fb.random.row_offset(start):
            parts.append(make(rows))
        start += rows
    assert np.array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(make(4), whole[3:])  # without the offset it would differ


def test_a_state_brings_the_same_draws_back() -> None:
    g = Generator(1)
    g.normal((3,))
    state = g.state()
    assert {k: (v.dtype.name, v.shape) for k, v in state.items()} == {"seed": ("uint32", (2,)), "counter": ("uint32", (2,))}
    first = g.uniform((4,)).tolist()
    g.set_state(state)
    assert g.uniform((4,)).tolist() == first
    following = [twin.key().tolist() for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g)]
    assert following == [[1, 0, 3, 0]] * 3


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'a generator\'s state is \{"seed": uint32 \[2\], "counter": uint32 \[2\]\}'):
        Generator(0).set_state({"seed": [1]})


def test_forks_are_fixed_by_their_number_and_take_nothing_from_their_parent() -> None:
    g = Generator(1)
    a, b, again = g.fork(0), g.fork(1), g.fork(0)
    draws = [x.uniform((4,)).tolist() for x in (a, b, again, Generator(1), g)]
    assert draws[0] == draws[2]
    assert draws[3] == draws[4]
    assert draws[0] != draws[1]
    assert draws[0] != draws[3]
    assert g.fork().uniform((4,)).tolist() != g.fork().uniform((4,)).tolist()


def test_a_checkpointed_function_repeats_its_draws() -> None:
    g = Generator(0)

    def noisy(x: fb.Tensor) -> fb.Tensor:
        return fb.exp(x * g.uniform((3,)))

    plain = fb.grad(lambda x: fb.sum(noisy(x)))(fb.ones(3)).tolist()
    g.set_state(Generator(0).state())
    assert fb.grad(lambda x: fb.sum(fb.checkpoint(noisy)(x)))(fb.ones(3)).tolist() == plain
    assert g.state()["counter"].tolist() == [1, 0]  # drawing again did not count


def test_narrow_floats_are_drawn_in_float32_and_rounded() -> None:
    wide = Generator(0).normal((50,), dtype=fb.float32)
    assert Generator(0).normal((50,), dtype=fb.bfloat16).tolist() == fb.astype(wide, fb.bfloat16).tolist()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda g: Generator(-1), ConfigError, r"a seed is an int in \[0, 2\^64\)\nReceived: -1\."),
        (lambda g: g.uniform((2,), dtype=fb.int32), DTypeError, "uniform numbers have a floating dtype\nReceived: int32"),
        (lambda g: g.bernoulli((2,), p=1.5), ConfigError, r"a probability lies in \[0, 1\]\nReceived: p = 1.5"),
        (lambda g: g.integers((2,), low=3, high=3), ConfigError, r"with low < high\nReceived: \[3, 3\)"),
        (
            lambda g: g.integers((2,), low=0, high=300, dtype=fb.int8),
            DTypeError,
            r"the range must fit int8\nReceived: \[0, 300\)",
        ),
        (lambda g: g.integers((2,), low=0, high=2, dtype=fb.float32), DTypeError, "integers are drawn in an integer dtype"),
        (lambda g: g.permutation(-1), ConfigError, "a permutation has a length ≥ 0"),
        (lambda g: g.normal(2, std=-1), ConfigError, r"normal: std is a number ≥ 0\nReceived: std=-1.0"),
        (lambda g: g.normal(2, std=math.nan), ConfigError, "normal: std is a finite number\nReceived: std=nan"),
        (lambda g: g.normal(2, mean=math.inf), ConfigError, "normal: mean is a finite number"),
        (lambda g: g.normal(2, mean="1"), ConfigError, "normal: mean is a number\nReceived: mean='1'"),
        (lambda g: g.normal(2, mean=10**400), ConfigError, "normal: mean is a finite number"),
        (lambda g: g.normal(2, mean=fb.ones(2)), fb.OperandError, r"normal: mean is a number\nReceived: mean: float32\[2\]"),
        (lambda g: g.uniform(2, low=1, high=-1), ConfigError, r"with low ≤ high.*\nReceived: \[1.0, -1.0\)"),
        (lambda g: g.uniform(2, low=-1.7e308, high=1.7e308), ConfigError, "a finite difference"),
        (lambda g: g.uniform(2, high=math.inf), ConfigError, "uniform: high is a finite number"),
        (lambda g: g.uniform(2, low="0"), ConfigError, "uniform: low is a number"),
        (lambda g: g.bernoulli(2, p=math.nan), ConfigError, "bernoulli: p is a finite number"),
        (lambda g: g.bernoulli(2, p="0.5"), ConfigError, "bernoulli: p is a number"),
        (lambda g: g.integers(2, low=0.5, high=2.7), ConfigError, "integers: low is an int\nReceived: low=0.5"),
        (lambda g: g.integers(2, low=0, high=np.float32(1.9)), ConfigError, "integers: high is an int"),
        (lambda g: g.integers(2, low=0, high=math.nan), ConfigError, "integers: high is an int\nReceived: high=nan"),
        (lambda g: g.integers(2, low=0, high=math.inf), ConfigError, "integers: high is an int"),
        (lambda g: g.integers(2, low=0, high="5"), ConfigError, "integers: high is an int\nReceived: high='5'"),
    ],
)
def test_errors_say_what_was_expected_and_received(call, error, text: str) -> None:
    generator = Generator(0)
    with pytest.raises(error, match=text):
        call(generator)
    assert generator.place() == 0  # nothing was drawn


@pytest.mark.parametrize("source", [fb.random, Generator(0)], ids=["module", "generator"])
@pytest.mark.parametrize(
    ("draw", "named", "text"),
    [
        ("normal", {"size": (2, 3)}, r"Received: size=\(2, 3\)[\s\S]*pass the shape first: normal\(\(2, 3\)\)"),
        ("normal", {"shape": 2, "loc": 1}, r"Received: loc=1[\s\S]*write mean="),
        ("normal", {"shape": 2, "scale": 1}, r"Received: scale=1[\s\S]*write std="),
        ("uniform", {"shape": 2, "minval": 0}, r"Received: minval=0[\s\S]*write low="),
        ("uniform", {"shape": 2, "sead": 0}, r"Received: sead=0[\s\S]*name one of these: low=, high=, dtype=, device="),
        ("bernoulli", {"shape": 2, "probs": 0.5}, r"Received: probs=0.5[\s\S]*write p="),
        ("integers", {"shape": 2, "high": 10}, r"integers needs low\n[\s\S]*integers\(\(2, 3\), low=0, high=10\)"),
        ("uniform", {}, r"uniform needs shape\n[\s\S]*uniform\(\(2, 3\)\)"),
    ],
)
def test_an_argument_spelled_as_in_another_library_raises_with_its_name_here(source, draw, named, text) -> None:
    with pytest.raises(fb.OperandError, match=text):
        getattr(source, draw)(**named)


SPELLED = {
    "low": ("minval", "min", "a"), "high": ("maxval", "max", "b"), "mean": ("loc", "mu"), "std": ("scale", "stddev", "sigma"),
    "p": ("prob", "probs", "probability"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "theirs"), [(n, t) for n, spelled in SPELLED.items() for t in spelled])
def test_the_error_says_how_an_argument_of_another_library_is_named_here(name: str, theirs: str) -> None:
    draw = "bernoulli" if name == "p" else "normal" if name in ("mean", "std") else "uniform"
    with pytest.raises(fb.OperandError, match=rf"{draw} takes a shape[\s\S]*Received: {theirs}=1\.[\s\S]*write {name}="):
        getattr(Generator(0), draw)(2, **{theirs: 1})
    other = "normal" if draw == "bernoulli" else "bernoulli"
    with pytest.raises(fb.OperandError, match="name one of these"):  # where there is no such setting
        getattr(Generator(0), other)(2, **{theirs: 1})


# a draw with one setting; values that are allowed, and values that are not
LIMITS = {
    "seed": (lambda v: Generator(v), (0, (1 << 64) - 1, np.int64(3)), (-1, 1 << 64, True, 1.0)),
    "fork": (lambda v: Generator(0).fork(v), (0, (1 << 63) - 1), (-1, 1 << 63)),
    "uniform high": (lambda v: Generator(0).uniform(2, high=v), (0.0, 1, 1e308), (-1e-9, math.inf)),
    "normal std": (lambda v: Generator(0).normal(2, std=v), (0.0, 1), (-1e-9, math.inf)),
    "bernoulli p": (lambda v: Generator(0).bernoulli(2, p=v), (0.0, 1.0, 1), (-1e-9, 1.0 + 1e-9)),
    "integers high": (lambda v: Generator(0).integers(2, low=0, high=v), (1, 1 << 63), (0, -1)),
    "integers of int8": (
        lambda v: Generator(0).integers(2, low=v[0], high=v[1], dtype=fb.int8), ((-128, 128),), ((-129, 0), (0, 129))
    ),
    "permutation": (lambda v: Generator(0).permutation(v), (0, 1, np.int64(2)), (-1, True, 1.0)),
    "row_offset": (lambda v: fb.random.row_offset(v).__enter__(), (), (-1,)),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITS)
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(what: str) -> None:
    check_limit(LIMITS[what])


def test_a_traced_number_among_the_settings_of_a_draw_is_named() -> None:
    with pytest.raises(fb.DataDependentError, match=r"normal: std needs the number s[\s\S]*static_argnames='s'"):
        fb.jit(lambda s: fb.random.normal((2,), std=s))(2.0)


@pytest.mark.parametrize("source", [fb.random, Generator(0)], ids=["module", "generator"])
@pytest.mark.parametrize(
    ("draw", "given"),
    [
        ("normal", (2, 3)), ("normal", (0.0, 1.0, (2, 3))), ("normal", ((2, 3), 1.0)), ("uniform", (2, 3)),
        ("uniform", (2, 3, 4)),
        ("uniform", (0.0, 1.0, 5)), ("integers", (0, 10, 20)), ("integers", (0, 10, (5,))), ("integers", (10, 5)),
        ("bernoulli", (2, 1)), ("bernoulli", (0.5, (3,))),
    ],
)  # fmt: skip
def test_a_shape_in_several_arguments_or_a_number_without_its_name_raises(source, draw, given) -> None:
    """``normal(2, 3)`` was of shape (2,) with mean 3: neither PyTorch's ``randn(2, 3)`` nor NumPy's ``normal(2, 3)``."""
    with pytest.raises(fb.OperandError, match=rf"(?s){draw} takes one positional argument, the shape.*{draw}\(\(2, 3\)\)"):
        getattr(source, draw)(*given)


def test_the_shape_is_a_tuple_or_one_number() -> None:
    for shape, sizes in (((2, 3), (2, 3)), ([2, 3], (2, 3)), (4, (4,)), ((), ()), (np.int64(4), (4,))):
        assert fb.random.normal(shape).shape == fb.random.uniform(shape=shape).shape == sizes
        assert fb.random.integers(shape, low=0, high=9).shape == fb.random.bernoulli(shape, p=0.5).shape == sizes


def test_the_processs_seed_restarts_every_devices_default_generator() -> None:
    fb.random.seed(8)
    first = [fb.random.uniform((3,), device=d).tolist() for d in ("numpy", "cpu", "cpu:1")]
    assert first[0] == first[1] == first[2]
    assert fb.random.uniform((3,), device="cpu").tolist() != first[1]
    fb.random.seed(8)
    assert fb.random.uniform((3,), device="cpu").tolist() == first[1]


SEEDS = [0, 1, 2, 1 << 31, (1 << 32) - 1, 1 << 32, 2 << 32, 1 << 63, (1 << 64) - 1, (7 << 32) | 5, (7 << 32) | 6, (8 << 32) | 5]


@pytest.mark.parametrize("device", ["cpu", "cpu:1", "numpy:1", "torch:cpu"])
def test_every_word_of_a_seed_matters_to_every_draw(device: str) -> None:
    """Seeds that differ in one of their two words, or in one bit, draw differently, and so do initial values."""
    drawn, initial = {}, {}
    for n in SEEDS:
        fb.random.seed(n)
        drawn[n] = fb.random.uniform((8,), device=device).numpy().tobytes()
        initial[n] = fb.nn.Linear(3, 3, device=device).weight.numpy().tobytes()
        assert drawn[n] == Generator(n).uniform((8,), device=device).numpy().tobytes()
    assert len(set(drawn.values())) == len(set(initial.values())) == len(SEEDS)


def test_a_state_of_the_process_keeps_both_words_of_its_seed() -> None:
    for n in SEEDS:
        fb.random.seed(n)
        saved = fb.random.state()
        want = fb.random.uniform((8,), device="numpy:1").tolist()
        fb.random.seed(99)
        fb.random.set_state(saved)
        assert fb.random.uniform((8,), device="numpy:1").tolist() == want


@pytest.mark.parametrize("n", [-1, 1 << 64, 1 << 65, (1 << 64) + 1, 0.0, True, "1", None])
def test_a_seed_that_does_not_fit_two_words_is_refused_and_changes_nothing(n: object) -> None:
    fb.random.seed(3)
    want = fb.random.state()["process"]["seed"].tolist()
    with pytest.raises(ConfigError, match=r"a seed is an int in \[0, 2\^64\)"):
        fb.random.seed(n)
    assert fb.random.state()["process"]["seed"].tolist() == want


def test_seeding_a_device_through_its_backend_restarts_that_device_alone() -> None:
    fb.random.seed(8)
    cpu = fb.device("cpu")
    plain = fb.random.uniform((3,), device="cpu").tolist()
    for _ in range(2):  # the same number twice restarts twice
        cpu.backend.seed(cpu, 99)
        assert fb.random.uniform((3,), device="cpu").tolist() == Generator(99).uniform((3,)).tolist()
    assert fb.random.uniform((3,), device="numpy").tolist() == plain
    cpu.backend.seed(cpu, 99)
    fb.random.seed(8)  # the last one to speak wins
    assert fb.random.uniform((3,), device="cpu").tolist() == plain


def test_the_state_of_all_default_generators_comes_back() -> None:
    fb.random.seed(1)
    fb.random.normal((2,), device="cpu")
    saved = pickle.loads(pickle.dumps(fb.random.state()))
    first = (fb.random.uniform((3,), device="cpu").tolist(), fb.random.initial_generator().uniform((3,)).tolist())
    fb.random.seed(2)
    fb.random.set_state(saved)
    assert (fb.random.uniform((3,), device="cpu").tolist(), fb.random.initial_generator().uniform((3,)).tolist()) == first


@pytest.mark.parametrize("state", [{}, 3, None, {"devices": {}}])
def test_what_is_no_state_of_the_default_generators_is_refused_and_changes_nothing(state: object) -> None:
    fb.random.seed(1)
    with pytest.raises(ConfigError, match="devices, process and initial"):
        fb.random.set_state(state)
    first = fb.random.uniform((3,)).tolist()
    fb.random.seed(1)
    assert fb.random.uniform((3,)).tolist() == first


@pytest.mark.parametrize("n", [2.5, -1, True, "3", None])
def test_a_permutation_has_a_whole_length(n: object) -> None:
    with pytest.raises(ConfigError, match="length ≥ 0"):
        fb.random.permutation(n)
    assert fb.random.permutation(np.int64(3)).shape == (3,)


def test_a_setting_of_a_draw_may_be_a_tensor_without_axes() -> None:
    low, high = fb.asarray(2.0), fb.asarray(3.0)
    a = Generator(0).uniform((4,), low=low, high=high).numpy()
    np.testing.assert_array_equal(a, Generator(0).uniform((4,), low=2.0, high=3.0).numpy())
    with pytest.raises(fb.OperandError, match="uniform: low is a number"):
        Generator(0).uniform((4,), low=fb.zeros(1))


@pytest.mark.parametrize("words", [[1.0, 2.0], [-1, 0], [0, 1 << 32]])
def test_words_of_a_state_are_two_of_32_bits(words: list[float]) -> None:
    generator = Generator(3)
    state = generator.state()
    before = generator.uniform((3,)).tolist()
    generator.set_state(state)
    name = next(k for k, v in state.items() if np.shape(np.asarray(v.numpy() if isinstance(v, fb.Tensor) else v)) == (2,))
    with pytest.raises(ConfigError):
        generator.set_state({**state, name: np.asarray(words)})
    assert generator.uniform((3,)).tolist() == before


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("uniform", {"low": -2.0, "high": 7.0, "dtype": fb.float64}),
        ("normal", {"mean": 3.0, "std": 0.25, "dtype": fb.float64}),
        ("bernoulli", {"p": 0.125}),
        ("integers", {"low": -5, "high": 1000, "dtype": fb.int32}),
        ("permutation", {}),
    ],
)
def test_a_draw_of_the_module_passes_each_argument_to_the_generator_of_its_device(name: str, settings: dict[str, Any]) -> None:
    fb.random.seed(5)
    found = getattr(fb.random, name)(60, **settings, device="numpy:1")
    fb.random.seed(5)
    want = getattr(fb.random.default_generator("numpy:1"), name)(60, **settings, device="numpy:1")
    assert (found.device, found.dtype) == (want.device, want.dtype)
    assert found.device.name == "numpy:1"
    assert found.tolist() == want.tolist()
