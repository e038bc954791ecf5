"""Language models on the command line: tokens of a text file, loaders, model and loss of a run's config, and its results.

The first nine tenths of the text are trained on, the last tenth is held out: its first half validates each epoch, its second
half is the test. A run's config holds its tokeniser, so a checkpoint has all that generation needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from firebrick import models
from firebrick.cli.placing import say
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import ByteTokenizer, DataLoader, SubwordTokenizer, Tokenizer, TokenWindows, load_tokenizer, read_text
from firebrick.data import tokenizer_of as from_json
from firebrick.data.datasets import DataError
from firebrick.data.text import MOST_TOKENS, encoded
from firebrick.functions.losses import cross_entropy
from firebrick.functions.movement import reshape
from firebrick.nn import Module
from firebrick.train import Evaluation, Metric

TEXT = "text"
_HELD_OUT = 20  # validation and test each have one of so many parts of the text
_LARGEST_BATCH = 64
_BPE_SIZE = 1024
_LOSSLESS = ("bytes", "bpe")  # tokenisers that any text comes back from

needed = ("dataset", "model", "context", "vocabulary", "tokenizer_json", "epochs", "batch_size", "lr", "seed")

SAMPLES = "windows"
TESTS_BEST = True  # the epoch that does best on the validation text is tested


class _Parts(NamedTuple):
    """Tokens [n] of the three parts of a text."""

    train: np.ndarray[Any, Any]
    validation: np.ndarray[Any, Any]
    test: np.ndarray[Any, Any]


def facts(settings: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """What a config says of the data: the tokeniser, made or read where a run does not have it yet, and which text it is."""
    text = _text(folder)
    serialized = settings.get("tokenizer_json")
    if serialized is None:
        made = _made(settings["tokenizer"], text)
        if settings["tokenizer"].partition(":")[0] not in _LOSSLESS and made.decode(encoded(made, text)) != text:
            say(
                "note: this tokeniser changes the text or leaves some of it out, and the perplexity is that of the rest",
                err=True,
            )
        serialized = made.to_json()
    tokenizer = from_json(serialized)
    parts = _parts(text, serialized, settings["context"], str(folder))  # says at once whether the text is long enough
    return {
        "tokenizer_json": serialized, "vocabulary": tokenizer.vocabulary, "text_sha256": _digest(text),
        "bytes_per_token": len(_split(text)[1].encode("utf-8")) / len(parts.validation),
    }  # fmt: skip


def tokenizer_of(config: dict[str, Any]) -> Tokenizer:
    """The tokeniser of a run."""
    return from_json(config["tokenizer_json"])


def check_tokenizer(name: str) -> None:
    """Refuse a value of ``--tokenizer`` that names no tokeniser, before anything is read.

    Raises:
        BadParameter: It is neither bytes nor bpe nor bpe:SIZE nor an existing file.
    """
    kind, colon, size = name.partition(":")
    if name in ("bytes", "bpe") or (
        kind == "bpe"
        and size.isascii()
        and size.isdigit()
        and len(size) < 9
        and ByteTokenizer.vocabulary <= int(size) <= MOST_TOKENS
    ):
        return
    if kind == "bpe" and colon:
        raise click.BadParameter(
            f"{name!r}: bpe:SIZE has a number of tokens of at least {ByteTokenizer.vocabulary} and at most {MOST_TOKENS}",
            param_hint="--tokenizer",
        )
    if not Path(name).is_file():
        raise click.BadParameter(
            f"{name!r} is neither bytes nor bpe nor bpe:SIZE nor a file such as tokenizer.json", param_hint="--tokenizer"
        )


def _made(name: str, text: str) -> Tokenizer:
    """The tokeniser that ``--tokenizer`` names; BPE is trained on what the model is trained on."""
    if name == "bytes":
        return ByteTokenizer()
    kind, _, size = name.partition(":")
    if kind == "bpe":
        return SubwordTokenizer.train(_split(text)[0], int(size or _BPE_SIZE))
    return load_tokenizer(name)


def _text(folder: str | None) -> str:
    if folder is None:
        raise DataError("firebrick train text needs a FILE in UTF-8; received none. Name it: firebrick train text FILE.")
    text = read_text(folder)
    if not text:
        raise DataError(f"{folder}: expected text to train on; received an empty file.")
    return text


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8")).hexdigest()


def _split(text: str) -> tuple[str, str, str]:
    """The parts that train, validate and test."""
    held = len(text) // _HELD_OUT
    return text[: len(text) - 2 * held], text[len(text) - 2 * held : len(text) - held], text[len(text) - held :]


@lru_cache(maxsize=1)  # three loaders are made of one text
def _parts(text: str, serialized: str, context: int, what: str) -> _Parts:
    tokenizer = from_json(serialized)
    parts = _Parts(*(encoded(tokenizer, part) for part in _split(text)))
    for name, tokens in parts._asdict().items():
        if len(tokens) <= context:
            raise DataError(
                f"{what}: expected more than {context} tokens, the context, in each part of the text (18/20 train, 1/20 "
                f"validation, 1/20 test); received {len(tokens)} for {name}. Shorten --context, or bring more text."
            )
    return parts


def build_model(config: dict[str, Any]) -> Module:
    """The model of a config, with fresh parameters."""
    settings = config.get("model_settings") or {}
    return models.build(config["model"], vocabulary=config["vocabulary"], length=config["context"], **settings)


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of logits [batch, n, vocabulary] and tokens [batch, n]."""
    return cross_entropy(reshape(logits, (-1, logits.shape[-1])), reshape(targets, (-1,)))


