"""PyTorch's side of each piece of work, as its users write it; of several reasonable forms the quickest is taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.models import NETWORKS
from benchmarks.work import CONVOLUTIONS, Ready, Variants, Work


class Flat(nn.Sequential):
    """Layers whose parameters are named as in ``firebrick.nn.Sequential``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(nn.Module):
    """Self-attention by ``scaled_dot_product_attention``."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    """A pre-norm encoder block."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.linear1, self.linear2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


class Encoder(nn.Module):
    """Blocks, and a last norm."""

    def __init__(self, dim: int, heads: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(Block(dim, heads, hidden) for _ in range(layers)), nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Transformer(nn.Module):
    """As ``benchmarks.models.Transformer``."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.embed, self.encoder, self.head = nn.Linear(16, 128), Encoder(128, 8, blocks, 256), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class LastOfLSTM(nn.Module):
    """As ``benchmarks.models.LastOfLSTM``."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, hidden, batch_first=True), nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class LastOfGRU(nn.Module):
    """As ``benchmarks.models.LastOfGRU``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(32, hidden, batch_first=True), nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0][:, -1])


class Inverted(nn.Module):
    """As ``benchmarks.models.Inverted``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.expand, self.norm1 = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.norm2 = nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.project, self.norm3 = nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.expand(x)))
        return x + self.norm3(self.project(F.relu(self.norm2(self.depthwise(y)))))


class MobileBlocks(nn.Module):
    """As ``benchmarks.models.MobileBlocks``."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Inverted(32) for _ in range(3)), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Tables(nn.Module):
    """As ``benchmarks.models.Tables``; the gradients of the tables may be sparse."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100_000, 32, sparse=sparse) for _ in range(3))
        self.head = nn.Linear(96, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([table(x[:, k]) for k, table in enumerate(self.tables)], 1))


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        short = Flat(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if same else short

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 for small images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        self.stages = nn.ModuleList(
            Flat(Residual(n, m, 1 if k == 0 else 2), Residual(m, m, 1)) for k, (n, m) in enumerate(pairwise(widths))
        )
        self.head = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


class ResidualAttention(nn.Module):
    """Attention whose scores are added to the scores of the layer before."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, scores: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        own = (q * (d // self.heads) ** -0.5) @ k.transpose(-1, -2)
        scores = own if scores is None else own + scores
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)), scores


class PatchLayer(nn.Module):
    """A block of PatchTST: batch norm after each branch."""

    def __init__(self, dim: int, heads: int, hidden: int, p: float) -> None:
        super().__init__()
        self.attention, self.dropout = ResidualAttention(dim, heads), nn.Dropout(p)
        self.norm1, self.norm2 = nn.BatchNorm1d(dim), nn.BatchNorm1d(dim)
        self.linear1, self.linear2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor, scores: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        y, scores = self.attention(x, scores)
        x = self._norm(self.norm1, x + self.dropout(self.dropout(y)))
        y = self.linear2(self.dropout(F.gelu(self.linear1(x))))
        return self._norm(self.norm2, x + self.dropout(y)), scores

    def _norm(self, norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return norm(x.reshape(-1, x.shape[-1])).view(x.shape)


class PatchTST(nn.Module):
    """PatchTST as on ETTh1: 336 values seen, 96 predicted, patches of 16 every 8, the last value repeated eight times."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(16, 16), nn.Parameter(torch.empty(42, 16))
        self.dropout = nn.Dropout(p)
        self.blocks = nn.ModuleList(PatchLayer(16, 4, 128, p) for _ in range(3))
        self.head = nn.Linear(42 * 16, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = x.mean(1, keepdim=True)
        scale = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        rows = ((x - level) / scale).transpose(1, 2).reshape(-1, 336)
        patches = F.pad(rows.unsqueeze(1), (0, 8), mode="replicate").squeeze(1).unfold(1, 16, 8)
        y = self.dropout(self.embed(patches) + self.position)
        scores = None
        for block in self.blocks:
            y, scores = block(y, scores)
        return self.head(y.flatten(1)).view(-1, 7, 96).transpose(1, 2) * scale + level


BUILDERS: dict[str, Callable[[float], nn.Module]] = {
    "mlp": lambda _: Flat(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)),
    "cnn": lambda _: Flat(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
    ),
    "resnet18": lambda _: ResNet(),
    "transformer": lambda _: Transformer(),
    "two blocks": lambda _: Transformer(2),
    "lstm": lambda _: LastOfLSTM(), "lstm 64": lambda _: LastOfLSTM(64), "lstm 512": lambda _: LastOfLSTM(512),
    "gru 64": lambda _: LastOfGRU(64), "gru 128": lambda _: LastOfGRU(128), "gru 512": lambda _: LastOfGRU(512),
    "mobile blocks": lambda _: MobileBlocks(),
    "patchtst": PatchTST,
    **dict.fromkeys(("embedding", "embedding adam"), lambda _: Tables()),
    "embedding, sparse gradients": lambda _: Tables(sparse=True),
}  # fmt: skip


def network(name: str, arrays: dict[str, np.ndarray[Any, Any]], dropout: float = 0.0) -> nn.Module:
    """A network with these parameters."""
    model = BUILDERS[name](dropout)
    missing = model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in arrays.items()}, strict=False)
    strangers = [k for k in missing.missing_keys if "running" not in k and "tracked" not in k] + missing.unexpected_keys
    if strangers:
        raise KeyError(f"parameters that only one side has: {strangers}")
    return model


