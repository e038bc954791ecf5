"""JAX's side of each piece of work: whole steps under ``jax.jit`` that give up their state, networks as plain functions.

Parameters keep Firebrick's names; dense weights are held as [in, out] and kernels as [h, w, in, out]. Of several reasonable
forms the quickest is taken. The number of threads is that of the cores the process may use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.models import NETWORKS
from benchmarks.work import CONVOLUTIONS, Ready, Variants, Work

Params = dict[str, jax.Array]


class Pass:
    """One pass through a network: its parameters and running statistics, and how it is to run.

    Args:
        params: Parameters by name.
        stats: Running means and variances by name; new ones are put into ``new``.
        training: Whether it is a step of training.
        key: Source of dropout's masks.
        dropout: Probability.
        form: Choices: ``layout`` "NHWC" or "NCHW", ``pool`` "window" or "reshape", ``unroll`` of the recurrence.
    """

    def __init__(self, params: Params, stats: Params, training: bool, key: Any, dropout: float, form: dict[str, Any]) -> None:
        self.params, self.stats, self.training, self.key, self.p = params, stats, training, key, dropout
        self.new: Params = {}
        self.form, self.layout = form, form.get("layout", "NHWC")
        self.draws = count()

    def dense(self, name: str, x: Any) -> Any:
        return x @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def conv(self, name: str, x: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
        w = self.params[f"{name}.weight"]
        y = lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups,
                                     dimension_numbers=(self.layout, "HWIO", self.layout))  # fmt: skip
        bias = self.params.get(f"{name}.bias")
        return y if bias is None else y + self._channels(bias)

    def _channels(self, v: Any) -> Any:
        return v if self.layout == "NHWC" else v[:, None, None]

    @property
    def image(self) -> tuple[int, int]:
        """The axes of height and width."""
        return (1, 2) if self.layout == "NHWC" else (2, 3)

    def pool(self, x: Any) -> Any:
        """The largest of 2 x 2."""
        h, w = self.image
        if self.form.get("pool") == "reshape":
            shape = [*x.shape[:h], x.shape[h] // 2, 2, x.shape[w] // 2, 2, *x.shape[w + 1 :]]
            return x.reshape(shape).max((h + 1, w + 2))
        window = tuple(2 if axis in (h, w) else 1 for axis in range(4))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def layer_norm(self, name: str, x: Any) -> Any:
        return layer_norm(x, self.params[f"{name}.weight"], self.params[f"{name}.bias"])

    def batch_norm(self, name: str, x: Any) -> Any:
        """Over all axes but the channels', which are last in images of "NHWC" and in rows."""
        last = x.ndim == 2 or self.layout == "NHWC"
        axes = tuple(range(x.ndim - 1)) if last else (0, 2, 3)
        shape: Callable[[Any], Any] = (lambda v: v) if last else (lambda v: v[:, None, None])
        mean, var = self.stats[f"{name}.mean"], self.stats[f"{name}.var"]
        if self.training:
            n = x.size // mean.size
            m, s = x.mean(axes), x.var(axes)
            self.new[f"{name}.mean"] = mean + 0.1 * (lax.stop_gradient(m) - mean)
            self.new[f"{name}.var"] = var + 0.1 * (lax.stop_gradient(s) * (n / (n - 1)) - var)
            mean, var = m, s
        scale = lax.rsqrt(var + 1e-5) * self.params[f"{name}.weight"]
        return (x - shape(mean)) * shape(scale) + shape(self.params[f"{name}.bias"])

    def dropout(self, x: Any) -> Any:
        if not self.training or not self.p:
            return x
        kept = jax.random.bernoulli(jax.random.fold_in(self.key, next(self.draws)), 1.0 - self.p, x.shape)
        return jnp.where(kept, x / (1.0 - self.p), 0.0)

    def heads(self, name: str, x: Any, heads: int) -> tuple[Any, Any, Any]:
        """Queries, keys, values [batch, n, heads, d]."""
        b, n, d = x.shape
        parts = self.dense(name, x).reshape(b, n, 3, heads, d // heads)
        return parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def _gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


def _mlp(run: Pass, x: Any) -> Any:
    x = jax.nn.relu(run.dense("layers.1", x))
    x = jax.nn.relu(run.dense("layers.3", x))
    return run.dense("layers.5", x)


def _cnn(run: Pass, x: Any) -> Any:
    x = run.pool(jax.nn.relu(run.conv("layers.0", x)))
    x = run.pool(jax.nn.relu(run.conv("layers.3", x)))
    return run.dense("layers.9", jax.nn.relu(run.dense("layers.7", x.reshape(x.shape[0], -1))))


def _resnet(run: Pass, x: Any) -> Any:
    x = jax.nn.relu(run.batch_norm("norm", run.conv("conv", x, 1, 1)))
    for s in range(4):
        for b in range(2):
            name, stride = f"stages.{s}.layers.{b}", 2 if s and not b else 1
            y = jax.nn.relu(run.batch_norm(f"{name}.norm1", run.conv(f"{name}.conv1", x, stride, 1)))
            y = run.batch_norm(f"{name}.norm2", run.conv(f"{name}.conv2", y, 1, 1))
            if s and not b:
                x = run.batch_norm(f"{name}.shortcut.layers.1", run.conv(f"{name}.shortcut.layers.0", x, stride))
            x = jax.nn.relu(x + y)
    return run.dense("head", x.mean(run.image))


def _transformer(run: Pass, x: Any) -> Any:
    x = run.dense("embed", x)
    for k in range(3):
        name = f"encoder.layers.{k}"
        q, key, v = run.heads(f"{name}.attention.qkv", run.layer_norm(f"{name}.norm1", x), 8)
        y = jax.nn.dot_product_attention(q, key, v)
        x = x + run.dense(f"{name}.attention.out", y.reshape(x.shape))
        y = _gelu(run.dense(f"{name}.linear1", run.layer_norm(f"{name}.norm2", x)))
        x = x + run.dense(f"{name}.linear2", y)
    return run.dense("head", run.layer_norm("encoder.norm", x).mean(1))


def _lstm(run: Pass, x: Any) -> Any:
    w, bias = run.params["lstm.weight_ih_l0"], run.params["lstm.bias_ih_l0"] + run.params["lstm.bias_hh_l0"]
    inputs = x.transpose(1, 0, 2) @ w + bias
    recurrent = run.params["lstm.weight_hh_l0"]

    def step(state: tuple[Any, Any], inputs: Any) -> tuple[tuple[Any, Any], None]:
        h, c = state
        i, f, g, o = jnp.split(inputs + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((x.shape[0], recurrent.shape[0]), x.dtype)
    (h, _), _ = lax.scan(step, (zeros, zeros), inputs, unroll=run.form.get("unroll", 1))
    return run.dense("head", h)


def _gru(run: Pass, x: Any) -> Any:
    inputs = x.transpose(1, 0, 2) @ run.params["gru.weight_ih_l0"] + run.params["gru.bias_ih_l0"]
    recurrent, bias = run.params["gru.weight_hh_l0"], run.params["gru.bias_hh_l0"]

    def step(h: Any, inputs: Any) -> tuple[Any, None]:
        a, b, c = jnp.split(inputs, 3, axis=-1)
        r, z, n = jnp.split(h @ recurrent + bias, 3, axis=-1)
        new = jnp.tanh(c + jax.nn.sigmoid(a + r) * n)
        return new + jax.nn.sigmoid(b + z) * (h - new), None

    h, _ = lax.scan(step, jnp.zeros((x.shape[0], recurrent.shape[0]), x.dtype), inputs, unroll=run.form.get("unroll", 1))
    return run.dense("head", h)


def _mobile_blocks(run: Pass, x: Any) -> Any:
    for k in range(3):
        name = f"blocks.{k}"
        y = jax.nn.relu(run.batch_norm(f"{name}.norm1", run.conv(f"{name}.expand", x)))
        y = jax.nn.relu(run.batch_norm(f"{name}.norm2", run.conv(f"{name}.depthwise", y, 1, 1, 128)))
        x = x + run.batch_norm(f"{name}.norm3", run.conv(f"{name}.project", y))
    return run.dense("head", x.mean(run.image))


def _patchtst(run: Pass, x: Any) -> Any:
    level = x.mean(1, keepdims=True)
    scale = jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
    rows = ((x - level) / scale).transpose(0, 2, 1).reshape(-1, 336)
    places = np.minimum(np.arange(42)[:, None] * 8 + np.arange(16), 335)
    y = run.dropout(run.dense("embed", rows[:, places]) + run.params["position"])
    scores: Any = 0.0
    for k in range(3):
        name = f"blocks.{k}"
        q, key, v = run.heads(f"{name}.attention.qkv", y, 4)
        scores = jnp.einsum("bnhd,bmhd->bhnm", q * 0.5, key) + scores
        z = jnp.einsum("bhnm,bmhd->bnhd", jax.nn.softmax(scores), v).reshape(y.shape)
        y = y + run.dropout(run.dropout(run.dense(f"{name}.attention.out", z)))
        y = run.batch_norm(f"{name}.norm1", y.reshape(-1, 16)).reshape(y.shape)
        z = run.dense(f"{name}.linear2", run.dropout(_gelu(run.dense(f"{name}.linear1", y))))
        y = run.batch_norm(f"{name}.norm2", (y + run.dropout(z)).reshape(-1, 16)).reshape(y.shape)
    forecast = run.dense("head", y.reshape(y.shape[0], -1)).reshape(-1, 7, 96)
    return forecast.transpose(0, 2, 1) * scale + level


def _tables(run: Pass, x: Any) -> Any:
    rows = [run.params[f"tables.{k}.weight"][x[:, k]] for k in range(3)]
    return run.dense("head", jnp.concatenate(rows, 1))


APPLY: dict[str, Callable[[Pass, Any], Any]] = {
    "mlp": _mlp, "cnn": _cnn, "resnet18": _resnet, "transformer": _transformer, "lstm": _lstm, "patchtst": _patchtst,
    "embedding": _tables, "embedding adam": _tables, "mobile blocks": _mobile_blocks,
    **dict.fromkeys(("lstm 64", "lstm 512"), _lstm), **dict.fromkeys(("gru 64", "gru 128", "gru 512"), _gru),
}  # fmt: skip


def _prepared(work: Work, form: dict[str, Any]) -> tuple[Params, Params, jax.Array, jax.Array]:
    """Parameters, running statistics, inputs and targets, laid out for the form."""
    params: Params = {}
    nhwc = form.get("layout", "NHWC") == "NHWC"
    for name, a in work.arrays.items():
        if work.model == "cnn" and name == "layers.7.weight" and nhwc:  # reads what was [channels, h, w]
            a = a.reshape(-1, 32, 4, 4).transpose(0, 2, 3, 1).reshape(a.shape)
        rows = name.startswith(("position", "tables"))
        turned = a.transpose(2, 3, 1, 0) if a.ndim == 4 else a.T if a.ndim == 2 and not rows else a
        params[name] = jnp.array(turned)
    norms = [n.removesuffix(".weight") for n in work.arrays if _is_batch_norm(work.model, n)]
    stats = {f"{n}.mean": jnp.zeros_like(params[f"{n}.weight"]) for n in norms}
    stats |= {f"{n}.var": jnp.ones_like(params[f"{n}.weight"]) for n in norms}
    x, y = NETWORKS[work.model].data(work.batch)
    return params, stats, jnp.array(x.transpose(0, 2, 3, 1) if x.ndim == 4 and nhwc else x), jnp.array(y)


def _is_batch_norm(model: str, name: str) -> bool:
    if model not in ("resnet18", "patchtst", "mobile blocks") or not name.endswith(".weight"):
        return False
    return "norm" in name or "shortcut.layers.1" in name


def _cross_entropy(logits: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()


def _training(work: Work, form: dict[str, Any]) -> Ready:
    net = NETWORKS[work.model]
    params, stats, x, y = _prepared(work, form)

    def loss_of(params: Params, stats: Params, key: Any, x: Any, y: Any) -> Any:
        run = Pass(params, stats, True, key, work.dropout, form)
        out = APPLY[work.model](run, x)
        return (jnp.mean((out - y) ** 2) if net.target else _cross_entropy(out, y)), run.new

    def adam(params: Params, grads: Params, moments: Any, t: Any) -> tuple[Params, Any]:
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)
        a, b = 1.0 - 0.9**t, 1.0 - 0.999**t
        new = jax.tree.map(lambda p, m, v: p - net.lr * (m / a) / (jnp.sqrt(v / b) + 1e-8), params, m, v)
        return new, (m, v)

    def sgd(params: Params, grads: Params, moments: Any, t: Any) -> tuple[Params, Any]:
        if not net.momentum:
            return jax.tree.map(lambda p, g: p - net.lr * g, params, grads), moments
        m = jax.tree.map(lambda m, g: net.momentum * m + g, moments, grads)
        return jax.tree.map(lambda p, m: p - net.lr * m, params, m), m

    update = adam if net.momentum is None else sgd

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, x: Any, y: Any) -> Any:
        params, stats, moments, t, key = state
        key, own = jax.random.split(key) if work.dropout else (key, key)
        (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params, stats, own, x, y)
        t = t + 1.0
        params, moments = update(params, grads, moments, t)
        return (params, stats, moments, t, key), loss

    def zeros() -> Params:
        return jax.tree.map(jnp.zeros_like, params)

    key = jax.random.key(0, impl=form.get("random"))
    state = [
        (params, stats, (zeros(), zeros()) if net.momentum is None else zeros() if net.momentum else {}, jnp.zeros(()), key)
    ]

    def call() -> Any:
        state[0], loss = step(state[0], x, y)
        return loss

    return Ready(call, lambda loss: [np.asarray(loss)], jax.block_until_ready)


def _inference(work: Work, form: dict[str, Any]) -> Ready:
    params, stats, x, _ = _prepared(work, form)
    predict = jax.jit(lambda params, stats, x: APPLY[work.model](Pass(params, stats, False, None, 0.0, form), x))
    return Ready(lambda: predict(params, stats, x), lambda out: [np.asarray(out)], jax.block_until_ready)


def _convolved(x: Any, w: Any, stride: int) -> Any:
    groups = x.shape[1] // w.shape[1]
    return jax.lax.conv_general_dilated(x, w, (stride, stride), ((1, 1), (1, 1)), feature_group_count=groups)


def _causal(query: Any, key: Any, value: Any) -> Any:
    q, k, v = (x.swapaxes(1, 2) for x in (query, key, value))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)


