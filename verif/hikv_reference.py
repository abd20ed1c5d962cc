"""HiKV's decode step as the specification words it: one token, one slot, one addition at a time.

Nothing of :mod:`golden.hikv` is used, so that a mistake there shows as a difference here.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verif.test_attention import scalar_dot, scalar_softmax

__all__ = ["ReferenceHead", "reference_prefill_scores", "reference_slots", "top"]

UFIX_LIMIT = 2**31 - 2


def top(values: Sequence[Any], count: int) -> set[int]:
    """Find the ``count`` highest; a NaN is lowest, of equal ones the lower index is higher."""

    def order(index):
        value = float(values[index])
        return (True, 0.0, index) if math.isnan(value) else (False, -value, index)

    return set(sorted(range(len(values)), key=order)[:count])


def add(score: Any, p: Any, score_format: str) -> Any:
    """One addition to a score: an fp16 or fp32 number, or the integer code of ``ufix``."""
    if math.isnan(float(p)) or p < 0:
        return score
    if score_format == "ufix":
        exact = Fraction(float(p)) if math.isfinite(float(p)) else Fraction(UFIX_LIMIT)
        return min(score + min(round(exact * 2**21), UFIX_LIMIT), UFIX_LIMIT)
    kind = {"fp16": np.float16, "fp32": np.float32}[score_format]
    with np.errstate(over="ignore"):
        return kind(score) + kind(p)


def zero(score_format: str) -> Any:
    return {"fp16": np.float16(0), "fp32": np.float32(0), "ufix": 0}[score_format]


def reference_prefill_scores(p: Any, cap_recent: int, score_format: str) -> list[Any]:
    """Score of each prompt token from P, shape (queries, tokens, tokens)."""
    scores = []
    for token in range(p.shape[1]):
        score = zero(score_format)
        for row in range(token, min(token + cap_recent, p.shape[1])):
            for query in range(p.shape[0]):
                score = add(score, p[query, row, token], score_format)
        scores.append(score)
    return scores


def reference_slots(count: int, head_dim: int, slot_order: str) -> list[int]:
    """Slots of kept tokens in order of position."""
    if slot_order == "contiguous":
        return list(range(count))
    chunks = math.ceil(count / head_dim)
    wanted = [chunk * head_dim + place for place in range(head_dim) for chunk in range(chunks)]
    return [slot for slot in wanted if slot < count]


class ReferenceHead:
    """One KV head: tokens in slots, who is recent, who is important, and every score."""

    def __init__(self, parameters: Any):
        self.p = parameters
        self.k: dict[int, Any] = {}
        self.v: dict[int, Any] = {}
        self.score: dict[int, Any] = {}
        self.recent: list[int] = []
        self.important: list[int] = []
        self.mean_sum = np.zeros(parameters.head_dim, np.float32)
        self.mean_count = 0

    def initialise(self, scores: Sequence[Any], k: Any, v: Any) -> list[int]:
        p = self.p
        self.__init__(p)
        tokens = len(scores)
        border = max(0, tokens - p.cap_recent)
        best = sorted(top(scores[:border], p.cap_important))
        kept = [*best, *range(border, tokens)]
        for token, slot in zip(
            kept, reference_slots(len(kept), p.head_dim, p.slot_order), strict=True
        ):
            self.k[slot], self.v[slot], self.score[slot] = k[token], v[token], scores[token]
            (self.important if token < border else self.recent).append(slot)
        for slot in sorted(self.v):
            self._count(self.v[slot], 1)
        return kept

    def _count(self, row: Any, sign: int) -> None:
        if all(math.isfinite(x) for x in row):
            for d, x in enumerate(row):
                self.mean_sum[d] = self.mean_sum[d] + np.float32(sign * x)
            self.mean_count += sign

    def _room(self) -> tuple[int, bool, bool]:
        """Slot of the newcomer, whether its token was evicted, whether one was promoted."""
        p = self.p
        if len(self.recent) < p.cap_recent:
            return len(self.v), False, False
        oldest = self.recent.pop(0)
        if len(self.important) < p.cap_important:
            self.important.append(oldest)
            return len(self.v), False, True
        if not self.important:
            return oldest, True, False
        # Of two equal scores the higher slot is the minimum.
        minimum = min(self.important, key=lambda slot: (self.score[slot], -slot))
        if (self.score[oldest], -oldest) > (self.score[minimum], -minimum):
            self.important.remove(minimum)
            self.important.append(oldest)
            return minimum, True, True
        return oldest, True, False

    def _selections(self, q: Any, values: list[Any], count: int) -> list[list[int]]:
        """Of one vector, or one chunk, per query head: indices that each head uses."""
        p = self.p
        if p.grouping == "per_group":
            total = [np.float16(0)] * len(values[0])
            for value in values:
                total = [add(t, x, "fp16") for t, x in zip(total, value, strict=True)]
            return [sorted(top(total, count))] * len(values)
        each = [top(value, count) for value in values]
        if p.grouping == "union":
            each = [set().union(*each)] * len(values)
        return [sorted(one) for one in each]

    def step(self, q: Any, k: Any, v: Any) -> dict[str, Any]:
        """Everything a step does; q of shape (queries, head_dim)."""
        p, queries = self.p, range(len(q))
        slot, evicted, promoted = self._room()
        if evicted:
            self._count(self.v[slot], -1)
        self._count(v, 1)
        self.k[slot], self.v[slot], self.score[slot] = k, v, zero(p.score_format)
        self.recent.append(slot)
        occupied = range(len(self.v))

        dimensions = self._selections(q, [np.abs(head) for head in q], p.b_iik)
        weights = []
        for head in queries:
            dots = [
                scalar_dot([(q[head][d], self.k[s][d]) for d in dimensions[head]]) for s in occupied
            ]
            weights.append(scalar_softmax(dots, p.head_dim))

        for s in self.recent:
            for head in queries:
                self.score[s] = add(self.score[s], weights[head][s], p.score_format)

        rows: list[list[int]] = [[] for _ in queries]
        for start in range(0, len(occupied), p.head_dim):
            chunk = [head[start : start + p.head_dim] for head in weights]
            for head, chosen in enumerate(
                self._selections(q, chunk, min(p.b_iiv, len(chunk[0])))
            ):
                served = [head] if p.grouping == "per_query" else queries
                rows[head] += [
                    start + i for i in chosen if any(weights[h][start + i] != 0 for h in served)
                ]

        return {
            "slot": slot,
            "evicted": evicted,
            "promoted": promoted,
            "dimensions": dimensions,
            "p": [[float(x) for x in head] for head in weights],
            "rows": rows,
            "output": [self._output(weights[head], rows[head]) for head in queries],
        }

    def _output(self, weights: list[Any], rows: list[int]) -> list[Any]:
        zero_row = np.float16(0)
        output, mass = [], np.float32(0)
        for s in rows:
            mass = mass + np.float32(weights[s])
        for d in range(self.p.head_dim):
            # 0 times infinity must not arise: such a product is +0.
            o = scalar_dot(
                [(weights[s], self.v[s][d] if weights[s] != 0 else zero_row) for s in rows]
            )
            if self.p.unselected == "renormalise":
                o = o / mass if mass != 0 else np.float32(0)
            if self.p.unselected == "mean":
                reciprocal = np.float32(1) / np.float32(max(1, self.mean_count))
                mean = self.mean_sum[d] * reciprocal
                o = o + (np.float32(1) - mass) * mean
            output.append(np.float32(o))
        return output