def loss_of(config: dict[str, Any]) -> Callable[[Any, Tensor], Tensor]:
    """The mean cross-entropy of the next token."""
    return next_token_loss


def _windows(config: dict[str, Any], folder: str | None, part: str) -> TokenWindows:
    tokens = getattr(_parts(_text(folder), config["tokenizer_json"], config["context"], str(folder)), part)
    return TokenWindows(tokens, config["context"], config.get("stride") if part == "train" else None)


def training_loaders(config: dict[str, Any], folder: str | None, device: Device) -> tuple[DataLoader, DataLoader]:
    """The loaders that train and validate."""
    training = DataLoader(
        _windows(config, folder, "train"), config["batch_size"], shuffle=True, seed=config["seed"], device=device,
        num_workers=config.get("workers") or 0, worker="process", keep_workers=True,
    )  # fmt: skip
    size = max(config["batch_size"], _LARGEST_BATCH)
    return training, DataLoader(_windows(config, folder, "validation"), size, device=device, name="validation")


def test_loader(config: dict[str, Any], folder: str | None, device: Device) -> DataLoader:
    """The loader of the windows of the test text."""
    size = max(config["batch_size"], _LARGEST_BATCH)
    return DataLoader(_windows(config, folder, "test"), size, device=device, name="test")


def say_parts(config: dict[str, Any], found: Evaluation) -> None:
    """How many tokens were predicted."""
    click.echo(f"  {found.samples * config['context']:,} tokens, each predicted from up to {config['context']} before it")


def say_result(found: Evaluation) -> None:
    """Test loss, and the perplexity per token in the last line."""
    click.echo(f"test loss {found.loss:.4f}")
    click.echo(f"test perplexity {perplexity(found.loss):.4f}")


def perplexity(loss: float) -> float:
    """exp of a mean loss; infinite where that is too large for a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def metrics_of(config: dict[str, Any]) -> dict[str, Metric]:
    """Bits per byte, which compares with those of other tokenisers; runs of earlier versions do not have it."""
    found = config.get("bytes_per_token")
    return {} if found is None else {"bits_per_byte": BitsPerByte(found)}


class BitsPerByte(Metric):
    """Mean over bytes of -log2 of the probability of the text: the mean loss over ln 2 and the bytes of a token.

    Args:
        bytes_per_token: Bytes of a token on average, as in the validation text.
    """

    def __init__(self, bytes_per_token: float) -> None:
        self.bytes_per_token = bytes_per_token
        super().__init__()

    def initial(self) -> dict[str, Any]:
        return {"total": 0.0, "tokens": 0}

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch.

        Args:
            logits: Floating tensor [batch, n, vocabulary].
            targets: Integers [batch, n].
        """
        self.keep(targets.size, next_token_loss(logits, targets) * float(targets.size))

    def add(self, values: Sequence[np.ndarray[Any, Any]], samples: int) -> None:
        self.totals["total"] += float(values[0])
        self.totals["tokens"] += samples

    def compute(self) -> float:
        """Bits per byte so far; NaN before the first batch."""
        total, tokens = self.totals["total"], self.totals["tokens"]
        return total / (tokens * self.bytes_per_token * math.log(2.0)) if tokens else math.nan


def names_of(config: dict[str, Any]) -> list[str] | None:
    """Tokens have no names in figures."""
    return None