ROWS: dict[str, Callable[..., Any]] = {
    "softmax": jax.nn.softmax,
    "layer_norm": layer_norm,
    "gelu": _gelu,
    "cross_entropy": _cross_entropy,
    "chain": lambda x: jax.nn.relu(2 * x + 1) * jax.nn.sigmoid(x),
    **{f"cumulative sum along {a}": partial(jnp.cumsum, axis=a) for a in (0, 1)},
    **{f"cumulative product along {a}": partial(jnp.cumprod, axis=a) for a in (0, 1)},
    **{f"cumulative logsumexp along {a}": partial(jax.lax.cumlogsumexp, axis=a) for a in (0, 1)},
    **{f"cumulative max along {a}": partial(jax.lax.cummax, axis=a) for a in (0, 1)},
    **dict.fromkeys(("sort", "sort of 2 M"), partial(jnp.sort, axis=-1)),
    **dict.fromkeys(("argsort", "argsort of 2 M"), partial(jnp.argsort, axis=-1)),
    "32 largest": lambda x: jax.lax.top_k(x, 32)[0],
    "median": lambda x: jnp.median(x, axis=1),
    **{name: partial(_convolved, stride=stride) for name, stride in CONVOLUTIONS.items()},
    "bilinear": lambda x: jax.image.resize(x, (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]), "bilinear"),
    **dict.fromkeys(("causal attention 128", "causal attention 512", "causal attention 2048"), _causal),
}  # fmt: skip


