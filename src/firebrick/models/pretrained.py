"""Language models from weights under the names of GPT-2 and of Llama."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import astype, equal
from firebrick.functions.movement import concat, matrix_transpose, split
from firebrick.functions.utility import all as all_
from firebrick.models.gpt import GPT

_BLOCK = re.compile(r"(?:transformer\.|model\.)?(?:h|layers)\.(\d+)\.(.+)")
_UNUSED = re.compile(r".*(?:\.attn\.(?:masked_)?bias|rotary_emb\.inv_freq)")


def gpt2(state: Mapping[str, Any], *, heads: int | None = None, device: Any = None) -> GPT:
    """A model with the weights of GPT-2.

    Args:
        state: Values by the names of GPT-2 (``h.0.attn.c_attn.weight``), with or without "transformer." before them: tensors
            of Firebrick or PyTorch, or arrays, such as a safetensors file has. An ``lm_head.weight`` that differs from
            ``wte.weight`` is a head of its own.
        heads: Attention heads; one for each 64 features by default, as in all sizes of GPT-2.
        device: Device of the model.

    Returns:
        The model, in evaluation.

    Raises:
        ConfigError: A name is missing or unknown.

    Example:
        >>> import firebrick as fb
        >>> try:
        ...     fb.models.gpt2({})
        ... except fb.ConfigError as e:
        ...     print(str(e).splitlines()[0])
        gpt2: the state has wte.weight
    """
    found = _Names("gpt2", state, device)
    words, places = found.take("wte.weight"), found.take("wpe.weight")
    (vocabulary, dim), length, layers = words.shape, places.shape[0], found.layers()
    named = {"embed.weight": words, "position": places}
    for i in range(layers):
        of, to = f"h.{i}.", f"blocks.{i}."
        together = found.take(of + "attn.c_attn.weight")
        if together.shape != (dim, 3 * dim):
            raise ConfigError(
                f"gpt2: {of}attn.c_attn.weight is [{dim}, {3 * dim}]: inputs, then queries, keys and values",
                describe("it", together), "transpose the weights of linear layers",
            )  # fmt: skip
        weights = split(matrix_transpose(together), (dim, dim, dim), axis=0)
        biases = split(found.take(of + "attn.c_attn.bias"), (dim, dim, dim), axis=0)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            named |= {f"{to}{name}.weight": weight, f"{to}{name}.bias": bias}
        for ours, theirs in (("out", "attn.c_proj"), ("feed.linear1", "mlp.c_fc"), ("feed.linear2", "mlp.c_proj")):
            named[f"{to}{ours}.weight"] = matrix_transpose(found.take(f"{of}{theirs}.weight"))
            named[f"{to}{ours}.bias"] = found.take(f"{of}{theirs}.bias")
        for ours, theirs in (("norm1", "ln_1"), ("norm2", "ln_2")):
            named |= {f"{to}{ours}.{kind}": found.take(f"{of}{theirs}.{kind}") for kind in ("weight", "bias")}
    named |= {f"norm.{kind}": found.take(f"ln_f.{kind}") for kind in ("weight", "bias")}
    tied = "lm_head.weight" not in found
    if not tied:
        head = found.take("lm_head.weight")
        tied = head.shape == words.shape and bool(all_(equal(astype(head, words.dtype, copy=False), words)))
        named |= {} if tied else {"head.weight": head}
    if heads is None and dim % 64:
        raise ConfigError(
            "gpt2: one head for each 64 features, unless heads is given", f"{dim} features", "see the model's config (n_head)"
        )
    hidden = named["blocks.0.feed.linear1.weight"].shape[0] if layers else 4 * dim
    return found.loaded(named, lambda: GPT(
        vocabulary, length=length, dim=dim, heads=dim // 64 if heads is None else heads, layers=layers, hidden=hidden,
        norm="layer", feed_forward="gelu_tanh", positions="learned", bias=True, tied=tied, dtype=words.dtype, device=device,
    ))  # fmt: skip


def llama(
    state: Mapping[str, Any], *, heads: int, length: int, base: float = 10000.0, eps: float = 1e-5, device: Any = None
) -> GPT:  # fmt: skip
    """A model with the weights of Llama, or of another model of this architecture.

    Args:
        state: Values by the names of Llama (``model.layers.0.self_attn.q_proj.weight``): tensors of Firebrick or PyTorch, or
            arrays, such as a safetensors file has.
        heads: Heads of the queries; those of keys and values follow from the weights.
        length: Most positions of a sequence.
        base: Of rotary positions ("rope_theta").
        eps: Of the norms ("rms_norm_eps").
        device: Device of the model.

    Returns:
        The model, in evaluation.

    Raises:
        ConfigError: A name is missing or unknown.

    Example:
        >>> import firebrick as fb
        >>> try:
        ...     fb.models.llama({}, heads=2, length=8)
        ... except fb.ConfigError as e:
        ...     print(str(e).splitlines()[0])
        llama: the state has embed_tokens.weight
    """
    found = _Names("llama", state, device)
    words = found.take("embed_tokens.weight")
    (vocabulary, dim), layers = words.shape, found.layers()
    named = {"embed.weight": words, "norm.weight": found.take("norm.weight")}
    for i in range(layers):
        of, to = f"layers.{i}.", f"blocks.{i}."
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o")):
            named[f"{to}{ours}.weight"] = found.take(f"{of}self_attn.{theirs}_proj.weight")
        gate, up = (found.take(f"{of}mlp.{part}_proj.weight") for part in ("gate", "up"))
        named[f"{to}feed.linear1.weight"] = concat([gate, up], axis=0)
        named[f"{to}feed.linear2.weight"] = found.take(f"{of}mlp.down_proj.weight")
        named[f"{to}norm1.weight"] = found.take(f"{of}input_layernorm.weight")
        named[f"{to}norm2.weight"] = found.take(f"{of}post_attention_layernorm.weight")
    tied = "lm_head.weight" not in found
    if not tied:
        named["head.weight"] = found.take("lm_head.weight")
    if heads < 1 or dim % heads:
        raise ConfigError("llama: heads divides the features", f"heads={heads}, {dim} features", "see the model's config")
    key_heads = named["blocks.0.key.weight"].shape[0] // (dim // heads) if layers else heads
    hidden = named["blocks.0.feed.linear2.weight"].shape[1] if layers else dim
    return found.loaded(named, lambda: GPT(
        vocabulary, length=length, dim=dim, heads=heads, layers=layers, key_heads=key_heads, hidden=hidden, base=base,
        tied=tied, eps=eps, dtype=words.dtype, device=device,
    ))  # fmt: skip


class _Names:
    """A state's values by their names, without what stands before them, each taken once."""

    def __init__(self, where: str, state: Any, device: Any) -> None:
        if not isinstance(state, Mapping) or not all(isinstance(n, str) for n in state):
            raise ConfigError(f"{where} takes a mapping from names to values", type(state).__name__, "pass a state_dict()")
        self.where, self.device = where, device
        self.left = {re.sub(r"^(transformer|model)\.", "", n): v for n, v in state.items() if not _UNUSED.fullmatch(n)}

    def __contains__(self, name: str) -> bool:
        return name in self.left

    def layers(self) -> int:
        """The number of blocks."""
        found = [int(m[1]) for n in self.left if (m := _BLOCK.fullmatch(n))]
        return max(found) + 1 if found else 0

    def take(self, name: str) -> Tensor:
        """The value of a name."""
        if name not in self.left:
            raise ConfigError(f"{self.where}: the state has {name}", f"{len(self.left)} other names", "check the file's names")
        value = self.left.pop(name)
        if isinstance(value, Tensor) and self.device is None:
            return value
        detach = getattr(value, "detach", None)  # PyTorch exports no tensor that requires a gradient
        return asarray(detach() if callable(detach) else value, device=self.device)

    def loaded(self, named: dict[str, Tensor], make: Callable[[], GPT]) -> GPT:
        """The model that ``make`` builds, with these values, in evaluation."""
        if self.left:
            raise ConfigError(f"{self.where}: every name of the state is known", f"{sorted(self.left)[:3]}", "leave it out")
        model = make()
        model.load_state_dict(named)
        return model.eval()


__all__ = ["gpt2", "llama"]
