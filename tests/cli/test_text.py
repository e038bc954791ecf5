"""Language models from the command line: trained on a text file, and generating from what the run holds."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from extras import imported, need

import firebrick as fb
from firebrick import models
from firebrick.cli import generate as command
from firebrick.cli import language
from firebrick.cli.main import main
from firebrick.cli.runs import load_run
from firebrick.data import ByteTokenizer, SubwordTokenizer, TextStream, TokenWindows
from firebrick.random import Generator
from firebrick.train import load_checkpoint

Run = Callable[..., Result]
SENTENCE = "the cat sat on the mat – é. "
TEXT = SENTENCE * 120
HOST = ("--device", "numpy")  # where nothing is compiled
TINY = ("--context", 16, "--batch-size", 16, "--lr", 0.02, "--set", "dim=16", "--set", "heads=2", "--set", "layers=1")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("text")
    (folder / "cat.txt").write_text(TEXT, encoding="utf-8")
    arguments = ["train", "text", folder / "cat.txt", "--epochs", 16, "--out", folder / "run", *TINY]
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    (folder / "cat.txt").unlink()  # the run holds all that generation needs
    return folder / "run", result.output


@pytest.fixture
def cat(finished: tuple[Path, str]) -> Path:
    return finished[0]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "cat.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "cat.txt"


def said(result: Result, code: int = 0) -> str:
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return re.sub(r"[\s│╭╮╰╯─]+", " ", result.output) if code else result.output


def test_training_ends_with_the_perplexity_of_the_best_epoch_on_the_last_part(
    finished: tuple[Path, str], cat: Path, text: Path, run: Run
) -> None:
    whole, held = len(TEXT), len(TEXT) // 20
    sizes = [len(part.encode()) for part in (TEXT[: whole - 2 * held], TEXT[-2 * held : -held], TEXT[-held:])]
    train, validation, test = ((n - 1) // 16 for n in sizes)
    output = finished[1]
    assert f"text: {train} windows to train, {validation} to validate, {test} to test; gpt with" in output
    loss, perplexity = (float(line.split()[-1]) for line in output.splitlines()[-2:])
    assert output.splitlines()[-1].startswith("test perplexity ")
    assert perplexity == pytest.approx(math.exp(loss), abs=2e-4 * perplexity)
    assert perplexity < 4
    evaluated = said(run("evaluate", cat, "--best", "--data-dir", text))
    assert evaluated.splitlines()[-2:] == output.splitlines()[-2:]
    assert f"{test * 16:,} tokens" in evaluated

    model, found = load_run(cat, best=True)
    rows = TokenWindows(np.frombuffer(TEXT[-held:].encode(), np.uint8), 16).fetch(np.arange(test))
    logits = fb.astype(model(fb.asarray(rows[0])), fb.float64)
    want = fb.cross_entropy(fb.reshape(logits, (-1, 256)), fb.asarray(rows[1].reshape(-1))).item()
    assert loss == pytest.approx(want, abs=1e-4)
    assert found.config["vocabulary"] == 256
    metrics = (cat / "metrics.csv").read_text().splitlines()
    assert "valid_loss" in metrics[0]


def test_a_text_is_what_the_model_of_the_run_generates(cat: Path, run: Run) -> None:
    model, _ = load_run(cat)
    tokenizer = ByteTokenizer()
    prompt = tokenizer.encode("the c")
    for options, how in (
        ((), {"temperature": 0.8}),
        (("--temperature", 0), {"temperature": 0.0}),
        (("--top-k", 3, "--temperature", 1.5), {"temperature": 1.5, "top_k": 3}),
        (("--top-p", 0.7, "--seed", 5), {"temperature": 0.8, "top_p": 0.7}),
    ):
        seed = 5 if "--seed" in options else 0
        want = models.generate(model, prompt, max_tokens=11, generator=Generator(seed), **how)  # type: ignore[arg-type]
        found = said(run("generate", cat, "--prompt", "the c", "--tokens", 11, *options))
        assert found == "the c" + tokenizer.decode(want) + "\n"
    beams = models.generate(model, prompt, max_tokens=11, beams=3)
    assert said(run("generate", cat, "--prompt", "the c", "--beams", 3)) == "the c" + tokenizer.decode(beams) + "\n"
    greedy = said(run("generate", cat / "checkpoint", "--prompt", "the cat ", "--temperature", 0, "--tokens", 8))
    assert greedy == "the cat sat on t\n"


@pytest.mark.parametrize("device", ["numpy", "torch:cpu"])
def test_texts_are_equal_on_every_engine(cat: Path, run: Run, device: str) -> None:
    arguments = ("generate", cat, "--prompt", "the c", "--prompt", "a", "--tokens", 24, "--seed", 3)
    assert said(run(*arguments, "--device", device)) == said(run(*arguments))


def test_the_seed_decides_a_text(cat: Path, run: Run) -> None:
    arguments = ("generate", cat, "--prompt", "t", "--temperature", 3)
    one, same, other = (said(run(*arguments, "--seed", seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_a_text_longer_than_the_context_goes_on_from_its_last_half(cat: Path, run: Run) -> None:
    model, _ = load_run(cat)
    tokens = ByteTokenizer().encode("the c")
    while len(tokens) < 5 + 40:
        row = tokens if len(tokens) < 16 else tokens[-8:]
        tokens = tokens + models.generate(model, row, max_tokens=16 - len(row), temperature=0.0)
    found = said(run("generate", cat, "--prompt", "the c", "--tokens", 40, "--temperature", 0))
    assert found == ByteTokenizer().decode(tokens[:45]) + "\n"
    assert SENTENCE[4:30] in found


def test_several_prompts_are_printed_one_after_the_other(cat: Path, run: Run) -> None:
    prompts = ("the cat", "on the m", "é")
    alone = [said(run("generate", cat, "--prompt", p, "--tokens", 30, "--temperature", 0)) for p in prompts]
    together = run("generate", cat, *(a for p in prompts for a in ("--prompt", p)), "--tokens", 7, "--temperature", 0)
    texts = said(together).removesuffix("\n").split("\n\n")
    assert len(texts) == 3
    assert all(a.startswith(t.rstrip("\ufffd")) and t.startswith(p) for a, t, p in zip(alone, texts, prompts, strict=True))
    beams = run("generate", cat, "--prompt", "the cat", "--prompt", "é", "--tokens", 5, "--beams", 2)
    assert said(beams).count("\n\n") == 1


def test_a_text_is_printed_while_it_comes_in_whole_characters(cat: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    counts: list[int] = []
    real = models.generate

    def generate(*args: Any, on_token: Callable[[list[int]], Any], **how: Any) -> Any:
        def counted(new: list[int]) -> Any:
            result = on_token(new)
            counts.append(len(written))
            return result

        return real(*args, on_token=counted, **how)

    monkeypatch.setattr(command, "_write", written.append)
    monkeypatch.setattr(command.models, "generate", generate)
    said(run("generate", cat, "--prompt", "the mat –", "--tokens", 4, "--temperature", 0))
    assert written == ["the mat –", " ", "", "é", ".", "\n"]
    assert counts == [2, 3, 4, 5]  # each token was shown before the next one was computed


def test_a_stop_text_ends_a_text_and_is_not_shown(cat: Path, run: Run) -> None:
    arguments = ("generate", cat, "--prompt", "the c", "--temperature", 0, "--tokens", 60)
    assert said(run(*arguments, "--stop", "the mat")) == "the cat sat on \n"
    assert said(run(*arguments, "--stop", "mat", "--stop", " on")) == "the cat sat\n"
    assert said(run(*arguments, "--stop", "at", "--beams", 2)) == "the c\n"
    several = said(run(*arguments, "--prompt", "sat on", "--stop", "mat"))
    assert several == "the cat sat on the \n\nsat on the \n"


def test_a_stop_text_is_found_across_tokens_and_nothing_is_lost_without_it() -> None:
    def shown(text: str, *stops: str) -> tuple[list[str], bool]:
        ends = command._Text(TextStream(ByteTokenizer()), stops)
        return [*(ends.add(t) for t in text.encode()), ends.end()], ends.ended

    assert shown("abcabd", "abd") == (["", "", "abc", "", "", "", ""], True)
    assert shown("aab", "ab") == (["", "a", "", ""], True)
    assert shown("xaba", "ab!", "ba!") == (["x", "", "", "a", "ba"], False)
    assert shown("né", "é") == (["n", "", "", ""], True)
    assert shown("ab") == (["a", "b", ""], False)


def test_control_characters_of_a_model_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, want in ((True, "a\ufffd[2J\n\tb\ufffd"), (False, "a\x1b[2J\n\tb\x9b")):
        written: list[str] = []
        monkeypatch.setattr(command.click, "echo", lambda t, nl, written=written: written.append(t))
        monkeypatch.setattr(command.sys.stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        command._write("a\x1b[2J\n\tb\x9b")
        assert written == [want]


def test_a_run_that_stops_after_a_step_goes_on_with_the_bits_of_one_that_does_not(text: Path, run: Run, tmp_path: Path) -> None:
    arguments = ("train", "text", text, *TINY, *HOST, "--set", "dropout=0.1", "--epochs", 2)
    said(run(*arguments, "--out", "whole"))
    first = said(run(*arguments, "--out", "parts", "--steps", 3))
    assert "stopped in epoch 1 after step 3; saved in" in first
    assert f"go on with: firebrick train text --out {Path('parts')} --resume" in first
    assert "test perplexity" not in first
    assert load_checkpoint(tmp_path / "parts").state["step"] == 3
    assert said(run("generate", "parts", "--prompt", "the", "--tokens", 2, *HOST)).startswith("the")
    again = said(run("train", "text", "--out", "parts", "--resume", "--steps", 3))
    assert "3 steps are done: nothing is trained; --steps 4 or more, or none, trains on" in again
    assert load_checkpoint(tmp_path / "parts").state["step"] == 3
    per_epoch = load_checkpoint(tmp_path / "whole").state["step"] // 2
    ended = said(run("train", "text", "--out", "parts", "--resume", "--steps", per_epoch))  # with the first epoch
    assert f"after step {per_epoch}; saved in" in ended
    assert "test perplexity" in said(run("train", "text", "--out", "parts", "--resume", "--steps", 10**6))
    one, other = load_checkpoint(tmp_path / "whole"), load_checkpoint(tmp_path / "parts")
    assert all(np.array_equal(one.model[n], other.model[n]) for n in one.model)
    rows = [[line.split(",") for line in (tmp_path / n / "metrics.csv").read_text().splitlines()] for n in ("whole", "parts")]
    names = rows[0][0]
    assert names == rows[1][0]
    exact = [i for i, n in enumerate(names) if "second" not in n]
    assert [[row[i] for i in exact] for row in rows[0]] == [[row[i] for i in exact] for row in rows[1]]


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_the_bits_per_byte_of_a_validation_are_those_of_its_text(text: Path, run: Run, tmp_path: Path, tokenizer: str) -> None:
    if tokenizer != "bytes":
        need("tokenizers")
    out = said(run("train", "text", text, *TINY, *HOST, "--epochs", 1, "--tokenizer", tokenizer, "--out", "run"))
    assert "valid bits per byte" in out
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()]
    row = dict(zip(*rows, strict=True))
    held = len(TEXT) // 20
    part = TEXT[len(TEXT) - 2 * held : len(TEXT) - held]
    tokens = len(language.tokenizer_of(load_checkpoint(tmp_path / "run").config).encode(part))
    want = float(row["valid_loss"]) / math.log(2.0) * tokens / len(part.encode())
    assert float(row["valid_bits_per_byte"]) == pytest.approx(want, rel=1e-5)


def test_a_context_of_one_token_that_could_not_generate_is_refused(text: Path, run: Run) -> None:
    assert "1 is not in the range x>=2" in said(run("train", "text", text, "--context", 1), 2)


def test_a_resumed_run_is_bit_identical_to_one_that_was_not_stopped(text: Path, run: Run, tmp_path: Path) -> None:
    arguments = ("train", "text", text, *TINY, *HOST, "--set", "dropout=0.1", "--schedule", "constant")
    said(run(*arguments, "--epochs", 2, "--out", "whole"))
    said(run(*arguments, "--epochs", 1, "--out", "parts"))
    said(run("train", "text", "--out", "parts", "--resume", "--epochs", 2))
    one, other = load_checkpoint(tmp_path / "whole"), load_checkpoint(tmp_path / "parts")
    assert one.model.keys() == other.model.keys()
    assert all(np.array_equal(one.model[n], other.model[n]) for n in one.model)
    refused = run("train", "text", "--out", "parts", "--resume", "--context", 8, "--tokenizer", "bpe")
    assert "--context 8, and it has 16" in said(refused, 1)
    assert "--tokenizer bpe, and it has bytes" in said(refused, 1)
    text.write_text(TEXT.replace("mat", "rug"), encoding="utf-8")
    other_text = said(run("train", "text", text, "--out", "parts", "--resume", "--epochs", 3), 1)
    assert "data of other text_sha256" in other_text
    assert "for text, as FILE" in " ".join(other_text.split())


def test_bpe_is_trained_on_the_training_part_and_kept_with_the_run(text: Path, run: Run, tmp_path: Path) -> None:
    need("tokenizers")
    text.write_text(TEXT + "zebra zebra zebra " * 10, encoding="utf-8")  # in the last part only
    said(run("train", "text", text, *TINY, *HOST, "--context", 8, "--tokenizer", "bpe:290", "--epochs", 1, "--out", "bpe"))
    found = load_checkpoint(tmp_path / "bpe").config
    tokenizer = language.tokenizer_of(found)
    assert isinstance(tokenizer, SubwordTokenizer)
    assert found["vocabulary"] == tokenizer.vocabulary <= 290
    assert len(tokenizer.encode(" the mat")) <= 3
    assert len(tokenizer.encode("zebra")) == 5
    tokenizer.save(tmp_path / "tokenizer.json")
    file = ("--tokenizer", "tokenizer.json")
    said(run("train", "text", text, *TINY, *HOST, "--context", 8, *file, "--epochs", 1, "--out", "file"))
    (tmp_path / "tokenizer.json").unlink()
    one, other = load_checkpoint(tmp_path / "bpe"), load_checkpoint(tmp_path / "file")
    assert all(np.array_equal(one.model[n], other.model[n]) for n in one.model)
    texts = {said(run("generate", r, "--prompt", "the c", "--tokens", 12, *HOST)) for r in ("bpe", "file")}
    assert len(texts) == 1
    said(run("train", "text", "--out", "file", "--resume", "--epochs", 2))


def test_a_tokenizer_that_loses_characters_is_said(text: Path, run: Run, tmp_path: Path) -> None:
    library = imported("tokenizers")
    inner = library.Tokenizer(library.models.BPE())
    inner.train_from_iterator(["the cat sat on the mat"], library.trainers.BpeTrainer(vocab_size=30, show_progress=False))
    inner.save(str(tmp_path / "letters.json"))
    short = ("train", "text", text, *TINY, *HOST, "--context", 4, "--epochs", 1)
    assert "leaves some of it out" in said(run(*short, "--tokenizer", "letters.json"))
    assert "leaves some of it out" not in said(run(*short, "--tokenizer", "bpe:257"))


def test_windows_may_overlap_and_batches_be_divided(text: Path, run: Run) -> None:
    divided = ("--stride", 4, "--devices", "numpy:0,numpy:1", "--epochs", 1)
    output = said(run("train", "text", text, *TINY, *divided, "--out", "run"))
    tokens = len(TEXT[: len(TEXT) - 2 * (len(TEXT) // 20)].encode())
    assert f"text: {(tokens - 1 - 16) // 4 + 1:,} windows to train" in output


def test_loaders_are_made_as_the_config_says(text: Path) -> None:
    config = {"context": 4, "stride": 3, "batch_size": 7, "seed": 9, "tokenizer_json": ByteTokenizer().to_json()}
    device = fb.device("numpy:1")
    for workers in (None, 2):
        training, validation = language.training_loaders({**config, "workers": workers}, str(text), device)
        assert (training.num_workers, validation.num_workers) == (workers or 0, 0)
        assert (training.batch_size, training.seed, training.shuffle, training.device) == (7, 9, True, device)
    testing = language.test_loader({**config, "batch_size": 100}, str(text), device)
    assert [(x.batch_size, x.shuffle, x.name) for x in (validation, testing)] == [
        (64, False, "validation"),
        (100, False, "test"),
    ]
    assert [x.dataset.stride for x in (training, validation, testing)] == [3, 4, 4]
    assert math.isinf(language.perplexity(1e4))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("train", "text"), 1, "firebrick train text needs a FILE"),
        (("train", "text", "gone.txt"), 1, "cannot read"),
        (("train", "text", "empty.txt"), 1, "empty.txt: expected text to train on; received an empty file"),
        (("train", "text", "latin.txt"), 1, "expected text in UTF-8; received the byte 0xe9 at offset 1"),
        (("train", "text", "short.txt"), 1, "expected more than 128 tokens, the context, in each part of the text"),
        (("train", "text", "short.txt", "--tokenizer", "words"), 2, "'words' is neither bytes nor bpe nor bpe:SIZE nor a file"),
        (("train", "text", "short.txt", "--tokenizer", "bpe:255"), 2, "a number of tokens of at least 256"),
        (("train", "text", "short.txt", "--tokenizer", "bpe:99999999999999999999"), 2, "and at most 16777216"),
        (("train", "text", "short.txt", "--tokenizer", "bpe:x"), 2, "a number of tokens of at least 256"),
        (("train", "text", "short.txt", "--tokenizer", "short.txt"), 1, "a tokeniser is saved as JSON"),
        (("train", "text", "short.txt", "--tokenizer", "other.json"), 1, "error: other.json: SubwordTokenizer takes"),
        (("train", "text", "short.txt", "--tokenizer", "other.json"), 1, "Received: an object without the field model."),
        (("train", "text", "short.txt", "--tokenizer", "list.json"), 1, "Received: JSON that is no object: [1]."),
        (("train", "text", "short.txt", "--data-dir", "short.txt"), 2, "FILE says where the text is"),
        (("train", "text", "short.txt", "--model", "cnn"), 2, "cnn is not for text; choose one of gpt"),
        (("train", "text", "short.txt", "--set", "length=4"), 2, "gpt has no length; it has dim, heads"),
        (("train", "text", "short.txt", "--augment", "flip"), 2, "it is for images; leave it out for text"),
        (("train", "text", "short.txt", "--horizon", 3), 2, "it is for time series; leave it out for text"),
        (("train", "digits", "short.txt"), 2, "it is for text; leave it out for digits"),
        (("train", "digits", "--context", 8), 2, "it is for text; leave it out for digits"),
        (("train", "digits", "--model", "gpt"), 2, "gpt is not for digits"),
        (("generate", "gone", "--prompt", "a"), 1, "gone"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(run: Run, arguments: tuple[object, ...], code: int, message: str) -> None:
    for name, content in (
        ("empty.txt", b""),
        ("latin.txt", b"h\xe9"),
        ("short.txt", TEXT[:200].encode()),
        ("other.json", b'{"a": 1}'),
        ("list.json", b"[1]"),
    ):
        Path(name).write_bytes(content)
    assert message in said(run(*arguments), code)
    assert not Path("runs").exists()


def test_prompts_that_do_not_fit_are_refused(cat: Path, run: Run) -> None:
    for arguments, message in (
        (("--prompt", "the cat sat on t"), "a prompt has 16 tokens, and the model has 16 positions"),
        (("--prompt", ""), "a text has at least one character"),
        (("--prompt", "a", "--stop", ""), "a text has at least one character"),
        (("--prompt", "a", "--tokens", 0), "0 is not in the range"),
        (("--prompt", "a", "--temperature", "nan"), "nan is not a finite number"),
        (("--prompt", "a", "--temperature", "inf"), "inf is not a finite number"),
        (("--prompt", "a", "--top-p", "nan"), "nan is not a finite number"),
        (("--prompt", "a", "--beams", 2, "--top-k", 3), "nothing is drawn with --beams; leave --top-k out"),
        (("--prompt", "a", "--beams", 2, "--temperature", 0.8), "nothing is drawn with --beams; leave --temperature out"),
        (("--prompt", "a", "--beams", 2, "--seed", 1, "--top-p", 1), "leave --top-p and --seed out"),
        ((), "Missing option '--prompt'"),
    ):
        assert message in said(run("generate", cat, *arguments), 2)
    assert "the lone surrogate" in said(run("generate", cat, "--prompt", "a\udc80"), 1)
    assert "is a language model: firebrick generate" in said(run("predict", cat, "x.png"), 2)


def test_a_run_of_another_kind_is_refused_by_name(trained: Path, run: Run) -> None:
    assert "digits-mlp is no language model: firebrick predict is for digits" in said(
        run("generate", trained, "--prompt", "a"), 2
    )
