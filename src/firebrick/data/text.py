"""Text as tokens: tokenisers, the text of tokens that come one by one, and windows of a sequence of tokens."""

from __future__ import annotations

import json
import os
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from firebrick.core.errors import ConfigError, OutOfRangeError, UnsupportedError
from firebrick.core.settings import whole
from firebrick.core.untrusted import content_of, json_of, shown
from firebrick.data.datasets import DataError
from firebrick.data.errors import LoaderError

Array = np.ndarray[Any, Any]
_BYTES = {"type": "bytes"}  # all that the file of a ByteTokenizer says
_BYTE_COUNT = 256
MOST_TOKENS = 2**24
_UNFINISHED = "\ufffd"  # what a decoder shows for bytes that are no whole character


@runtime_checkable
class Tokenizer(Protocol):
    """What turns text into tokens and back; any object with these members is one.

    Attributes:
        vocabulary: Number of tokens; each is in [0, vocabulary).

    Example:
        >>> from firebrick.data import ByteTokenizer, Tokenizer
        >>> isinstance(ByteTokenizer(), Tokenizer)
        True
    """

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text.

        Args:
            text: Any text.
        """

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens.

        Args:
            tokens: Integers in [0, vocabulary).
        """

    def to_json(self) -> str:
        """The tokeniser as JSON, which ``load_tokenizer`` reads."""


class ByteTokenizer:
    """The bytes of UTF-8 as tokens: 256 of them, for any text, with nothing to train.

    Attributes:
        vocabulary: 256.

    Example:
        >>> from firebrick.data import ByteTokenizer
        >>> tokenizer = ByteTokenizer()
        >>> tokenizer.encode("né")
        [110, 195, 169]
        >>> tokenizer.decode([110, 195, 169])
        'né'
    """

    vocabulary = _BYTE_COUNT

    def encode(self, text: str) -> list[int]:
        """The bytes of a text.

        Args:
            text: Any text.

        Raises:
            ConfigError: It is no str, or has a lone surrogate, which UTF-8 does not have.

        Example:
            >>> import firebrick as fb
            >>> fb.data.ByteTokenizer().encode("hi")
            [104, 105]
        """
        return list(_utf8(text))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of bytes; those that are no UTF-8 are shown as U+FFFD.

        Args:
            tokens: Integers in [0, 256).

        Raises:
            OutOfRangeError: A token lies outside.

        Example:
            >>> import firebrick as fb
            >>> fb.data.ByteTokenizer().decode([104, 105])
            'hi'
        """
        return bytes(_checked(tokens, _BYTE_COUNT)).decode("utf-8", "replace")

    def to_json(self) -> str:
        """The tokeniser as JSON.

        Example:
            >>> import firebrick as fb
            >>> fb.data.ByteTokenizer().to_json()
            '{"type": "bytes"}'
        """
        return json.dumps(_BYTES)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that ``load_tokenizer`` reads.

        Args:
            path: The file, by custom ``tokenizer.json``.

        Example:
            >>> import tempfile, firebrick as fb
            >>> path = tempfile.mkdtemp() + "/tokenizer.json"
            >>> fb.data.ByteTokenizer().save(path)
            >>> fb.data.load_tokenizer(path)
            ByteTokenizer()
        """
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteTokenizer)

    def __hash__(self) -> int:
        return hash(ByteTokenizer)

    def __repr__(self) -> str:
        return "ByteTokenizer()"