def _built(work: Work, layout: Any, form: str = "") -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The network with the work's parameters, its inputs and targets."""
    model = network(work.model + form, work.arrays, work.dropout)
    x, y = (torch.from_numpy(a) for a in NETWORKS[work.model].data(work.batch))
    if layout is torch.channels_last:
        model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
    return model, x, y


def _training(work: Work, layout: Any, how: dict[str, Any], compiled: str = "", form: str = "") -> Ready:
    net = NETWORKS[work.model]
    model, x, y = _built(work, layout, form)
    error = F.mse_loss if net.target else F.cross_entropy
    if net.momentum is None:
        opt: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=net.lr, **how)
    else:
        opt = torch.optim.SGD(model.parameters(), lr=net.lr, momentum=net.momentum, **how)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return error(model(x), y)

    forward = torch.compile(loss_of) if compiled == "loss" else loss_of

    def step() -> torch.Tensor:
        opt.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        opt.step()
        return loss.detach()

    return Ready(torch.compile(step) if compiled == "step" else step, lambda loss: [loss.numpy().copy()])


def _inference(work: Work, layout: Any, compiled: bool) -> Ready:
    model, x, _ = _built(work, layout)
    model.eval()
    run = torch.compile(model) if compiled else model

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return run(x)

    return Ready(call, lambda out: [out.numpy().copy()])


def _convolved(x: torch.Tensor, w: torch.Tensor, stride: int) -> torch.Tensor:
    return F.conv2d(x, w, stride=stride, padding=1, groups=x.shape[1] // w.shape[1])


ROWS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "layer_norm": lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
    "gelu": F.gelu,
    "cross_entropy": lambda x, y: F.cross_entropy(x, y),
    "chain": lambda x: torch.relu(2 * x + 1) * torch.sigmoid(x),
    **{f"cumulative sum along {a}": partial(torch.cumsum, dim=a) for a in (0, 1)},
    **{f"cumulative product along {a}": partial(torch.cumprod, dim=a) for a in (0, 1)},
    **{f"cumulative logsumexp along {a}": partial(torch.logcumsumexp, dim=a) for a in (0, 1)},
    **{f"cumulative max along {a}": lambda x, a=a: torch.cummax(x, a)[0] for a in (0, 1)},
    **dict.fromkeys(("sort", "sort of 2 M"), lambda x: torch.sort(x, -1)[0]),
    **dict.fromkeys(("argsort", "argsort of 2 M"), lambda x: torch.argsort(x, dim=-1, stable=True)),
    "32 largest": lambda x: torch.topk(x, 32)[0],
    "median": lambda x: torch.quantile(x, 0.5, dim=1),  # torch.median takes the lower of the two middle elements
    **{name: partial(_convolved, stride=stride) for name, stride in CONVOLUTIONS.items()},
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    **{f"causal attention {n}": partial(F.scaled_dot_product_attention, is_causal=True) for n in (128, 512, 2048)},
}  # fmt: skip


def _rows(work: Work, compiled: bool) -> Ready:
    given = [torch.from_numpy(a) for a in work.operands()]
    fn: Callable[..., torch.Tensor] = ROWS[work.model]
    run = torch.compile(fn) if compiled else fn
    if not work.gradient:

        def forward() -> Any:
            with torch.inference_mode():
                return (run(*given),)

        return Ready(forward, _arrays)
    *operands, cotangent = given
    wanted = [t.requires_grad_() for t in operands if t.is_floating_point()]

    def both() -> Any:
        y = run(*operands)
        return (y.detach(), *torch.autograd.grad(y, wanted, cotangent))

    return Ready(both, _arrays)


def _arrays(out: Any) -> list[np.ndarray[Any, Any]]:
    return [t.numpy().copy() for t in out]


def _products(work: Work, compiled: bool) -> Ready:
    left, right = (list(map(torch.from_numpy, part)) for part in work.factors())

    def products(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
        return [a @ b for a in left for b in right]

    run = torch.compile(products) if compiled else products

    def call() -> list[torch.Tensor]:
        with torch.inference_mode():
            return run(left, right)

    return Ready(call, _arrays)


def _copy(work: Work) -> Ready:
    source = torch.from_numpy(work.operands()[0])
    into = torch.empty_like(source)
    return Ready(lambda: into.copy_(source), lambda out: [])


def variants(work: Work, compiled: bool) -> Variants:
    """The forms of a piece of work: eager ones, or those by ``torch.compile``."""
    torch.set_num_threads(work.threads)
    torch.manual_seed(0)
    if work.kind == "rows":
        return {"": partial(_rows, work, compiled)}
    if work.kind == "products":
        return {"": partial(_products, work, compiled)}
    if work.kind == "copy":
        return {"": partial(_copy, work)}
    layouts = {"": torch.contiguous_format}
    if NETWORKS[work.model].images:
        layouts["channels last"] = torch.channels_last
    if work.kind == "inference":
        return {name: partial(_inference, work, layout, compiled) for name, layout in layouts.items()}
    fused, foreach = {"fused": True}, {"foreach": True}
    found: Variants = {}
    for name, layout in layouts.items():
        if compiled:
            found[f"{name} loss compiled, fused update".strip()] = partial(_training, work, layout, fused, "loss")
        else:
            found[f"{name} fused update".strip()] = partial(_training, work, layout, fused)
            found[f"{name} foreach update".strip()] = partial(_training, work, layout, foreach)
    if work.model == "embedding" and not compiled:
        found["sparse gradients"] = partial(_training, work, torch.contiguous_format, {}, form=", sparse gradients")
    if compiled:
        found["whole step compiled"] = partial(_training, work, torch.contiguous_format, {"foreach": True}, "step")
    return found
