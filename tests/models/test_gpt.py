"""Language models: logits of PyTorch models of the same weights, generation with a cache and without, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import models
from firebrick.random import Generator

PROMPTS = [[1, 2, 3], [7], [4, 5, 6, 7, 8, 9]]
SETTINGS: dict[str, dict[str, Any]] = {
    "Llama": {"key_heads": 2},
    "GPT-2": {"norm": "layer", "feed_forward": "gelu_tanh", "positions": "learned", "bias": True},
    "untied": {"tied": False, "feed_forward": "gelu", "key_heads": 1},
}


def small(vocabulary: int = 40, **settings: Any) -> models.GPT:
    fb.random.seed(0)
    made = models.GPT(vocabulary, length=48, dim=16, heads=4, layers=1, **settings)
    for p in made.parameters():  # far from 0, so that the most probable token is clear
        if p.ndim == 2:
            p[...] = p.detach() * 8.0
    return made.eval()


def by_hand(model: models.GPT, prompt: list[int], count: int) -> list[int]:
    """The most probable tokens, each from the whole sequence before it."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(fb.argmax(model(fb.asarray([tokens]))[0, -1]).item()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_with_a_cache_are_those_without_alone_and_among_prompts_of_other_lengths(name: str) -> None:
    model = small(**SETTINGS[name])
    want = [by_hand(model, p, 6) for p in PROMPTS]
    assert models.generate(model, PROMPTS, max_tokens=6, temperature=0.0) == want
    assert models.generate(model, PROMPTS[0], max_tokens=6, temperature=0.0) == want[0]
    if name == "Llama":
        assert models.generate(model, PROMPTS, max_tokens=6, top_k=1) == want


@pytest.mark.parametrize("engine", ["numpy", "torch:cpu"])
def test_tokens_are_equal_on_every_engine(engine: str) -> None:
    model = small()
    want = models.generate(model, PROMPTS, max_tokens=6, generator=Generator(3), top_p=0.9)
    assert models.generate(model.to(engine), PROMPTS, max_tokens=6, generator=Generator(3), top_p=0.9) == want


def test_tokens_that_are_streamed_are_those_of_the_whole_graph_and_come_one_by_one() -> None:
    model = small()
    seen: list[list[int]] = []
    how = {"max_tokens": 8, "temperature": 0.8, "top_k": 9, "top_p": 0.9}
    want = models.generate(model, PROMPTS, generator=Generator(1), **how)
    assert models.generate(model, PROMPTS, generator=Generator(1), on_token=seen.append, **how) == want
    assert [list(column) for column in zip(*seen, strict=True)] == want
    other = models.generate(model, PROMPTS, generator=Generator(2), **how)
    assert other != want


@pytest.mark.parametrize("streamed", [False, True])
def test_a_sequence_ends_after_a_stop_token(streamed: bool) -> None:
    model = small()
    whole = models.generate(model, PROMPTS, max_tokens=12, temperature=0.0)
    stop = [whole[0][3], whole[1][5]]
    want = [row[: next((i + 1 for i, t in enumerate(row) if t in stop), 12)] for row in whole]
    seen: list[list[int]] = []
    on_token = seen.append if streamed else None
    assert models.generate(model, PROMPTS, max_tokens=12, temperature=0.0, stop=stop, on_token=on_token) == want
    if streamed:
        assert len(seen) == max(map(len, want))
        assert [sum(t >= 0 for t in column) for column in zip(*seen, strict=True)] == list(map(len, want))


def test_draws_follow_the_probabilities_that_are_left() -> None:
    model = small()
    logits = model(fb.asarray([[5]]))[0, -1].numpy().astype(np.float64) / 1.5
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    order = np.argsort(-chances)
    keep = {"k": order[:3], "p": order[: int(np.searchsorted(np.cumsum(chances[order]), 0.6)) + 1]}
    for name, how in (("k", {"top_k": 3}), ("p", {"top_p": 0.6})):
        drawn = models.generate(model, [[5]] * 3000, max_tokens=1, temperature=1.5, generator=Generator(0), **how)
        counts = np.bincount(np.asarray(drawn)[:, 0], minlength=40) / 3000
        want = np.zeros(40)
        want[keep[name]] = chances[keep[name]] / chances[keep[name]].sum()
        assert (counts[want == 0] == 0).all()
        np.testing.assert_allclose(counts, want, atol=5 * math.sqrt(0.25 / 3000))