class SubwordTokenizer:
    """A tokeniser of the library ``tokenizers`` (the extra ``text``): frequent pieces of words are tokens.

    It is trained on a text (``SubwordTokenizer.train``, byte-level BPE, which encodes any text without loss), or read from a
    ``tokenizer.json`` of any of the library's models, such as published language models have. No special tokens are added to a
    text, and none is left out of a decoded one.

    Args:
        serialized: The content of a ``tokenizer.json``.

    Attributes:
        vocabulary: Number of tokens: the largest one and 1.

    Raises:
        UnsupportedError: The library is not installed.
        ConfigError: The content is no tokeniser of the library.

    Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", arXiv:1508.07909; Radford et al.,
        "Language Models are Unsupervised Multitask Learners", 2019 (bytes as the first tokens).

    Example:
        >>> from firebrick.data import SubwordTokenizer
        >>> tokenizer = SubwordTokenizer.train("the cat sat on the mat. " * 20, size=270)
        >>> tokens = tokenizer.encode("the cat")
        >>> len(tokens) < len("the cat"), tokenizer.decode(tokens)
        (True, 'the cat')
    """

    def __init__(self, serialized: str) -> None:
        library = _library()
        if not isinstance(serialized, str):
            raise ConfigError(
                "SubwordTokenizer takes the content of a tokenizer.json", type(serialized).__name__,
                "read a file with fb.data.load_tokenizer(path)",
            )  # fmt: skip
        try:
            self._inner = library.Tokenizer.from_str(serialized)
        except Exception as e:  # the library raises no narrower class
            raise ConfigError(
                "SubwordTokenizer takes the content of a tokenizer.json of the library tokenizers",
                _fault(serialized) or shown(e, 200), "save it with that library's Tokenizer.save",
            ) from e  # fmt: skip
        self._inner.no_truncation()  # settings that a file may hold, and that would change the text
        self._inner.no_padding()
        if getattr(self._inner.model, "dropout", None) is not None:  # of merges: each call would find other tokens
            self._inner.model.dropout = None
        ids = self._inner.get_vocab(with_added_tokens=True).values()
        if not ids:
            raise ConfigError("a tokeniser has at least one token", "an empty vocabulary", "train it on a text")
        self.vocabulary = 1 + max(ids)

    @classmethod
    def train(cls, text: str, size: int = 1024) -> SubwordTokenizer:
        """A byte-level BPE tokeniser that is trained on a text.

        Args:
            text: The text.
            size: Number of tokens, of which 256 are the bytes; fewer where the text has fewer pairs to merge.

        Raises:
            UnsupportedError: The library is not installed.
            ConfigError: The size is less than 256 or more than 2²⁴, or the text has a lone surrogate.

        Example:
            >>> import firebrick as fb
            >>> fb.data.SubwordTokenizer.train("ab ab ab ab", size=258).vocabulary
            258
        """
        library = _library()
        size = whole("SubwordTokenizer.train", "size", size, _BYTE_COUNT)
        if size > MOST_TOKENS:
            raise ConfigError(f"SubwordTokenizer.train: size is at most {MOST_TOKENS:,}", f"size={size}", "pass e.g. 4096")
        _utf8(text)
        inner = library.Tokenizer(library.models.BPE())
        inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        inner.train_from_iterator([text], trainer=trainer)
        return cls(inner.to_str())

    def encode(self, text: str) -> list[int]:
        """The tokens of a text.

        Args:
            text: Any text.

        Raises:
            ConfigError: It is no str, or has a lone surrogate, which UTF-8 does not have.

        Example:
            >>> import firebrick as fb
            >>> tokenizer = fb.data.SubwordTokenizer.train("ab ab ab ab", size=257)
            >>> len(tokenizer.encode("ab"))
            1
        """
        _utf8(text)
        found: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return found

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no whole character are shown as U+FFFD.

        Args:
            tokens: Integers in [0, vocabulary).

        Raises:
            OutOfRangeError: A token lies outside.

        Example:
            >>> import firebrick as fb
            >>> tokenizer = fb.data.SubwordTokenizer.train("ab ab ab ab", size=257)
            >>> tokenizer.decode(tokenizer.encode("ab ab"))
            'ab ab'
        """
        text: str = self._inner.decode(_checked(tokens, self.vocabulary), skip_special_tokens=False)
        return text

    def to_json(self) -> str:
        """The content of a ``tokenizer.json``.

        Example:
            >>> import firebrick as fb
            >>> tokenizer = fb.data.SubwordTokenizer.train("ab ab ab ab", size=257)
            >>> fb.data.SubwordTokenizer(tokenizer.to_json()) == tokenizer
            True
        """
        text: str = self._inner.to_str()
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``tokenizer.json``, which ``load_tokenizer`` and the library read.

        Args:
            path: The file.

        Example:
            >>> import tempfile, firebrick as fb
            >>> path = tempfile.mkdtemp() + "/tokenizer.json"
            >>> fb.data.SubwordTokenizer.train("ab ab ab ab", size=257).save(path)
            >>> fb.data.load_tokenizer(path).vocabulary
            257
        """
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __getstate__(self) -> dict[str, Any]:
        return {"serialized": self.to_json()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["serialized"])  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordTokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"SubwordTokenizer(vocabulary={self.vocabulary})"


def _fault(serialized: str) -> str:
    """What JSON lacks for a tokeniser; empty if it may be one. The library reports a place in the text, whatever it is."""
    try:
        found = json_of(serialized)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return f"JSON that is no object: {serialized:.60}"
    return "" if isinstance(found.get("model"), dict) else "an object without the field model"


