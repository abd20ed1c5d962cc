"""Tokenizer of a GGUF file, from the file's own metadata."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Tokenizer"]

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: Value of ``tokenizer.ggml.pre`` -> patterns that cut the text, one after the other.
_PATTERNS = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
}


class Tokenizer:
    """Byte-level BPE of the GPT-2 kind.

    Text is raw: no token is put before it, and the names of control tokens in it are plain text.

    Parameters
    ----------
    metadata : mapping
        Metadata of the GGUF file.

    Raises
    ------
    ValueError
        If the file's tokenizer is of another kind, or incomplete.
    ImportError
        If the package ``tokenizers`` is not installed.
    """

    def __init__(self, metadata: Mapping[str, Any]):
        kind = metadata.get("tokenizer.ggml.model")
        if kind != "gpt2":
            raise ValueError(
                f"Tokenizer (tokenizer.ggml.model) must be 'gpt2' (byte-level BPE), not {kind!r}: "
                "use a model of the Llama-3 or SmolLM kind"
            )
        cut = metadata.get("tokenizer.ggml.pre")
        if cut not in _PATTERNS:
            known = ", ".join(_PATTERNS)
            raise ValueError(
                f"Pre-tokenizer (tokenizer.ggml.pre) must be one of {known}, not {cut!r}: "
                "use a model of the Llama-3 or SmolLM kind"
            )
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
            if not metadata.get(key):
                raise ValueError(f"Tokenizer metadata {key!r} is missing: get the file again")
        self._tokenizer = _build(metadata, _PATTERNS[cut])

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False)


def _build(metadata: Mapping[str, Any], patterns: tuple[str, ...]) -> Any:
    try:
        tokenizers = importlib.import_module("tokenizers")
        pre = importlib.import_module("tokenizers.pre_tokenizers")
        models = importlib.import_module("tokenizers.models")
        decoders = importlib.import_module("tokenizers.decoders")
    except ImportError as error:
        raise ImportError(
            "Reading text needs the package tokenizers: pip install 'kvsmith[model]'"
        ) from error
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        model = models.BPE(
            vocab=vocabulary,
            merges=merges,
            # Llama-3 takes a piece that is a token as a whole, whatever the merges say.
            ignore_merges=_LLAMA3 in patterns,
        )
    except Exception as error:  # the package raises Exception itself
        raise ValueError(f"Tokenizer merges do not fit its tokens ({error})") from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
        + [pre.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