def sequences(model: models.GPT, prompt: list[int], count: int) -> Iterator[tuple[float, list[int]]]:
    """All sequences of two tokens with their probabilities' logarithms."""
    assert count == 2
    first = fb.log_softmax(model(fb.asarray([prompt]))[0, -1]).numpy()
    for a in range(12):
        second = fb.log_softmax(model(fb.asarray([[*prompt, a]]))[0, -1]).numpy()
        yield from ((float(first[a] + second[b]), [a, b]) for b in range(12))


def test_with_as_many_beams_as_tokens_the_most_probable_sequence_is_found() -> None:
    model = small(12)
    best = [max(sequences(model, p, 2))[1] for p in PROMPTS]
    assert models.generate(model, PROMPTS, max_tokens=2, beams=12) == best
    greedy = models.generate(model, PROMPTS, max_tokens=6, temperature=0.0)
    assert [r[:1] for r in models.generate(model, PROMPTS, max_tokens=1, beams=2)] == [r[:1] for r in greedy]
    stopped = models.generate(model, PROMPTS, max_tokens=6, beams=3, stop=greedy[0][0])
    assert all(greedy[0][0] not in row[:-1] for row in stopped)


def test_one_generation_is_one_graph_for_any_text() -> None:
    from firebrick.models.generation import _graphs

    model = small()
    for prompt in ([1, 2], [3, 4, 5, 6], [9] * 7, [9] * 8):
        models.generate(model, prompt, max_tokens=7, temperature=0.5)
    (run,) = _graphs[model].values()
    assert run.traces == 1


def test_a_model_is_trained_on_the_next_token() -> None:
    fb.random.seed(1)
    model = models.GPT(5, length=16, dim=16, heads=2, layers=1)
    text = fb.asarray([[0, 1, 2, 3, 4] * 2])
    optimizer = fb.optim.AdamW(model, lr=3e-2)

    @fb.jit
    def step() -> fb.Tensor:
        loss, grads = fb.value_and_grad(lambda m: fb.cross_entropy(m(text[:, :-1])[0], text[0, 1:]))(model)
        optimizer.update(model, grads)
        return loss

    for _ in range(60):
        loss = step()
    assert loss.item() < 0.1
    assert models.generate(model, [0, 1], max_tokens=6, temperature=0.0) == [2, 3, 4, 0, 1, 2]
    assert model.training


# weights of other libraries


