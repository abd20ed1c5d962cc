"""Replay of a decode trace by the HiKV selector: settings, and what golden says of each step."""

import itertools

import numpy as np

from golden.hikv import stage_two_budget
from golden.hikv_head import Head, Step
from golden.llm.trace import Trace
from golden.parameters import HikvParameters, HikvSelectorParameters

__all__ = ["GROUPING", "Run", "bounds", "replay"]

#: How the query heads of a group share a selection, unless all ways are replayed.
GROUPING = "union"

_RATIO_K, _RATIO_V = "2.5", "3.5"


def bounds(head_dim: int) -> dict[str, int]:
    """Budgets of stage two that are replayed, ``b_iik`` and ``b_iiv``."""
    return {
        "b_iik": stage_two_budget(head_dim, _RATIO_K),
        "b_iiv": stage_two_budget(head_dim, _RATIO_V),
    }


class Run:
    """One (layer, KV head) of a trace, decoded with a cache of fixed size.

    Parameters
    ----------
    trace : Trace
    parameters : HikvParameters
    place : (int, int)
        Layer and KV head, counted in the trace.

    Attributes
    ----------
    head : Head
        After the prompt; its steps change it.
    """

    def __init__(self, trace: Trace, parameters: HikvParameters, place: tuple[int, int]):
        self._trace, self._place = trace, place
        self._k, self._v = (x[place].view(np.float16) for x in (trace.k, trace.v))
        self.head = Head(parameters)
        scores = trace.initial_scores(parameters.cap_recent)[place]
        prompt = trace.prompt
        self.head.initialise(scores, self._k[:prompt], self._v[:prompt])

    def q(self, step: int) -> np.ndarray:
        """Bits of the step's queries, shape (queries, head_dim)."""
        return np.ascontiguousarray(self._trace.q[self._place][:, step])

    def step(self, step: int) -> Step:
        """Decode one step; they must be asked for in order."""
        token = self._trace.prompt + step
        return self.head.step(self.q(step).view(np.float16), self._k[token], self._v[token])


def replay(trace: Trace, selector: HikvSelectorParameters, grouping: str = GROUPING) -> list[Run]:
    """Start every captured head of a trace, layer by layer, each with a cache of one size."""
    budgets = bounds(trace.head_dim)
    parameters = HikvParameters(
        head_dim=trace.head_dim,
        cap_recent=selector.cap_recent,
        cap_important=selector.cap_important,
        b_iik=budgets["b_iik"],
        b_iiv=budgets["b_iiv"],
        grouping=grouping,
        score_format=selector.score_format,
    )
    layers, heads = trace.q.shape[:2]
    places = itertools.product(range(layers), range(heads))
    return [Run(trace, parameters, place) for place in places]
