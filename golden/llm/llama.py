"""Forward pass of Llama-style models in fp32, with the attention left to a hook."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Attend", "Config", "FullCache", "Llama", "weight_shapes"]

Array = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and constants of a model.

    ``heads`` query heads share ``kv_heads`` KV heads: query head h uses KV head
    ``h // group``. ``hidden`` is the width inside the feed-forward block.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    hidden: int
    vocabulary: int
    context: int
    rope_base: float
    epsilon: float

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads


def weight_shapes(config: Config) -> tuple[dict[str, tuple], dict[str, tuple]]:
    """Names and shapes of the tensors a model must have, and of those it may have."""
    width, hidden = config.width, config.hidden
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    needed: dict[str, tuple] = {
        "token_embd.weight": (config.vocabulary, width),
        "output_norm.weight": (width,),
    }
    for layer in range(config.layers):
        block = {
            "attn_norm": (width,),
            "attn_q": (queries, width),
            "attn_k": (keys, width),
            "attn_v": (keys, width),
            "attn_output": (width, queries),
            "ffn_norm": (width,),
            "ffn_gate": (hidden, width),
            "ffn_up": (hidden, width),
            "ffn_down": (width, hidden),
        }
        needed |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    optional: dict[str, tuple] = {
        "output.weight": (config.vocabulary, width),
        "rope_freqs.weight": (config.head_dim // 2,),
    }
    return needed, optional


class Attend(Protocol):
    """Attention of one layer, called once per layer and forward pass.

    The forward pass keeps no K and V: whatever is attended to later, the hook keeps. So a cache
    policy is a hook, and may differ by layer and KV head.
    """

    def __call__(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """Attend to what the policy keeps; return the outputs of the new tokens, shape of ``q``.

        Parameters
        ----------
        layer : int
            Number of the layer.
        q : ndarray, shape (heads, tokens, head_dim)
            Queries of the new tokens after rotary embedding, not yet scaled.
        k, v : ndarray, shape (kv_heads, tokens, head_dim)
            Keys after rotary embedding, and values, of the same tokens.
        """
        ...


class FullCache:
    """The hook that keeps everything: dense causal attention, any number of tokens per call.

    ``keys(layer)`` and ``values(layer)`` give what is stored, shape (kv_heads, length, head_dim),
    from which another policy can start after the prefill.
    """

    def __init__(self, config: Config):
        shape = (config.kv_heads, 0, config.head_dim)
        self._stores = [
            (np.empty(shape, np.float32), np.empty(shape, np.float32)) for _ in range(config.layers)
        ]
        self._lengths = [0] * config.layers

    def keys(self, layer: int) -> Array:
        """Keys of all tokens so far."""
        return self._stores[layer][0][:, : self._lengths[layer]]

    def values(self, layer: int) -> Array:
        """Values of all tokens so far."""
        return self._stores[layer][1][:, : self._lengths[layer]]

    def _append(self, layer: int, k: Array, v: Array) -> None:
        start = self._lengths[layer]
        end = start + k.shape[1]
        if end > self._stores[layer][0].shape[1]:
            spare = ((0, 0), (0, 2 * end - start), (0, 0))
            self._stores[layer] = (
                np.pad(self.keys(layer), spare),
                np.pad(self.values(layer), spare),
            )
        for store, new in zip(self._stores[layer], (k, v), strict=True):
            store[:, start:end] = new
        self._lengths[layer] = end

    def observe(self, layer: int, weights: Array) -> None:
        """See the attention weights of the new tokens; here nothing, a subclass may keep some.

        Parameters
        ----------
        layer : int
            Number of the layer.
        weights : ndarray, shape (kv_heads, group, tokens, length)
            Not to be changed.
        """

    def __call__(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """Dense causal attention over all tokens so far; see :class:`Attend`."""
        self._append(layer, k, v)
        keys, values = self.keys(layer), self.values(layer)
        kv_heads, length, head_dim = keys.shape
        tokens = q.shape[1]
        grouped = q.reshape(kv_heads, -1, head_dim)
        scores = grouped @ keys.transpose(0, 2, 1) * np.float32(head_dim**-0.5)
        if tokens > 1:
            ahead = np.triu(np.ones((tokens, length), bool), length - tokens + 1)
            rows = scores.reshape(-1, tokens, length)
            rows[:, ahead] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        self.observe(layer, scores.reshape(kv_heads, -1, tokens, length))
        return (scores @ values).reshape(q.shape)


class _Layer:
    """Weights of one layer; what shares an input is one matrix."""

    def __init__(self, weights: Mapping[str, Array], layer: int):
        def block(*names: str) -> Array:
            return np.concatenate([weights[f"blk.{layer}.{name}.weight"] for name in names])

        self.attention_norm = block("attn_norm")
        self.qkv = block("attn_q", "attn_k", "attn_v")
        self.output = block("attn_output")
        self.feed_norm = block("ffn_norm")
        self.gate_up = block("ffn_gate", "ffn_up")
        self.down = block("ffn_down")


def _linear(x: Array, matrix: Array) -> Array:
    # A matrix-vector product streams the matrix once; NumPy's one-row matrix product is slower.
    return (matrix @ x[0])[np.newaxis] if len(x) == 1 else x @ matrix.T


def _silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x / (np.float32(1) + np.exp(-x))


class Llama:
    """A decoder: RMSNorm, rotary embedding, grouped-query attention, SwiGLU; fp32 throughout.

    Rotary embedding turns interleaved pairs (elements 2i and 2i + 1), the layout that GGUF files
    have Q and K permuted for. Without ``output.weight`` the embedding is also the output matrix.

    Parameters
    ----------
    config : Config
    weights : mapping of str to ndarray
        Tensors as :func:`weight_shapes` names them.
    """

    def __init__(self, config: Config, weights: Mapping[str, Array]):
        self.config = config
        self._embedding = weights["token_embd.weight"]
        self._output = weights.get("output.weight", self._embedding)
        self._output_norm = weights["output_norm.weight"]
        self._layers = [_Layer(weights, layer) for layer in range(config.layers)]
        frequencies = config.rope_base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
        if "rope_freqs.weight" in weights:
            frequencies = frequencies / weights["rope_freqs.weight"]
        self._frequencies = frequencies

    def _norm(self, x: Array, weight: Array) -> Any:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + np.float32(self.config.epsilon)) * weight

    def _rotate(self, x: Array, cos: Array, sin: Array) -> Any:
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def _heads(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.config.head_dim).swapaxes(0, 1)

    def forward(self, tokens: Sequence[int], position: int, attend: Attend) -> Array:
        """Hidden state after each of ``tokens``, normalised, as :meth:`logits` takes it.

        Parameters
        ----------
        tokens : sequence of int
            Token ids at positions ``position``, ``position + 1``, ...: many for a prefill, one
            for a decode step.
        position : int
            Tokens that ``attend`` has seen before.
        attend : Attend
            Attention and cache.

        Returns
        -------
        ndarray of float32, shape (tokens, width)

        Raises
        ------
        ValueError
            If a token id or a position is out of range.
        """
        config = self.config
        ids = np.asarray(tokens, dtype=np.int64)
        if len(ids) == 0 or ids.min() < 0 or ids.max() >= config.vocabulary:
            raise ValueError(
                f"Tokens must be one or more ids from 0 to {config.vocabulary - 1}, not {tokens!r}"
            )
        if position < 0 or position + len(ids) > config.context:
            raise ValueError(
                f"Positions must be from 0 to {config.context - 1}, the model's context, "
                f"not {position} to {position + len(ids) - 1}"
            )
        angles = (position + np.arange(len(ids)))[:, np.newaxis] * self._frequencies
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        queries = config.heads * config.head_dim
        keys = config.kv_heads * config.head_dim

        x = self._embedding[ids]
        for index, layer in enumerate(self._layers):
            qkv = _linear(self._norm(x, layer.attention_norm), layer.qkv)
            q, k, v = np.split(qkv, (queries, queries + keys), axis=1)
            q = self._rotate(self._heads(q), cos, sin)
            k = self._rotate(self._heads(k), cos, sin)
            attended = attend(index, q, k, self._heads(v))
            x = x + _linear(attended.swapaxes(0, 1).reshape(len(ids), -1), layer.output)
            gate, up = np.split(_linear(self._norm(x, layer.feed_norm), layer.gate_up), 2, axis=1)
            x = x + _linear(_silu(gate) * up, layer.down)
        return self._norm(x, self._output_norm)

    def prefill(
        self, tokens: Sequence[int], attend: Attend, *, position: int = 0, rows: int = 256
    ) -> Iterator[Array]:
        """Hidden states of a prompt, ``rows`` tokens at a time, which bounds the memory."""
        for start in range(0, len(tokens), rows):
            yield self.forward(tokens[start : start + rows], position + start, attend)

    def logits(self, hidden: Array) -> Array:
        """Logits, shape (tokens, vocabulary), of what :meth:`forward` returned."""
        return _linear(hidden, self._output)