def torch_gpt2(torch: Any, dim: int, heads: int, layers: int) -> tuple[dict[str, Any], Any]:
    """A state by GPT-2's names, and the logits that PyTorch computes from it."""
    rng = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=rng, dtype=torch.float64) * 0.3

    state = {"transformer.wte.weight": random(30, dim), "transformer.wpe.weight": random(16, dim)}
    for i in range(layers):
        of = f"transformer.h.{i}."
        shapes = {
            "attn.c_attn": (dim, 3 * dim),
            "attn.c_proj": (dim, dim),
            "mlp.c_fc": (dim, 4 * dim),
            "mlp.c_proj": (4 * dim, dim),
        }
        for name, (a, b) in shapes.items():
            state |= {f"{of}{name}.weight": random(a, b), f"{of}{name}.bias": random(b)}
        for name in ("ln_1", "ln_2"):
            state |= {f"{of}{name}.weight": 1 + random(dim), f"{of}{name}.bias": random(dim)}
        state[f"{of}attn.bias"] = torch.ones(1, 1, 16, 16)
    state |= {"transformer.ln_f.weight": 1 + random(dim), "transformer.ln_f.bias": random(dim)}

    def logits(tokens: Any) -> Any:
        f = torch.nn.functional
        get = {k.removeprefix("transformer."): v for k, v in state.items()}
        b, n = tokens.shape
        x = get["wte.weight"][tokens] + get["wpe.weight"][:n]
        for i in range(layers):
            w = {k.removeprefix(f"h.{i}."): v for k, v in get.items() if k.startswith(f"h.{i}.")}
            y = f.layer_norm(x, (dim,), w["ln_1.weight"], w["ln_1.bias"])
            q, k, v = (y @ w["attn.c_attn.weight"] + w["attn.c_attn.bias"]).split(dim, -1)
            q, k, v = (t.view(b, n, heads, -1).transpose(1, 2) for t in (q, k, v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, dim)
            x = x + y @ w["attn.c_proj.weight"] + w["attn.c_proj.bias"]
            y = f.layer_norm(x, (dim,), w["ln_2.weight"], w["ln_2.bias"])
            y = f.gelu(y @ w["mlp.c_fc.weight"] + w["mlp.c_fc.bias"], approximate="tanh")
            x = x + y @ w["mlp.c_proj.weight"] + w["mlp.c_proj.bias"]
        return f.layer_norm(x, (dim,), get["ln_f.weight"], get["ln_f.bias"]) @ get["wte.weight"].T

    return state, logits


def torch_llama(torch: Any, dim: int, heads: int, key_heads: int, layers: int) -> tuple[dict[str, Any], Any]:
    """A state by Llama's names, and the logits that PyTorch computes from it."""
    rng, size, hidden = torch.Generator().manual_seed(1), dim // heads, 3 * dim

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=rng, dtype=torch.float64) * 0.3

    state = {
        "model.embed_tokens.weight": random(30, dim),
        "model.norm.weight": 1 + random(dim),
        "lm_head.weight": random(30, dim),
    }
    for i in range(layers):
        of = f"model.layers.{i}."
        rows = {"self_attn.q": dim, "self_attn.k": key_heads * size, "self_attn.v": key_heads * size, "self_attn.o": dim,
                "mlp.gate": hidden, "mlp.up": hidden}  # fmt: skip
        state |= {f"{of}{name}_proj.weight": random(n, dim) for name, n in rows.items()}
        state[f"{of}mlp.down_proj.weight"] = random(dim, hidden)
        state |= {f"{of}{n}_layernorm.weight": 1 + random(dim) for n in ("input", "post_attention")}

    def normed(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    def turned(x: Any) -> Any:
        half = size // 2
        angles = torch.arange(x.shape[2])[:, None] * 5000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def logits(tokens: Any) -> Any:
        f, (b, n) = torch.nn.functional, tokens.shape
        x = state["model.embed_tokens.weight"][tokens]
        for i in range(layers):
            w = {k.removeprefix(f"model.layers.{i}."): v for k, v in state.items() if k.startswith(f"model.layers.{i}.")}
            y = normed(x, w["input_layernorm.weight"])
            q, k, v = ((y @ w[f"self_attn.{p}_proj.weight"].T).view(b, n, -1, size).transpose(1, 2) for p in ("q", "k", "v"))
            k, v = (t.repeat_interleave(heads // key_heads, 1) for t in (turned(k), v))
            y = f.scaled_dot_product_attention(turned(q), k, v, is_causal=True).transpose(1, 2).reshape(b, n, dim)
            x = x + y @ w["self_attn.o_proj.weight"].T
            y = normed(x, w["post_attention_layernorm.weight"])
            x = x + (f.silu(y @ w["mlp.gate_proj.weight"].T) * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
        return normed(x, state["model.norm.weight"]) @ state["lm_head.weight"].T

    return state, logits


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_safetensors_file_with_the_names_of_another_library_gives_its_logits(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    files = pytest.importorskip("safetensors.numpy")
    state, logits = torch_gpt2(torch, 24, 3, 2) if name == "gpt2" else torch_llama(torch, 24, 6, 2, 2)
    files.save_file({k: np.ascontiguousarray(v.numpy()) for k, v in state.items()}, tmp_path / "model.safetensors")
    tokens = np.random.default_rng(0).integers(0, 30, (2, 16))
    want = logits(torch.tensor(tokens)).numpy()
    for values in (files.load_file(tmp_path / "model.safetensors"), state):
        if name == "gpt2":
            model = models.gpt2(values, heads=3)
        else:
            model = models.llama(values, heads=6, length=16, base=5000.0, eps=1e-6)
        np.testing.assert_allclose(model(fb.asarray(tokens)).numpy(), want, rtol=1e-9, atol=1e-9)
    prompt, texts = tokens[0, :5], torch.tensor(tokens[:1, :5])
    for _ in range(4):
        texts = torch.cat([texts, logits(texts)[:, -1:].argmax(-1)], 1)
    assert models.generate(model, prompt.tolist(), max_tokens=4, temperature=0.0) == texts[0, 5:].tolist()


def test_a_head_of_its_own_is_used_and_one_that_repeats_the_embeddings_is_tied() -> None:
    torch = pytest.importorskip("torch")
    state, logits = torch_gpt2(torch, 24, 3, 1)
    words = state[next(name for name in state if name.endswith("wte.weight"))]
    tokens = np.random.default_rng(0).integers(0, 30, (1, 7))
    plain = models.gpt2(state, heads=3)(fb.asarray(tokens)).numpy()
    np.testing.assert_allclose(plain, logits(torch.tensor(tokens)).numpy(), rtol=1e-9, atol=1e-9)
    negated = models.gpt2({**state, "lm_head.weight": -words}, heads=3)
    np.testing.assert_allclose(negated(fb.asarray(tokens)).numpy(), -plain, rtol=1e-9, atol=1e-9)
    same = models.gpt2({**state, "lm_head.weight": torch.nn.Parameter(words.clone())}, heads=3)
    assert len(same.parameters()) == len(negated.parameters()) - 1
    transposed = {k: v.T if "c_attn.weight" in k else v for k, v in state.items()}
    with pytest.raises(fb.ConfigError, match=r"h.0.attn.c_attn.weight is \[24, 72\](.|\n)*transpose the weights"):
        models.gpt2(transposed, heads=3)
    with pytest.raises(fb.ConfigError, match=r"one head for each 64 features(.|\n)*24 features"):
        models.gpt2(state)


def test_names_that_are_missing_or_left_over_are_refused() -> None:
    torch = pytest.importorskip("torch")
    state, _ = torch_gpt2(torch, 24, 3, 1)
    with pytest.raises(fb.ConfigError, match=r"gpt2: the state has h\.0\.ln_1\.bias"):
        models.gpt2({k: v for k, v in state.items() if "ln_1.bias" not in k}, heads=3)
    with pytest.raises(fb.ConfigError, match="every name of the state is known"):
        models.gpt2({**state, "other": torch.ones(2)}, heads=3)
    with pytest.raises(fb.ConfigError, match="takes a mapping"):
        models.gpt2([1, 2])  # type: ignore[arg-type]
    state, _ = torch_llama(torch, 24, 6, 2, 1)
    with pytest.raises(fb.ConfigError, match="heads divides the features"):
        models.llama(state, heads=5, length=8)


# what does not fit


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_logits_that_are_not_finite_are_an_error_and_no_text(device: str) -> None:
    ways: list[dict[str, Any]] = [
        {"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.5}, {"stop": 3}, {"beams": 2}, {"on_token": lambda tokens: None},
    ]  # fmt: skip
    for bad in (math.nan, math.inf):
        model = small(10).to(device)
        model.norm.weight = fb.full((16,), bad, device=device)
        for how in ways:
            with pytest.raises(fb.ConfigError, match="logits of the next token are finite"):
                models.generate(model, [[1, 2], [3]], max_tokens=3, **how)


def test_a_tiny_temperature_takes_the_most_probable_token_and_a_huge_one_draws_evenly() -> None:
    model = small(10)
    want = models.generate(model, PROMPTS[:2], max_tokens=6, temperature=0.0)
    for temperature in (1e-30, 1e-45, 1e-300):
        for how in ({}, {"top_k": 4}, {"top_p": 0.5}):
            assert models.generate(model, PROMPTS[:2], max_tokens=6, temperature=temperature, **how) == want
    found = models.generate(model, [[1]] * 400, max_tokens=1, temperature=1e300, generator=Generator(0))
    assert min(np.bincount([t for (t,) in found], minlength=10)) > 15


def test_the_most_probable_tokens_are_as_many_as_said_where_logits_are_equal() -> None:
    model = small(10)
    model.embed.weight[...] = fb.zeros((10, 16))
    for k in (1, 2, 5):
        found = models.generate(model, [[1]] * 100, max_tokens=2, top_k=k, generator=Generator(0))
        assert {t for row in found for t in row} == set(range(k))


@pytest.mark.parametrize("fails", [False, True])
def test_generation_leaves_each_part_of_a_model_in_its_mode(fails: bool) -> None:
    model = models.GPT(10, length=16, dim=8, heads=2, layers=2, dropout=0.1).train()
    model.blocks[0].eval()
    before = {name: m.training for name, m in model.modules()}
    assert set(before.values()) == {True, False}

    def stops(tokens: list[int]) -> None:
        if fails:
            raise KeyError("stop")

    with pytest.raises(KeyError) if fails else nullcontext():
        models.generate(model, [1], max_tokens=2, on_token=stops)
    assert {name: m.training for name, m in model.modules()} == before


def test_what_does_not_fit_is_refused() -> None:
    model = small()
    calls: list[Any] = [
        (lambda: models.generate(model, [1] * 40, max_tokens=9), fb.ConfigError, "at most the 48 positions of the model"),
        (lambda: models.generate(model, [40], max_tokens=1), fb.OutOfRangeError, r"tokens of prompts lie in \[0, 40\)"),
        (lambda: models.generate(model, "text", max_tokens=1), fb.ConfigError, "encode the text first"),
        (lambda: models.generate(model, [1.7], max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, [[1], [True]], max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, np.asarray([1.5]), max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, [1, [2]], max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, [[2], 1], max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, [[1], b"a"], max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, {1: 2}, max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, 3, max_tokens=1), fb.ConfigError, "prompts are tokens, which are ints"),
        (lambda: models.generate(model, [1], max_tokens=1, stop=40), fb.OutOfRangeError, r"tokens of stop lie in \[0, 40\)"),
        (lambda: models.generate(model, [1], max_tokens=1, beams=2, top_k=2), fb.ConfigError, "nothing is drawn with beams"),
        (lambda: models.generate(model, [1], max_tokens=1, beams=2, top_p=0.5), fb.ConfigError, "nothing is drawn with beams"),
        (lambda: models.generate(model, [1], max_tokens=1, beams=2, temperature=2.0), fb.ConfigError, "nothing is drawn with"),
        (lambda: models.generate(model, [1], max_tokens=1, generator=3), fb.ConfigError, "generator is a Generator"),
        (lambda: models.generate(model, [1], max_tokens=1, on_token=3), fb.ConfigError, "on_token is a function"),
        (lambda: models.generate(None, [1], max_tokens=1), fb.ConfigError, "takes a language model"),
        (lambda: models.GPT(4, base=0.0), fb.ConfigError, "base is a finite number > 0"),
        (lambda: models.GPT(4, base=math.nan), fb.ConfigError, "base is a finite number > 0"),
        (lambda: models.GPT(4, base="nan"), fb.ConfigError, "base is a number"),
        (lambda: models.GPT(4, eps=-1.0), fb.ConfigError, "eps is a finite number ≥ 0"),
        (lambda: models.GPT(4, bias=3), fb.ConfigError, "bias is True or False"),
        (lambda: models.GPT(4, tied="no"), fb.ConfigError, "tied is True or False"),
        (lambda: models.generate(model, [], max_tokens=1), fb.ConfigError, "at least one token"),
        (lambda: models.generate(model, [[1], []], max_tokens=1), fb.ConfigError, "at least one token"),
        (lambda: models.generate(model, [1], max_tokens=-1), fb.ConfigError, "max_tokens is an int ≥ 0"),
        (lambda: models.generate(model, [1], max_tokens=1, temperature=-1.0), fb.ConfigError, "temperature"),
        (lambda: models.generate(model, [1], max_tokens=1, top_p=0.0), fb.ConfigError, "top_p"),
        (lambda: models.generate(model, [1], max_tokens=1, top_k=0), fb.ConfigError, "top_k"),
        (lambda: models.generate(model, [1], max_tokens=1, beams=2, on_token=print), fb.ConfigError, "beams"),
        (lambda: models.GPT(4, dim=10, heads=3), fb.ConfigError, "heads"),
        (lambda: models.GPT(4, heads=4, key_heads=3), fb.ConfigError, "key_heads divides heads"),
        (lambda: models.GPT(4, norm="batch"), fb.ConfigError, 'norm is one of "rms", "layer"'),
        (lambda: models.GPT(4, dim=12, heads=4), fb.ConfigError, "an even number of features"),
        (lambda: model(fb.zeros((1, 49), dtype=fb.int64)), fb.ShapeError, "at most 48 tokens"),
        (lambda: model(fb.zeros((1, 4))), fb.DTypeError, "integer dtype"),
        (lambda: model.new_cache(1, 49), fb.ConfigError, "at most the 48 positions"),
    ]  # fmt: skip
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
    assert models.generate(model, [1], max_tokens=0) == []
    assert models.generate(model, [[1], [2]], max_tokens=0) == [[], []]
