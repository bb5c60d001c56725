"""A transform that encodes texts as token ids, several texts at a time."""

from __future__ import annotations

import array
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import check_callable, check_integer, kind
from gristmill._base.object_repr import call_text
from gristmill.transforms._decoding import Keyed
from gristmill.transforms._kinds import BlockMap

__all__ = ["Tokenize"]

Ids: TypeAlias = npt.NDArray[np.integer[Any]]
PATHS = (str, os.PathLike)
LIBRARIES = ("tokenizers", "transformers", "tiktoken", "sentencepiece", "gigatoken")
# Encodes texts: returns the token ids of each, as an array or a list of ints.
Encode: TypeAlias = Callable[[list[str]], Iterable[Any]]


class Tokenize(Keyed, BlockMap):
    """Encode texts as token ids.

    Args:
        tokenizer: An object of ``tokenizers``, ``transformers``, ``tiktoken``,
            ``sentencepiece`` or ``gigatoken``; or the path of a ``tokenizer.json``,
            which each process opens with `library`; or a function that returns the
            token ids of one text.
        key: The field of a dict that contains the text; other fields stay unchanged.
            None encodes the element itself.
        output_key: The field of the result.  It replaces the field `key`, or is the
            only field of a new dict without `key`.  None keeps the name `key`, or
            returns the array itself.
        prefix: Token ids to put before each text.
        suffix: Token ids to put after each text, such as the one of ``<eos>``.
        dtype: The integer dtype of the results.
        block_size: The maximum number of texts in a call of the tokenizer.
        library: ``"tokenizers"`` or ``"gigatoken"``; only for a path.  None stands for
            ``"tokenizers"``.

    A result has shape ``(n,)``.  The tokenizer's own truncation, padding and template
    of special tokens are not applied; pass such ids as `prefix` and `suffix`.  A text
    that spells a special token is encoded as the library does by default: ``tiktoken``
    and ``sentencepiece`` encode it as text, ``tokenizers`` and ``gigatoken`` as the
    token.

    An object of ``gigatoken`` cannot be pickled, so it works without workers only; with
    workers, pass the path of its file.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: `dtype` cannot contain all ids of the tokenizer, or an option does
            not apply.
        OSError: The file of the tokenizer cannot be read.

    Example:
        >>> step = Tokenize(lambda text: list(text.encode()), suffix=[0])
        >>> step.block_map(["ab", ""])
        [array([97, 98,  0], dtype=int32), array([0], dtype=int32)]
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.
    _verb = "encode"

    def __init__(
        self,
        tokenizer: Any,
        key: str | None = None,
        output_key: str | None = None,
        *,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        dtype: npt.DTypeLike = np.int32,
        block_size: int = 64,
        library: str | None = None,
    ) -> None:
        super().__init__(key)
        if output_key is not None and not isinstance(output_key, str):
            raise TypeError(
                f"output_key must be a str or None, got {kind(output_key)}."
            )
        self._output_key = key if output_key is None else output_key
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        if self._dtype.kind not in "iu":
            raise ValueError(f"dtype must be an integer dtype, got {self._dtype}.")
        self._prefix = self._extra_ids("prefix", prefix)
        self._suffix = self._extra_ids("suffix", suffix)
        check_integer("block_size", block_size)
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}.")
        self.block_size = block_size
        if isinstance(tokenizer, PATHS):
            # Absolute, because another process may have another working directory.
            tokenizer = os.path.abspath(os.fspath(tokenizer))
        self._source = (tokenizer, library)
        self._open()

    def block_map(self, elements: list[Any]) -> list[Any]:
        """Return the token ids of texts.

        Args:
            elements: The texts, or dicts that have them in the field `key`.

        Returns:
            The array of each text, or a dict that contains it in the output field.

        Raises:
            KeyError: The field `key` does not exist.
            TypeError: A text is not a str.
            ValueError: A dict already has a field `output_key`, or `dtype` cannot
                contain a token id.
        """
        texts = [self._text(element) for element in elements]
        encoded = map(self._to_array, self._encode(texts))
        output_key = self._output_key
        if output_key is None:
            return list(encoded)
        return [
            self._new_element(element, output_key, ids)
            for element, ids in zip(elements, encoded, strict=True)
        ]

    def __repr__(self) -> str:
        source, _ = self._source
        shown = os.fspath(source) if isinstance(source, PATHS) else kind(source)
        return call_text(self, shown, key=self._key, output_key=self._output_key)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_encode"]
        if _library_of(self._source[0]) == "gigatoken":
            raise TypeError(
                "tokenizer must be picklable for workers, got an object of gigatoken,"
                ' which is not. Pass the path of its tokenizer.json, and library="giga'
                'token".'
            )
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        tokenizer, library = self._source
        if isinstance(tokenizer, PATHS):
            tokenizer = _read_file(os.fspath(tokenizer), library or "tokenizers")
        elif library is not None:
            raise ValueError(
                f"library must be None unless tokenizer is a path, got {library!r} for"
                f" {kind(tokenizer)}."
            )
        self._encode, largest_id = _encoder_of(tokenizer)
        # A library returns only ids of its vocabulary.
        self._is_checked = largest_id is not None
        if largest_id is not None and self._dtype.itemsize < 4:
            largest = largest_id()
            if largest > np.iinfo(self._dtype).max:
                raise ValueError(
                    f"dtype must contain the token ids 0 to {largest} of the tokenizer,"
                    f" got {self._dtype}. Use a wider dtype."
                )

    def _text(self, element: Any) -> str:
        text = self._value(element)
        if not isinstance(text, str):
            raise self._type_error(text, "a str")
        return text

    def _new_element(self, element: Any, output_key: str, ids: Ids) -> dict[str, Any]:
        key = self._key
        if key is None:
            return {output_key: ids}
        if output_key == key:
            return {**element, key: ids}
        if output_key in element:
            raise ValueError(
                f"output_key must be a new field, got {output_key!r}, which the record"
                " already has."
            )
        rest = {name: value for name, value in element.items() if name != key}
        return {**rest, output_key: ids}

    def _to_array(self, ids: Any) -> Ids:
        if not self._is_checked:
            ids = self._checked(ids)
        parts = (self._prefix, ids, self._suffix)
        result: Ids = np.concatenate(parts, dtype=self._dtype, casting="unsafe")
        return result

    def _checked(self, ids: Any) -> Ids:
        """Return what a function returned as an array, if it is a list of ints."""
        found = np.asarray(ids)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise TypeError(
                f"{self!r} needs a list of ints from the tokenizer, got {kind(ids)} of"
                f" {found.dtype}{list(found.shape)}."
            )
        if found.size:
            self._check_range(int(found.min()), int(found.max()))
        return found

    def _check_range(self, low: int, high: int) -> None:
        limits = np.iinfo(self._dtype)
        for value in (low, high):
            if not limits.min <= value <= limits.max:
                raise ValueError(
                    f"dtype must contain all token ids, got {self._dtype} for {value}."
                    " Use a wider dtype."
                )

    def _extra_ids(self, name: str, ids: Any) -> Ids:
        if isinstance(ids, (str, bytes)) or not isinstance(ids, (Sequence, np.ndarray)):
            raise TypeError(f"{name} must be a list of token ids, got {kind(ids)}.")
        for value in ids:
            check_integer(f"{name} must have only token ids: an item", value)
        if len(ids):
            self._check_range(min(ids), max(ids))
        return np.array(ids, self._dtype)


def _library_of(tokenizer: Any) -> str:
    """Return the library of a tokenizer or of its base class, or an empty string."""
    for base in type(tokenizer).__mro__:
        library = base.__module__.partition(".")[0]
        if library in LIBRARIES:
            return library
    return ""


def _read_file(path: str, library: str) -> Any:
    if library == "tokenizers":
        import tokenizers

        with open(path, encoding="utf-8") as file:
            return tokenizers.Tokenizer.from_str(file.read())
    if library == "gigatoken":
        import gigatoken

        with open(path, encoding="utf-8") as file:
            return gigatoken.Tokenizer.from_json(file.read())
    raise ValueError(f"library must be 'tokenizers' or 'gigatoken', got {library!r}.")


def _encoder_of(tokenizer: Any) -> tuple[Encode, Callable[[], int] | None]:
    """Return the fastest function of a tokenizer, and one that returns its largest id.

    The second one is None for a user's function, whose ids are unknown.
    """
    library = _library_of(tokenizer)
    if library == "transformers":
        if not tokenizer.is_fast:
            return _transformers_encoder(tokenizer), lambda: _largest(tokenizer)
        # Its calls set the truncation and the padding of the backend.
        backend = tokenizer.backend_tokenizer
        return _tokenizers_encoder(backend, changes=True), lambda: _largest(tokenizer)
    if library == "tokenizers" and hasattr(tokenizer, "encode_batch_fast"):
        return _tokenizers_encoder(tokenizer), lambda: _largest(tokenizer)
    if library == "tiktoken":
        return _tiktoken_encoder(tokenizer), lambda: int(tokenizer.max_token_value)
    if library == "sentencepiece":
        return tokenizer.encode_as_ids, lambda: int(tokenizer.vocab_size()) - 1
    if library == "gigatoken" and hasattr(tokenizer, "encode_batch_list"):
        # Faster than encode_batch, which distributes the texts to threads.
        encode = tokenizer.encode
        return lambda texts: map(encode, texts), lambda: int(tokenizer.vocab_size) - 1
    check_callable(
        "tokenizer",
        tokenizer,
        " Pass a tokenizer, the path of a tokenizer.json, or a function.",
    )
    return lambda texts: map(tokenizer, texts), None


def _largest(tokenizer: Any) -> int:
    # Ids may have gaps, so that the number of tokens can be smaller.
    return max(tokenizer.get_vocab().values(), default=0)


def _tokenizers_encoder(tokenizer: Any, changes: bool = False) -> Encode:
    """Return a function that encodes texts without truncation and padding.

    With them, the result for a text would depend on the other texts.

    Args:
        tokenizer: A `tokenizers.Tokenizer`; it is not changed.
        changes: Whether other code may set its truncation and padding later.
    """
    if changes or tokenizer.truncation is not None or tokenizer.padding is not None:
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(texts: list[str]) -> list[array.array[int]]:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        # NumPy reads an array faster than a list.
        return [array.array("I", encoding.ids) for encoding in encodings]

    return encode


def _transformers_encoder(tokenizer: Any) -> Encode:
    def encode(texts: list[str]) -> list[list[int]]:
        encoded = tokenizer(
            texts, add_special_tokens=False, padding=False, truncation=False
        )
        found: list[list[int]] = encoded["input_ids"]
        return found

    return encode


def _tiktoken_encoder(tokenizer: Any) -> Encode:
    def encode(text: str) -> Ids:
        try:
            # Without an int object for each token.
            found: Ids = tokenizer.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:  # `encode_ordinary` replaces lone surrogates.
            return np.array(tokenizer.encode_ordinary(text), np.uint32)
        return found

    return lambda texts: map(encode, texts)
