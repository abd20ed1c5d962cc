"""Reader of Llama-style GGUF files: configuration, weights in fp32, tokenizer metadata."""

import dataclasses
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.llm.llama import Config, weight_shapes

__all__ = ["GgufError", "GgufModel", "read"]

#: Metadata that changes the forward pass, with the values that leave it as it is.
_NEUTRAL: dict[str, tuple] = {
    "llama.expert_count": (0,),
    "llama.rope.scaling.type": ("none",),
    "llama.rope.scaling.factor": (1.0, 0.0),
    "llama.rope.scale_linear": (1.0, 0.0),
    "llama.attention.causal": (True,),
    "llama.attention.scale": (0.0,),
    "llama.attention.clamp_kqv": (0.0,),
    "llama.attn_logit_softcapping": (0.0,),
    "llama.final_logit_softcapping": (0.0,),
    "llama.logit_scale": (1.0, 0.0),
    "llama.embedding_scale": (1.0, 0.0),
    "llama.residual_scale": (1.0, 0.0),
    "llama.use_parallel_residual": (False,),
}


class GgufError(ValueError):
    """A file that cannot be run; the message names the file, the reason and the remedy."""


@dataclasses.dataclass(frozen=True)
class GgufModel:
    """What a GGUF file holds.

    ``weights`` maps GGUF tensor names to fp32 arrays, a matrix in shape (outputs, inputs);
    ``metadata`` maps every key of the file to a Python value.
    """

    config: Config
    weights: dict[str, NDArray[np.float32]]
    metadata: dict[str, Any]


def read(path: str | os.PathLike[str]) -> GgufModel:
    """Read configuration and weights of a Llama-style model.

    Parameters
    ----------
    path : path-like
        GGUF version 2 or 3 with ``general.architecture`` "llama" (Llama, SmolLM, Mistral), in any
        quantisation that the ``gguf`` package dequantises.

    Raises
    ------
    GgufError
        If the file is no GGUF, truncated, of another architecture, lacks metadata or a tensor, or
        asks for what the forward pass does not do.
    OSError
        If the file cannot be read.
    ImportError
        If the ``gguf`` package is not installed.
    """
    path = Path(path)
    reader = _open(path)
    try:
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (IndexError, ValueError) as error:
        raise _damaged(path, error) from error
    config = _config(path, metadata)
    return GgufModel(config, _weights(path, reader.tensors, config), metadata)


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ImportError(
            "Reading a weights file needs the package gguf: pip install 'kvsmith[model]'"
        ) from error


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise GgufError(
            f"{path} is not a GGUF file: it must begin with b'GGUF', not {magic!r}; "
            "convert the model with llama.cpp first"
        )
    gguf = _package()
    try:
        return gguf.GGUFReader(path)
    except (IndexError, KeyError, ValueError, OverflowError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> GgufError:
    size = path.stat().st_size
    return GgufError(f"{path} is truncated or damaged ({size} bytes: {error}); get it again")


def _config(path: Path, metadata: Mapping[str, Any]) -> Config:
    def value(key: str, kind: type, default: Any = None) -> Any:
        found = metadata.get(key, default)
        if found is None:
            raise GgufError(f"{path} lacks the metadata {key!r}: it is no complete Llama file")
        if not isinstance(found, (int, kind)) or isinstance(found, bool) or not found > 0:
            text = "an integer" if kind is int else "a number"
            raise GgufError(f"{path}: {key} must be {text} above 0, not {found!r}")
        return kind(found)

    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise GgufError(
            f"{path}: general.architecture must be 'llama' (Llama, SmolLM, Mistral), "
            f"not {architecture!r}"
        )
    for key, neutral in _NEUTRAL.items():
        if key in metadata and metadata[key] not in neutral:
            raise GgufError(
                f"{path}: {key} must be {neutral[0]!r} or absent, not {metadata[key]!r}: "
                "this forward pass does not do it; use another model"
            )

    width = value("llama.embedding_length", int)
    heads = value("llama.attention.head_count", int)
    kv_heads = value("llama.attention.head_count_kv", int, heads)
    head_dim = value("llama.attention.key_length", int, width // heads)
    if heads % kv_heads:
        raise GgufError(
            f"{path}: llama.attention.head_count_kv must divide the head count {heads}, "
            f"not {kv_heads!r}"
        )
    if head_dim % 2:
        raise GgufError(f"{path}: the head dimension must be even, not {head_dim!r}")
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if value(key, int, head_dim) != head_dim:
            raise GgufError(
                f"{path}: {key} must be the head dimension {head_dim}, not {metadata[key]!r}: "
                "this forward pass does not do it; use another model"
            )
    context = value("llama.context_length", int)
    tokens = metadata.get("tokenizer.ggml.tokens")
    return Config(
        layers=value("llama.block_count", int),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        width=width,
        hidden=value("llama.feed_forward_length", int),
        vocabulary=value("llama.vocab_size", int, len(tokens) if tokens else None),
        # Within its window, sliding-window attention equals full attention.
        context=min(context, value("llama.attention.sliding_window", int, context)),
        rope_base=value("llama.rope.freq_base", float, 10000.0),
        epsilon=value("llama.attention.layer_norm_rms_epsilon", float),
    )


def _weights(path: Path, tensors: list[Any], config: Config) -> dict[str, NDArray[np.float32]]:
    needed, optional = weight_shapes(config)
    shapes = needed | optional
    found = {tensor.name: tensor for tensor in tensors}
    for name in needed:
        if name not in found:
            raise GgufError(f"{path} lacks the tensor {name!r}: it is no complete Llama file")
    weights = {}
    for name, tensor in found.items():
        if name not in shapes:
            raise GgufError(
                f"{path} has the tensor {name!r}, which this forward pass does not use "
                "(biases, experts and adapters are not supported); use another model"
            )
        shape = tuple(int(extent) for extent in reversed(tensor.shape))
        if shape != shapes[name]:
            raise GgufError(f"{path}: tensor {name!r} must have shape {shapes[name]}, not {shape}")
        weights[name] = _dequantise(path, tensor)
    return weights


def _dequantise(path: Path, tensor: Any) -> NDArray[np.float32]:
    try:
        values = _package().dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise GgufError(
            f"{path}: tensor {tensor.name!r} is quantised as {tensor.tensor_type.name}, which the "
            "package gguf cannot read; use another quantisation, for instance Q8_0"
        ) from error
    values = np.array(values, dtype=np.float32)
    if not np.isfinite(values).all():
        raise GgufError(f"{path}: tensor {tensor.name!r} holds infinity or NaN; get it again")
    return values
