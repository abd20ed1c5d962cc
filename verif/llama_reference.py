"""Forward pass of the default model against llama.cpp with the same weights.

``python -m verif.llama_reference`` prints the differences as JSON. It needs the package
``xllamacpp`` (llama.cpp as a wheel), which is no dependency of the project.
"""

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from golden.llm import gguf_file, weights
from golden.llm.llama import FullCache, Llama
from golden.llm.tokenizer import Tokenizer
from golden.llm.trace import EMBEDDED

__all__ = ["TEXT", "compare", "log_probabilities", "negative_log_likelihood"]

TEXT = EMBEDDED.parent / "us_constitution.txt"


def log_probabilities(model: Llama, tokens: list[int], prompt: int) -> np.ndarray:
    """Natural logarithms of the next token's probabilities, float64, shape (tokens, vocabulary).

    The first ``prompt`` tokens are prefilled, the others decoded one by one.
    """
    cache = FullCache(model.config)
    hidden = list(model.prefill(tokens[:prompt], cache))
    for position in range(prompt, len(tokens)):
        hidden.append(model.forward([tokens[position]], position, cache))
    return _normalised(np.concatenate([model.logits(part) for part in hidden]))


def negative_log_likelihood(logs: np.ndarray, tokens: list[int]) -> float:
    """Mean over all tokens but the first."""
    return float(-logs[np.arange(len(tokens) - 1), tokens[1:]].mean())


def compare(tokens: int = 512, prompt: int = 448, stride: int = 31) -> dict[str, Any]:
    """Differences of the log-probabilities at every ``stride``-th position of a text.

    Once with llama.cpp on an fp32 copy of the weights, where only the order of the additions
    differs, and once on the quantised file itself, where llama.cpp also rounds the activations to
    8 bits.
    """
    path = weights.default_weights()
    loaded = gguf_file.read(path)
    ids = Tokenizer(loaded.metadata).encode(TEXT.read_text())[:tokens]
    logs = log_probabilities(Llama(loaded.config, loaded.weights), ids, prompt)
    places = range(stride - 1, tokens, stride)
    with tempfile.TemporaryDirectory() as folder:
        copy = _write_fp32(path, Path(folder) / "fp32.gguf")
        exact = _llama_cpp(copy, ids, places)
    quantised = _llama_cpp(path, ids, places)
    ours = logs[list(places)]
    return {
        "tokens": tokens,
        "positions": len(places),
        "nll": negative_log_likelihood(logs, ids),
        "fp32": _differences(exact, ours),
        "quantised": _differences(quantised, ours),
    }


def _normalised(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _differences(reference: np.ndarray, ours: np.ndarray) -> dict[str, float]:
    difference = reference - ours
    return {
        "max": float(np.abs(difference).max()),
        "rms": float(np.sqrt((difference**2).mean())),
        "mean_kl": float((np.exp(reference) * difference).sum(axis=-1).mean()),
        "top1_agreement": float((reference.argmax(-1) == ours.argmax(-1)).mean()),
    }


def _llama_cpp(path: Path, tokens: list[int], places: range) -> np.ndarray:
    package = importlib.import_module("xllamacpp")
    parameters = package.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 2 * len(tokens)
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.warmup = False
    parameters.cache_type_k = parameters.cache_type_v = package.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = package.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = package.Server(parameters)
    rows = []
    for place in places:
        request = {"prompt": tokens[: place + 1], "n_predict": 1, "temperature": 0.0}
        # As many log-probabilities as the largest vocabulary has; the server gives what it has.
        reply = server.handle_completions(request | {"logprobs": 1 << 20})
        found = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        row = np.full(len(found), np.nan)
        row[[entry["id"] for entry in found]] = [entry["logprob"] for entry in found]
        rows.append(row)
    return _normalised(np.array(rows))


def _write_fp32(source: Path, target: Path) -> Path:
    gguf = importlib.import_module("gguf")
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    own = ("general.architecture", "general.file_type", "general.quantization_version")
    for key, field in reader.fields.items():
        if key in own or key.startswith("GGUF."):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.array(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


if __name__ == "__main__":
    print(json.dumps(compare(), indent=2))
