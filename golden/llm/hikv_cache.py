"""A cache policy: HiKV in every layer and KV head of a model."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.hikv import add_rows, split_budget
from golden.hikv_head import Heads, Step
from golden.llm.llama import Array, Config, FullCache
from golden.numerics import score_dtype
from golden.parameters import HikvParameters
from golden.traffic import ELEMENT, Traffic, context_bytes

__all__ = ["HikvCache", "uniform_capacities"]

#: Called with the layer, and one step of each of its KV heads.
Observer = Callable[[int, list[Step]], None]


def uniform_capacities(config: Config, cap_recent: int, cap_important: int) -> NDArray[np.int64]:
    """Give every KV head the same capacities, shape (layers, kv_heads, 2)."""
    return np.broadcast_to([cap_recent, cap_important], (config.layers, config.kv_heads, 2))


def _pairs(capacities: NDArray[np.integer], config: Config) -> NDArray[np.int64]:
    shape = (config.layers, config.kv_heads)
    if capacities.shape == shape:
        budgets = [split_budget(int(tokens)) for tokens in capacities.ravel()]
        capacities = np.array(budgets).reshape(*shape, 2)
    if capacities.shape != (*shape, 2):
        raise ValueError(
            f"Capacities must have shape {shape}, tokens per KV head, or {(*shape, 2)}, recent and"
            f" important ones, not {capacities.shape}"
        )
    return capacities.astype(np.int64)


def _half(values: Array) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def _swapped_bytes(
    capacities: NDArray[np.int64], score_format: str, resident: int | None
) -> NDArray[np.int64]:
    """Bytes that loading and saving contexts moves in each layer of one step."""
    layers, kv_heads, _ = capacities.shape
    score_bytes = np.dtype(score_dtype(score_format)).itemsize
    sizes = np.array(
        [context_bytes(*pair, score_bytes=score_bytes) for pair in capacities.reshape(-1, 2)]
    )
    if resident is None or resident >= len(sizes):
        return np.zeros(layers, np.int64)
    sizes[: resident - 1] = 0
    return 2 * sizes.reshape(layers, kv_heads).sum(axis=1)


class _Prefill(FullCache):
    """Dense attention over the prompt that sums up the scores of its tokens."""

    def __init__(self, config: Config, cap_recent: NDArray[np.int64], score_format: str):
        super().__init__(config)
        self._cap_recent = cap_recent
        self._score_format = score_format
        shape = (config.layers, config.kv_heads, config.context)
        self.scores = np.zeros(shape, score_dtype(score_format))

    def observe(self, layer: int, weights: Array) -> None:
        first = weights.shape[-1] - weights.shape[-2]
        bits = _half(weights).view(np.uint16)
        add_rows(self.scores[layer], bits, first, self._cap_recent[layer], self._score_format)


class HikvCache:
    """The hook that decodes with HiKV; see :class:`golden.llm.llama.Attend`.

    It begins with a prompt: dense causal attention in fp32, any number of tokens per call, whose
    weights, rounded to fp16, make the tokens' scores. After :meth:`start_decoding` every token is
    one decode step with the bit-exact arithmetic of :class:`golden.hikv_head.Heads`, Q, K and V
    rounded to fp16; several tokens in one call are as many steps.

    Parameters
    ----------
    config : Config
        Of the model.
    parameters : HikvParameters
        Budgets and options; ``head_dim`` must be the model's.
    capacities : ndarray of int, optional
        Shape (layers, kv_heads, 2): recent and important ones; or (layers, kv_heads): tokens kept,
        see :func:`golden.hikv.split_budget`. Unset: the parameters' for every head.
    burst : int
        Bytes of the smallest transfer, for the traffic; 2 is exact.
    resident : int, optional
        Contexts that the scoreboard holds at once, at least 1; unset: all. If there are more, the
        first ``resident - 1`` stay and each of the others is loaded and saved in every step.
    observer : callable, optional
        Sees every decode step of every layer.

    Attributes
    ----------
    capacities : ndarray of int, shape (layers, kv_heads, 2)
    traffic : Traffic
        Of all heads and decode steps so far.
    flagged : ndarray of bool, shape (layers, kv_heads)
        Sticky: a decode step saw a bad number.

    Raises
    ------
    ValueError
        If ``head_dim`` or the shape of the capacities does not fit the model, or ``resident`` is
        below 1.
    """

    def __init__(
        self,
        config: Config,
        parameters: HikvParameters,
        capacities: NDArray[np.integer] | None = None,
        *,
        burst: int = ELEMENT,
        resident: int | None = None,
        observer: Observer | None = None,
    ):
        if parameters.head_dim != config.head_dim:
            raise ValueError(
                f"Head dim must be the model's, {config.head_dim}, not {parameters.head_dim}"
            )
        if resident is not None and resident < 1:
            raise ValueError(f"Resident must be at least 1, not {resident}")
        if capacities is None:
            capacities = uniform_capacities(
                config, parameters.cap_recent, parameters.cap_important
            )
        self.capacities = _pairs(capacities, config)
        self.parameters = parameters
        self.traffic = Traffic()
        self.flagged = np.zeros((config.layers, config.kv_heads), bool)
        self._config = config
        self._observer = observer
        self._swapped = _swapped_bytes(self.capacities, parameters.score_format, resident)
        self._heads = [Heads(parameters, pairs.tolist(), burst) for pairs in self.capacities]
        self._prefill: _Prefill | None = None
        self.start_prompt()

    def start_prompt(self) -> None:
        """Begin a turn: what comes next is the whole history, from position 0 on."""
        self._prefill = _Prefill(
            self._config, self.capacities[:, :, 0], self.parameters.score_format
        )

    def start_decoding(self) -> None:
        """End the prompt: fill the banks of every head, forget the rest.

        Raises
        ------
        RuntimeError
            If decoding has begun already.
        """
        prefill = self._prefill
        if prefill is None:
            raise RuntimeError("Decoding has begun already; start_prompt() begins another turn")
        for layer, heads in enumerate(self._heads):
            k, v = _half(prefill.keys(layer)), _half(prefill.values(layer))
            heads.initialise(list(prefill.scores[layer, :, : k.shape[1]]), k, v)
        self._prefill = None

    def contexts(self, layer: int) -> Sequence[Any]:
        """Banks of a layer's KV heads, :class:`golden.hikv.Context` each."""
        return self._heads[layer].contexts

    def __call__(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """Attend densely in the prompt, to what HiKV keeps and selects after it."""
        if self._prefill is not None:
            return self._prefill(layer, q, k, v)
        kv_heads, tokens, head_dim = k.shape
        q_half = _half(q).reshape(kv_heads, -1, tokens, head_dim)
        k_half, v_half = _half(k), _half(v)
        outputs = [
            self._step(layer, q_half[:, :, token], k_half[:, token], v_half[:, token])
            for token in range(tokens)
        ]
        return np.stack(outputs, axis=2).reshape(q.shape)

    def _step(self, layer: int, q: Any, k: Any, v: Any) -> Array:
        steps = self._heads[layer].step(q, k, v)
        self.traffic += Traffic(metadata=int(self._swapped[layer]))
        self.traffic = sum((step.traffic for step in steps), self.traffic)
        self.flagged[layer] |= [step.flagged for step in steps]
        if self._observer is not None:
            self._observer(layer, steps)
        return np.stack([step.output for step in steps])
