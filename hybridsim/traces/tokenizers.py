"""Texts to token ids: a Hugging Face tokenizer by name, or a fallback that needs no files."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from hybridsim.errors import UserError

PIECE = re.compile(r"\s?[^\W\d_]{1,6}|\s?\d{1,3}|\s?[^\w\s]{1,2}|\s+|_|.", re.DOTALL)
PLACE = "trace.tokenizer"


class Tokenizer(Protocol):
    """Deterministic; the ids of a text do not depend on anything but the text."""

    name: str

    def encode(self, text: str) -> list[int]:
        """Token ids, each at least 0, without special tokens."""
        ...


class WordTokenizer:
    """A stand-in for a trained tokenizer, about as fine: English prose gives 4 to 5 characters a
    token. Letters go in pieces of up to 6 with the space before them, digits in threes,
    punctuation in twos. A token's id is the first 48 bits of its BLAKE2b hash, so that ids agree
    over files and runs. Lengths are estimates; which texts are equal is exact.
    """

    name = "words"

    def __init__(self) -> None:
        self._id_of: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return [self._id(piece) for piece in PIECE.findall(text)]

    def _id(self, piece: str) -> int:
        found = self._id_of.get(piece)
        if found is None:
            digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=6).digest()
            found = self._id_of[piece] = int.from_bytes(digest, "big")
        return found


class NamedTokenizer:
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self._inner = inner

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)


def make_tokenizer(name: str) -> Tokenizer:
    """`words`, a tokenizer.json file, or a model name to be fetched; UserError where it fails."""
    if name == WordTokenizer.name:
        return WordTokenizer()
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            PLACE, f"{name!r} needs the package tokenizers (pip install hybridsim[tokenizers])"
        ) from None
    try:
        if Path(name).is_file():
            return NamedTokenizer(name, tokenizers.Tokenizer.from_file(name))
        return NamedTokenizer(name, tokenizers.Tokenizer.from_pretrained(name))
    except Exception as error:  # the library raises bare Exception for bad files and no network
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UserError(
            PLACE,
            f"{name!r} cannot be loaded ({reason}); allowed: words, a tokenizer.json file, or the "
            "name of a model that can be fetched",
        ) from None
