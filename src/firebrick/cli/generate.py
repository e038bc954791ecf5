"""``firebrick generate``: text that the language model of a run adds to prompts, shown while it comes."""

from __future__ import annotations

import math
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from firebrick import models
from firebrick.cli import language
from firebrick.cli.reporting import reported
from firebrick.cli.runs import load_run, task_of
from firebrick.data import TextStream
from firebrick.models import GPT
from firebrick.random import Generator

_DRAWING = ("temperature", "top_k", "top_p", "seed")
_KEPT = 2  # one of so many parts of the context is kept where it is full


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--prompt", "prompts", multiple=True, required=True, metavar="TEXT", help="Text to go on with; several times.")
@click.option("--tokens", type=click.IntRange(1), default=200, show_default=True, help="Tokens to add, at most.")
@click.option(
    "--temperature", type=click.FloatRange(0), default=0.8, show_default=True,
    help="Divides the logits; 0 takes the most probable token.",
)  # fmt: skip
@click.option("--top-k", type=click.IntRange(1), help="Draw from this many most probable tokens only.")
@click.option(
    "--top-p", type=click.FloatRange(0, 1, min_open=True),
    help="Draw from the fewest tokens whose probabilities add up to this much.",
)  # fmt: skip
@click.option(
    "--beams", type=click.IntRange(1), default=1, show_default=True, help="Search this many sequences; nothing is drawn."
)
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="End a text before this; several times.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides what is drawn.")
@click.option("--device", help="Device that computes; `firebrick devices` lists them.")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation data, not the last one.")
@reported
def generate(
    run: Path, prompts: tuple[str, ...], tokens: int, temperature: float, top_k: int | None, top_p: float | None,
    beams: int, stops: tuple[str, ...], seed: int, device: str | None, best: bool,
) -> None:  # fmt: skip
    """Go on with a text: each --prompt is printed with what the language model of RUN adds to it.

    RUN is a run directory of `firebrick train text`, or one of its checkpoints. A single text is printed while it comes;
    several are printed one after the other, with an empty line between. The same options give the same text.

    A prompt is shorter than the context that the model was trained with. Where prompt and new tokens fill the context, the
    text goes on from the last half of it; a search of --beams ends there.
    """
    if not math.isfinite(temperature):
        raise click.BadParameter(f"{temperature} is not a finite number", param_hint="--temperature")
    if top_p is not None and math.isnan(top_p):
        raise click.BadParameter(f"{top_p} is not a finite number", param_hint="--top-p")
    for option, given in (("--prompt", prompts), ("--stop", stops)):
        if not all(given):
            raise click.BadParameter("a text has at least one character", param_hint=option)
    ctx = click.get_current_context()
    drawing = [
        p.opts[0]
        for p in ctx.command.params
        if p.name in _DRAWING and ctx.get_parameter_source(p.name) is ParameterSource.COMMANDLINE
        if not (p.name == "temperature" and temperature == 0)  # at which nothing is drawn either
    ]
    if beams > 1 and drawing:
        raise click.BadParameter(f"nothing is drawn with --beams; leave {' and '.join(drawing)} out", param_hint="--beams")
    model, found = load_run(run, best=best, device=device)
    if task_of(found.config) is not language or not isinstance(model, GPT):
        raise click.BadParameter(
            f"{run} is no language model: firebrick predict is for {found.config['dataset']}", param_hint="RUN"
        )
    tokenizer = language.tokenizer_of(found.config)
    rows = [tokenizer.encode(p) for p in prompts]
    for prompt, row in zip(prompts, rows, strict=True):
        if not row:
            raise click.BadParameter(f"{prompt!r} has no token of this tokeniser", param_hint="--prompt")
        if len(row) >= model.length:
            raise click.BadParameter(
                f"a prompt has {len(row)} tokens, and the model has {model.length} positions for prompt and new tokens; "
                "shorten it, or train with a longer --context",
                param_hint="--prompt",
            )
    texts = [_Text(TextStream(tokenizer), stops) for _ in rows]
    if beams > 1:
        room = model.length - max(map(len, rows))
        for text, row in zip(texts, models.generate(model, rows, beams=beams, max_tokens=min(tokens, room)), strict=True):
            for token in row:
                text.add(token)
    else:
        how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "generator": Generator(seed)}
        alone = len(rows) == 1
        if alone:
            _write(prompts[0])

        def take(new: list[int]) -> bool:
            for text, token in zip(texts, new, strict=True):
                said = text.add(token)
                if alone:
                    _write(said)
            return all(text.ended for text in texts)

        _stream(model, rows, tokens, take, **how)
        if alone:
            _write(texts[0].end() + "\n")
            return
    _write("\n\n".join(prompt + text.whole() for prompt, text in zip(prompts, texts, strict=True)) + "\n")


def _stream(model: GPT, rows: list[list[int]], tokens: int, take: Callable[[list[int]], bool], **how: Any) -> None:
    """Give ``tokens`` new tokens of each row to ``take``, or fewer once it returns True, in as many contexts as they need."""
    left, enough = tokens, False

    def count(new: list[int]) -> bool:
        nonlocal left, enough
        left -= 1
        enough = take(new) or not left
        return enough

    while not enough:
        room = model.length - max(map(len, rows))
        new = models.generate(model, rows, max_tokens=room, on_token=count, **how)
        rows = [(row + more)[-max(1, model.length // _KEPT) :] for row, more in zip(rows, new, strict=True)]


class _Text:
    """The text of one sequence of tokens, up to the first of some texts that end it.

    Args:
        stream: Makes text of tokens.
        stops: Texts that end it; they are not part of it.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self.ended = False
        self._stream, self._stops = stream, stops
        self._said, self._held = "", ""  # what was given out, and what may be the beginning of a stop text

    def add(self, token: int) -> str:
        """What can be shown with one more token: nothing that may be the beginning of a text that ends it."""
        return "" if self.ended else self._take(self._stream.add(token), last=False)

    def end(self) -> str:
        """What is left to show when no token follows."""
        return "" if self.ended else self._take(self._stream.end(), last=True)

    def whole(self) -> str:
        """All of it."""
        self.end()
        return self._said

    def _take(self, new: str, last: bool) -> str:
        text = self._held + new
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.ended, text, held = True, text[: min(found)], 0
        else:
            held = 0 if last else max((_overlap(text, stop) for stop in self._stops), default=0)
        said, self._held = text[: len(text) - held], text[len(text) - held :]
        self._said += said
        return said


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of another."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def _write(text: str) -> None:
    """Print at once; to a terminal without control characters, which a model may make up."""
    if sys.stdout.isatty():
        text = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text)
    click.echo(text, nl=False)
    sys.stdout.flush()
