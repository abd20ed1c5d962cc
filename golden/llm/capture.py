"""Capture of a :class:`golden.llm.trace.Trace` from a model."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import attention
from golden.llm.llama import Config, FullCache, Llama
from golden.llm.trace import Trace
from golden.numerics import accumulate

__all__ = ["attention_weights", "capture", "column_scores", "default_windows"]

Bits = NDArray[np.uint16]
#: Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
Rows = Callable[[int], None]
# Products held at once, 64 MB of fp32.
_BLOCK = 1 << 24


def default_windows(prompt: int) -> list[int]:
    """Recent-bank capacities to keep scores for: all of a short prompt, else powers of two."""
    if prompt <= 512:
        return list(range(1, prompt + 1))
    return [1 << exponent for exponent in range((prompt - 1).bit_length())] + [prompt]


def _fp16(values: NDArray[np.float32]) -> Bits:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.uint16)


class _Recorder:
    """Attention hook that passes through and keeps Q, K and V of the chosen layers."""

    def __init__(self, cache: FullCache, layers: Sequence[int]):
        self._cache = cache
        self._parts: dict[int, list] = {layer: [] for layer in layers}

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        if layer in self._parts:
            self._parts[layer].append((_fp16(q), _fp16(k), _fp16(v)))
        return self._cache(layer, q, k, v)

    def joined(self, layer: int) -> tuple[Bits, Bits, Bits]:
        """Q, K and V over all tokens, shape (heads, tokens, head_dim)."""
        q, k, v = (np.concatenate(parts, 1) for parts in zip(*self._parts[layer], strict=True))
        return q, k, v


def _check(config: Config, tokens: Sequence[int], prompt: int, steps: int, greedy: bool) -> None:
    for name, value in (("Prompt", prompt), ("Steps", steps)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value!r}")
    if prompt + steps > config.context:
        raise ValueError(
            f"Prompt + steps must be at most {config.context}, the model's context, "
            f"not {prompt + steps}"
        )
    needed = prompt if greedy else prompt + steps
    if len(tokens) < needed:
        raise ValueError(
            f"Text must have at least {needed} tokens for this prompt and these steps, "
            f"not {len(tokens)}; give a longer one"
        )


def _numbers(name: str, numbers: Sequence[int], low: int, high: int) -> NDArray[np.int32]:
    inside = all(low <= number <= high for number in numbers)
    if not numbers or not inside or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{name} must be different numbers from {low} to {high}, not {list(numbers)!r}"
        )
    return np.array(sorted(numbers), dtype=np.int32)


def attention_weights(q: Bits, k: Bits, first: int) -> Iterator[Bits]:
    """Causal attention weights in the hardware's arithmetic, some rows at a time.

    Parameters
    ----------
    q : ndarray of uint16, shape (query, rows, head_dim)
        fp16 bit patterns; row r belongs to token ``first + r``.
    k : ndarray of uint16, shape (tokens, head_dim)
        fp16 bit patterns of the keys.
    first : int
        Token of the first row.

    Yields
    ------
    ndarray of uint16, shape (query, some rows, tokens)
        +0 beyond the row's own token.
    """
    queries, rows, head_dim = q.shape
    half_q, half_k = q.view(np.float16), k.view(np.float16)
    some = max(1, _BLOCK // (queries * len(k) * head_dim))
    for start in range(0, rows, some):
        block = half_q[:, start : start + some]
        own = first + start + np.arange(block.shape[1])
        last = own[-1] + 1
        seen = np.arange(last) <= own[:, np.newaxis]
        p, _ = attention.softmax(attention.scores(block, half_k[:last]), head_dim, seen)
        yield np.pad(p.view(np.uint16), ((0, 0), (0, 0), (0, len(k) - last)))


def column_scores(q: Bits, k: Bits, windows: NDArray[np.int32], report: Rows | None = None) -> Bits:
    """Accumulate importance scores at the end of a prompt, for several recent-bank capacities.

    Parameters
    ----------
    q : ndarray of uint16, shape (query, prompt, head_dim)
        Queries of one KV head's group.
    k : ndarray of uint16, shape (prompt, head_dim)
        Keys.
    windows : ndarray of int32, ascending
        The capacities.
    report : callable, optional
        Called with the number of rows that are done.

    Returns
    -------
    ndarray of uint16, shape (windows, prompt)
        As :attr:`golden.llm.trace.Trace.scores`.
    """
    prompt = len(k)
    scores = np.zeros((len(windows), prompt), np.uint16)
    running = np.zeros(prompt, np.uint16)
    done = 0
    for block in attention_weights(q, k, 0):
        for row in block.swapaxes(0, 1):
            for p in row:
                running, _ = accumulate(running, p)
            done += 1
            # A token's window of w rows ends in row `token + w - 1`.
            token = done - windows
            ended = np.flatnonzero(token >= 0)
            scores[ended, token[ended]] = running[token[ended]]
        if report:
            report(done)
    unfinished = np.arange(prompt) + windows[:, np.newaxis] > prompt
    return np.where(unfinished, running, scores)


def capture(
    model: Llama,
    tokens: Sequence[int],
    *,
    prompt: int,
    steps: int,
    layers: Sequence[int],
    kv_heads: Sequence[int],
    windows: Sequence[int] | None = None,
    greedy: bool = False,
    about: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Run a model over a prompt and decode steps with the full cache, and keep what a trace keeps.

    The model runs in fp32; Q, K and V are rounded to fp16, and the trace's P comes from these
    rounded values in the bit-exact arithmetic of the hardware.

    Parameters
    ----------
    model : Llama
        The model to run.
    tokens : sequence of int
        Ids of the text, the prompt first.
    prompt, steps : int, at least 1
        How many tokens are the prompt, and how many are decoded after it.
    layers, kv_heads : sequence of int
        Which ones to keep.
    windows : sequence of int, optional
        Recent-bank capacities to keep prompt scores for; see :func:`default_windows`.
    greedy : bool
        Decode the most likely token after each step; else the tokens that follow in the text.
    about : dict, optional
        Where model and text come from.
    progress : callable, optional
        Called as the work goes on.

    Raises
    ------
    ValueError
        If a number is out of range or the text is too short.
    """
    config = model.config
    _check(config, tokens, prompt, steps, greedy)
    chosen = _numbers("Layers", layers, 0, config.layers - 1)
    heads = _numbers("Heads", kv_heads, 0, config.kv_heads - 1)
    capacities = _numbers("Windows", windows or default_windows(prompt), 1, prompt)
    report = progress or (lambda what, done, total: None)

    recorder = _Recorder(FullCache(config), chosen.tolist())
    ids = list(tokens[:prompt] if greedy else tokens[: prompt + steps])
    done, hidden = 0, np.empty((0, config.width), np.float32)
    for hidden in model.prefill(ids[:prompt], recorder):
        done += len(hidden)
        report("prefill", done, prompt)
    for step in range(steps):
        if greedy:
            ids.append(int(model.logits(hidden[-1:]).argmax()))
        hidden = model.forward([ids[prompt + step]], prompt + step, recorder)
        report("decode", step + 1, steps)

    def weigh(q: Bits, k: Bits, name: str) -> tuple[Bits, Bits]:
        scores = column_scores(
            q[:, :prompt], k[:prompt], capacities, lambda row: report(name, row, prompt)
        )
        return np.concatenate(list(attention_weights(q[:, prompt:], k, prompt)), axis=1), scores

    parts: dict[str, list] = {name: [] for name in ("q", "k", "v", "p", "scores")}
    for layer in chosen.tolist():
        q, k, v = recorder.joined(layer)
        q = q.reshape(config.kv_heads, config.group, *q.shape[1:])[heads]
        k, v = k[heads], v[heads]
        pairs = [
            weigh(q[i], k[i], f"attention of layer {layer}, KV head {head}")
            for i, head in enumerate(heads.tolist())
        ]
        parts["q"].append(q[:, :, prompt:])
        parts["k"].append(k)
        parts["v"].append(v)
        parts["p"].append(np.stack([p for p, _ in pairs]))
        parts["scores"].append(np.stack([scores for _, scores in pairs]))
    return Trace(
        layers=chosen,
        kv_heads=heads,
        tokens=np.array(ids, dtype=np.int32),
        windows=capacities,
        about=dict(about or {}),
        **{name: np.stack(arrays) for name, arrays in parts.items()},
    )