def tokenizer_of(serialized: str) -> ByteTokenizer | SubwordTokenizer:
    """The tokeniser that ``to_json`` wrote, or that the library ``tokenizers`` saved.

    Args:
        serialized: JSON.

    Raises:
        ConfigError: It is no tokeniser.
        UnsupportedError: It needs the library, which is not installed.

    Example:
        >>> import firebrick as fb
        >>> fb.data.tokenizer_of('{"type": "bytes"}')
        ByteTokenizer()
    """
    try:
        found = json_of(serialized)
    except (TypeError, ValueError) as e:
        raise ConfigError(
            "a tokeniser is saved as JSON", shown(e, 200), "save it with its method save, or pass a tokenizer.json"
        ) from e
    return ByteTokenizer() if found == _BYTES else SubwordTokenizer(serialized)


def load_tokenizer(path: str | os.PathLike[str]) -> ByteTokenizer | SubwordTokenizer:
    """Read a tokeniser that its method ``save`` wrote, or a ``tokenizer.json`` of the library ``tokenizers``.

    Args:
        path: The file.

    Raises:
        DataError: It cannot be read, or is not UTF-8.
        ConfigError: It is no tokeniser.
        UnsupportedError: It needs the library, which is not installed.

    Example:
        >>> import tempfile, firebrick as fb
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> fb.data.ByteTokenizer().save(path)
        >>> fb.data.load_tokenizer(path).vocabulary
        256
    """
    try:
        return tokenizer_of(read_text(path))
    except ConfigError as e:
        raise ConfigError(f"{path}: {e.expected}", e.received, e.remedy) from e


def read_text(path: str | os.PathLike[str]) -> str:
    r"""The text of a file in UTF-8, as it is: line ends stay, and so does a byte order mark.

    Args:
        path: The file.

    Raises:
        DataError: It cannot be read, or is not UTF-8.

    Example:
        >>> import tempfile, firebrick as fb
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "text.txt"
        >>> _ = path.write_bytes(b"caf\xc3\xa9")
        >>> fb.data.read_text(path)
        'café'
    """
    try:
        content = content_of(path)
    except OSError as e:
        raise DataError(f"cannot read {path}: {e.strerror or e}. Check its name and permissions.") from e
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as e:
        raise DataError(
            f"{path}: expected text in UTF-8; received the byte 0x{content[e.start]:02x} at offset {e.start} ({e.reason}). "
            "Convert the file, for example: iconv -f LATIN1 -t UTF-8."
        ) from e