def _arrays(out: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(a) for a in out]


def _rows(work: Work) -> Ready:
    fn, given = ROWS[work.model], [jnp.array(a) for a in work.operands()]
    floating = [i for i, a in enumerate(given[:-1]) if a.dtype == jnp.float32]

    @jax.jit
    def both(*xs: Any) -> Any:
        *operands, cotangent = xs
        y, pull = jax.vjp(
            lambda *part: fn(*[part[floating.index(i)] if i in floating else a for i, a in enumerate(operands)]),
            *[operands[i] for i in floating],
        )
        return (y, *pull(cotangent))

    run = both if work.gradient else jax.jit(lambda *xs: (fn(*xs),))
    return Ready(lambda: run(*given), _arrays, jax.block_until_ready)


def _products(work: Work) -> Ready:
    left, right = ([jnp.array(a) for a in part] for part in work.factors())
    run = jax.jit(lambda left, right: [a @ b for a in left for b in right])
    return Ready(lambda: run(left, right), _arrays, jax.block_until_ready)


def variants(work: Work) -> Variants:
    """The forms of a piece of work."""
    if work.kind == "rows":
        return {"": partial(_rows, work)}
    if work.kind == "products":
        return {"": partial(_products, work)}
    forms: dict[str, dict[str, Any]] = {"": {}}
    if NETWORKS[work.model].images:
        forms = {layout: {"layout": layout} for layout in ("NHWC", "NCHW")}
    if work.model == "cnn":
        forms = {f"{n}, pool by {p}": {**f, "pool": p} for n, f in forms.items() for p in ("window", "reshape")}
    if work.model.startswith(("lstm", "gru")):
        forms = {"": {}, "unroll 8": {"unroll": 8}}
    if work.dropout and work.kind == "training":
        forms = {"threefry": {"random": "threefry2x32"}, "rbg": {"random": "unsafe_rbg"}}
    make = _training if work.kind == "training" else _inference
    return {name: partial(make, work, form) for name, form in forms.items()}
