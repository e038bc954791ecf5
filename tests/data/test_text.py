"""Tokenisers, the text of tokens that come one by one, and windows of tokens."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extras import imported
from hypothesis import given, settings
from hypothesis import strategies as st

import firebrick as fb
from firebrick.core.errors import ConfigError, OutOfRangeError, UnsupportedError
from firebrick.data import (
    ByteTokenizer,
    DataLoader,
    LoaderError,
    SubwordTokenizer,
    TextStream,
    Tokenizer,
    TokenWindows,
    load_tokenizer,
    read_text,
    tokenizer_of,
)
from firebrick.data.datasets import DataError
from firebrick.data.text import encoded

TEXT = "The cat sat on the mat, and the dog sat on the log. Déjà vu: 日本語のテキスト 🙂\r\n\tend\x00\ufffd "
KINDS = ["bytes", "subword"]


def made(kind: str) -> Tokenizer:
    if kind == "bytes":
        return ByteTokenizer()
    imported("tokenizers")
    return SubwordTokenizer.train(TEXT * 3, size=300)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return made(request.param)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(text=texts)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert all(type(t) is int and 0 <= t < tokenizer.vocabulary for t in tokens)
    assert tokenizer.decode(tokens) == text
    array = encoded(tokenizer, text)
    assert array.tolist() == tokens
    assert tokenizer.decode(array) == text


def test_bytes_are_those_of_utf8_and_frequent_pieces_are_tokens(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT)
    if isinstance(tokenizer, ByteTokenizer):
        assert bytes(tokens) == TEXT.encode()
        assert tokenizer.vocabulary == 256
    else:
        assert len(tokens) < 0.8 * len(TEXT.encode())
        assert tokenizer.vocabulary == 300
        assert len(tokenizer.encode(" sat on the")) < 5


@settings(max_examples=60, deadline=None)
@given(text=texts, noise=st.lists(st.integers(0, 255), max_size=12))
def test_texts_of_a_stream_are_together_the_text_and_never_part_of_a_character(
    tokenizer: Tokenizer, text: str, noise: list[int]
) -> None:
    tokens = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    parts = [stream.add(t) for t in tokens]
    assert "".join(parts) + stream.end() == text
    if "\ufffd" not in text:
        assert "".join(parts) == text
        assert all("\ufffd" not in p for p in parts)
    mixed = [*noise, *tokens, *noise]  # bytes that are no text
    stream = TextStream(tokenizer)
    assert "".join([stream.add(t) for t in mixed]) + stream.end() == tokenizer.decode(mixed)


def test_a_character_of_several_tokens_is_given_out_at_its_last(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a🦀b")
    stream = TextStream(tokenizer)
    parts = [stream.add(t) for t in tokens]
    assert [p for p in parts if p] == ["a", "🦀", "b"]
    assert parts.index("🦀") > 1
    cut = TextStream(tokenizer)
    assert "".join(cut.add(t) for t in tokens[:3]) == "a"
    assert set(cut.end()) == {"\ufffd"}


def test_a_stream_of_a_decoder_that_drops_a_leading_space_keeps_the_others() -> None:
    library = imported("tokenizers")
    inner = library.Tokenizer(library.models.BPE())
    inner.pre_tokenizer = library.pre_tokenizers.Metaspace()
    inner.decoder = library.decoders.Metaspace()
    words = "one two three two one"
    inner.train_from_iterator([words], library.trainers.BpeTrainer(vocab_size=60, show_progress=False))
    tokenizer = SubwordTokenizer(inner.to_str())
    tokens = tokenizer.encode(words)
    stream = TextStream(tokenizer)
    assert "".join([stream.add(t) for t in tokens]) + stream.end() == tokenizer.decode(tokens) == words


def test_a_stream_loses_nothing_where_a_decoder_changes_what_was_given_out() -> None:
    library = imported("tokenizers")
    names = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "the", "cat"]
    inner = library.Tokenizer(
        library.models.BPE({n: i for i, n in enumerate(names)}, [], byte_fallback=True, unk_token="<unk>")
    )
    inner.decoder = library.decoders.Sequence([library.decoders.ByteFallback(), library.decoders.Fuse()])
    tokenizer = SubwordTokenizer(inner.to_str())
    a, half, the, cat = 1 + ord("a"), 1 + 0xE2, 257, 258
    assert tokenizer.decode([a, half, the]) == "\ufffd\ufffdthe"  # the run of bytes as a whole is no UTF-8
    stream = TextStream(tokenizer)
    parts = [stream.add(t) for t in (a, half, the, cat)]
    assert parts == ["a", "", "\ufffdthe", "cat"]
    assert stream.end() == ""
    stream = TextStream(tokenizer)
    assert [stream.add(t) for t in (a, half)] == ["a", ""]
    assert stream.end() == "\ufffd"


def test_merges_that_a_file_drops_at_random_are_all_made() -> None:
    imported("tokenizers")
    tokenizer = SubwordTokenizer.train(TEXT, size=280)
    saved = json.loads(tokenizer.to_json())
    saved["model"]["dropout"] = 0.5
    assert [SubwordTokenizer(json.dumps(saved)).encode(TEXT) for _ in range(3)] == [tokenizer.encode(TEXT)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_saved_loaded_and_copied(kind: str, tmp_path: Path) -> None:
    tokenizer: Any = made(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    for other in (
        load_tokenizer(tmp_path / "tokenizer.json"), tokenizer_of(tokenizer.to_json()), pickle.loads(pickle.dumps(tokenizer)),
    ):  # fmt: skip
        assert other == tokenizer
        assert hash(other) == hash(tokenizer)
        assert other.encode(TEXT) == tokenizer.encode(TEXT)
        assert repr(other) == repr(tokenizer)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer != "bytes"


def test_training_gives_the_same_tokens_each_time_and_one_size() -> None:
    imported("tokenizers")
    one, other = (SubwordTokenizer.train(TEXT, size=280) for _ in range(2))
    assert one == other
    assert SubwordTokenizer.train("", size=256).vocabulary == 256
    assert SubwordTokenizer.train("ab", size=5000).vocabulary == 257  # nothing more to merge
    with pytest.raises(ConfigError, match=r"SubwordTokenizer\.train: size is an int ≥ 256"):
        SubwordTokenizer.train(TEXT, size=255)
    with pytest.raises(ConfigError, match=r"SubwordTokenizer\.train: size is at most"):
        SubwordTokenizer.train(TEXT, size=10**20)


def test_settings_of_a_file_that_would_change_a_text_are_off() -> None:
    library = imported("tokenizers")
    inner = library.Tokenizer.from_str(SubwordTokenizer.train(TEXT, size=260).to_json())
    inner.enable_truncation(2)
    inner.enable_padding(length=50)
    inner.add_special_tokens(["<end>"])
    inner.post_processor = library.processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 260)])
    tokenizer = SubwordTokenizer(inner.to_str())
    assert tokenizer.vocabulary == 261
    assert tokenizer.decode(tokenizer.encode("abcdef")) == "abcdef"
    assert tokenizer.decode([260]) == "<end>"


def test_without_the_library_bytes_work_and_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    assert ByteTokenizer().encode("a") == [97]
    assert tokenizer_of('{"type": "bytes"}').vocabulary == 256
    with pytest.raises(UnsupportedError, match=r"pip install 'firebrick\[text\]'"):
        SubwordTokenizer.train("text")
    with pytest.raises(UnsupportedError, match="subword tokenisers need tokenizers"):
        tokenizer_of('{"model": {}}')


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_and_no_token_is_refused(kind: str) -> None:
    tokenizer = made(kind)
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: tokenizer.encode("a\udc80"), ConfigError, r"the lone surrogate U\+DC80 at 1"),
        (lambda: tokenizer.encode(b"a"), ConfigError, "a tokeniser encodes text\nReceived: bytes"),  # type: ignore[arg-type]
        (lambda: tokenizer.decode([tokenizer.vocabulary]), OutOfRangeError, r"tokens of this tokeniser lie in \[0, "),
        (lambda: tokenizer.decode([-1]), OutOfRangeError, "tokens from -1"),
        (lambda: tokenizer.decode([[1]]), ConfigError, "tokens are a list of ints"),  # type: ignore[list-item]
        (lambda: tokenizer.decode([1.0]), ConfigError, "tokens are a list of ints"),  # type: ignore[list-item]
        (lambda: tokenizer.decode([True]), ConfigError, "tokens are a list of ints"),
        (lambda: TextStream(tokenizer).add(99999), OutOfRangeError, "tokens from 99999"),
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
    assert tokenizer.decode(fb.asarray(tokenizer.encode("ab"))) == "ab"  # type: ignore[arg-type]


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    imported("tokenizers")
    file = tmp_path / "tokenizer.json"
    for content, text in (("not json", "saved as JSON"), ("{}", "the content of a tokenizer.json"), ("[1]", "tokenizer.json")):
        file.write_text(content)
        with pytest.raises(ConfigError, match=text):
            load_tokenizer(file)
    empty = json.loads(SubwordTokenizer.train("").to_json())
    empty["model"]["vocab"] = {}
    with pytest.raises(ConfigError, match="a tokeniser has at least one token"):
        SubwordTokenizer(json.dumps(empty))
    with pytest.raises(ConfigError, match=r"takes the content of a tokenizer\.json"):
        SubwordTokenizer(b"{}")  # type: ignore[arg-type]


def test_a_text_is_read_as_it_is_or_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("\ufeffé\r\n".encode())
    assert read_text(file) == "\ufeffé\r\n"
    file.write_bytes(b"caf\xe9s")
    with pytest.raises(DataError, match=r"text\.txt: expected text in UTF-8; received the byte 0xe9 at offset 3"):
        read_text(file)
    with pytest.raises(DataError, match=r"cannot read .*nothing"):
        read_text(tmp_path / "nothing")
    with pytest.raises(DataError, match="a directory instead of a regular file"):
        read_text(tmp_path)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint16"])
@pytest.mark.parametrize(("length", "stride"), [(1, None), (4, None), (4, 3), (5, 1), (19, None), (4, 50)])
def test_windows_are_slices_and_targets_the_tokens_after_them(dtype: str, length: int, stride: int | None) -> None:
    tokens = np.random.default_rng(0).integers(0, 200, 20).astype(dtype)
    data = TokenWindows(tokens, length, stride)
    starts = [s for s in range(0, 20, stride or length) if s + length < 20]
    assert len(data) == len(starts)
    for i, s in enumerate(starts):
        seen, target = data[i]
        assert seen.dtype == target.dtype == np.int64
        assert (seen.tolist(), target.tolist()) == (tokens[s : s + length].tolist(), tokens[s + 1 : s + 1 + length].tolist())
    order = np.arange(len(data))[::-1]
    seen, target = data.fetch(order)
    assert seen.tolist() == [data[i][0].tolist() for i in order.tolist()]
    for index in (-1, len(data)):
        with pytest.raises(IndexError, match="windows"):
            data[index]


def test_each_token_after_the_first_is_a_target_once_but_for_the_last_window() -> None:
    data = TokenWindows(np.arange(50), 7)
    targets = np.concatenate([data[i][1] for i in range(len(data))])
    assert targets.tolist() == list(range(1, 50))


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_a_loader_gives_windows_on_its_device_in_its_default_int(device: str) -> None:
    loader = DataLoader(TokenWindows(np.arange(21, dtype=np.uint8), 5), 2, device=device)
    batches = list(loader)
    assert [b[0].shape for b in batches] == [(2, 5), (2, 5)]
    assert batches[1][1].tolist() == [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]]
    assert all(t.device is fb.device(device) and t.dtype is fb.int64 for b in batches for t in b)


def test_windows_that_do_not_fit_are_refused() -> None:
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: TokenWindows([1, 2, 3], 3), LoaderError, "a window of 3 tokens and the token after it\nReceived: 3 tokens"),
        (lambda: TokenWindows([1, 2, 3], 0), ConfigError, "length is an int ≥ 1"),
        (lambda: TokenWindows([1, 2, 3], 1, 0), ConfigError, "stride is an int ≥ 1"),
        (lambda: TokenWindows([1.0, 2.0], 1), LoaderError, r"takes integers \[n\]"),
        (lambda: TokenWindows([[1, 2]], 1), LoaderError, r"takes integers \[n\]"),
        (lambda: TokenWindows([], 1), LoaderError, r"takes integers \[n\]"),
    ]
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