class TextStream:
    """The text of tokens that come one by one: a character is given out when all of its bytes are there.

    All texts together are ``tokenizer.decode`` of all tokens, for bytes and for every tokeniser that decodes piece by piece.

    Args:
        tokenizer: The tokeniser of the tokens.

    Example:
        >>> import firebrick as fb
        >>> stream = fb.data.TextStream(fb.data.ByteTokenizer())
        >>> [stream.add(token) for token in (110, 195, 169)], stream.end()
        (['n', '', 'é'], '')
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = getincrementaldecoder("utf-8")("replace") if isinstance(tokenizer, ByteTokenizer) else None
        # Decoders may change the first token of a text (a space that is left out), so tokens are decoded with those before
        # them: `_tokens` begins with those that were given out last, whose text is `_given`.
        self._tokens: list[int] = []
        self._shown = 0
        self._given = ""

    def add(self, token: int) -> str:
        """The text that is certain with one token more, which may be empty.

        Args:
            token: The token.

        Raises:
            OutOfRangeError: It is not of the vocabulary.

        Example:
            >>> import firebrick as fb
            >>> fb.data.TextStream(fb.data.ByteTokenizer()).add(104)
            'h'
        """
        if self._bytes is not None:
            return self._bytes.decode(bytes(_checked([token], _BYTE_COUNT)))
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        if text.endswith(_UNFINISHED):
            return ""
        new = self._behind(text)
        if new:
            self._tokens, self._shown = self._tokens[self._shown :], len(self._tokens) - self._shown
            self._given = self._tokenizer.decode(self._tokens)
        return new

    def end(self) -> str:
        r"""What is left when no token follows: U+FFFD for bytes that are no whole character.

        Example:
            >>> import firebrick as fb
            >>> stream = fb.data.TextStream(fb.data.ByteTokenizer())
            >>> stream.add(195), stream.end()
            ('', '\ufffd')
        """
        if self._bytes is not None:
            return self._bytes.decode(b"", final=True)
        text = self._tokenizer.decode(self._tokens)
        rest = self._behind(text)
        self._tokens, self._shown, self._given = [], 0, ""
        return rest

    def _behind(self, text: str) -> str:
        """What ``text``, of all tokens that are kept, adds to what was given out."""
        if text.startswith(self._given):
            return text[len(self._given) :]
        # a decoder that replaces whole runs of bytes (byte fallback) has changed what was given out: the new tokens alone
        return self._tokenizer.decode(self._tokens[self._shown :])


class TokenWindows:
    """Windows of a sequence of tokens, and the tokens that follow: sample i is tokens s … s + length and those one further on,
    where s = i · stride.

    Tokens after the last whole window are left out.

    Args:
        tokens: Integers [n], as NumPy or a list. They are neither copied nor written.
        length: Tokens of a window.
        stride: From the beginning of a window to that of the next; ``length`` by default, so that each token is the target of
            one window.

    Raises:
        ConfigError: A length is no int of at least 1.
        LoaderError: The tokens are not integers [n], or not one window with the token after it fits.

    Example:
        >>> import firebrick as fb
        >>> data = fb.data.TokenWindows([3, 1, 4, 1, 5, 9, 2], length=3)
        >>> len(data), [part.tolist() for part in data[1]]
        (2, [[1, 5, 9], [5, 9, 2]])
    """

    by_rows = True

    def __init__(self, tokens: Any, length: int, stride: int | None = None) -> None:
        self.tokens: Array = np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise LoaderError(
                "TokenWindows takes integers [n]", f"{self.tokens.dtype}{list(self.tokens.shape)}", "encode the text first"
            )
        self.length = whole("TokenWindows", "length", length, 1)
        self.stride = self.length if stride is None else whole("TokenWindows", "stride", stride, 1)
        if len(self.tokens) <= self.length:
            raise LoaderError(
                f"TokenWindows: a window of {self.length} tokens and the token after it", f"{len(self.tokens)} tokens",
                "shorten the windows, or bring more text",
            )  # fmt: skip

    def __len__(self) -> int:
        return (len(self.tokens) - 1 - self.length) // self.stride + 1

    @property
    def overlap(self) -> int:
        """The number of windows after a window that predict a token which it predicts too."""
        return (self.length - 1) // self.stride

    def __getitem__(self, index: int, /) -> tuple[Array, Array]:
        seen, target = self.fetch(np.asarray([index]))
        return seen[0], target[0]

    def fetch(self, indices: Array) -> tuple[Array, Array]:
        """The windows ``indices`` (int64 [batch]), and their targets: int64 [batch, length] each, new arrays.

        Args:
            indices: int64 [batch], each in [0, len).

        Raises:
            IndexError: An index lies outside [0, len).

        Example:
            >>> import firebrick as fb
            >>> import numpy as np
            >>> seen, target = fb.data.TokenWindows([3, 1, 4, 1], length=2, stride=1).fetch(np.asarray([0, 1]))
            >>> seen.tolist(), target.tolist()
            ([[3, 1], [1, 4]], [[1, 4], [4, 1]])
        """
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"windows {indices.min()} to {indices.max()} of {len(self)}")
        places = indices[:, None] * self.stride + np.arange(self.length)
        return self.tokens[places].astype(np.int64), self.tokens[places + 1].astype(np.int64)


def encoded(tokenizer: Tokenizer, text: str) -> Array:
    """The tokens of a long text, in the smallest unsigned dtype that has the vocabulary."""
    if isinstance(tokenizer, ByteTokenizer):
        return np.frombuffer(_utf8(text), np.uint8)
    return np.asarray(tokenizer.encode(text), np.min_scalar_type(tokenizer.vocabulary - 1))


def _utf8(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ConfigError("a tokeniser encodes text", type(text).__name__, "pass a str")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise ConfigError(
            "text of a tokeniser can be written in UTF-8", f"the lone surrogate U+{ord(text[e.start]):04X} at {e.start}",
            'read the text as UTF-8, without errors="surrogateescape"',
        ) from e  # fmt: skip


def _checked(tokens: Iterable[int], vocabulary: int) -> list[int]:
    """Tokens as ints of a vocabulary."""
    given = tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)
    rows: Sequence[Any] = given if isinstance(given, list) else [given]
    if not all(isinstance(t, (int, np.integer)) and not isinstance(t, bool) for t in rows):
        raise ConfigError("tokens are a list of ints", f"{rows!r:.60}", "decode one sequence at a time")
    if rows and not 0 <= min(rows) <= max(rows) < vocabulary:
        raise OutOfRangeError(
            f"tokens of this tokeniser lie in [0, {vocabulary})", f"tokens from {min(rows)} to {max(rows)}",
            "check the tokeniser against the model",
        )  # fmt: skip
    return [int(t) for t in rows]


def _library() -> Any:
    try:
        return import_module("tokenizers")
    except ImportError as e:
        raise UnsupportedError("subword tokenisers need tokenizers", str(e), "pip install 'firebrick[text]'") from e


__all__ = [
    "ByteTokenizer",
    "SubwordTokenizer",
    "TextStream",
    "TokenWindows",
    "Tokenizer",
    "load_tokenizer",
    "read_text",
    "tokenizer_of",
]
