"""HiKV's decode steps with K and V: what is fetched, the output, and the bytes (HiKV, III)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import traffic
from golden.attention import dot, softmax, weighted_sum
from golden.hikv import Admission, Context, select_dimensions, select_slots, slots_of_kept
from golden.parameters import HikvParameters
from golden.traffic import Traffic

__all__ = ["Head", "Heads", "Step"]

Half = NDArray[np.float16]
Single = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Step:
    """One decode step of one KV head.

    Parameters
    ----------
    admission : Admission
    dimensions : ndarray of bool, shape (queries, head_dim)
        Dimensions of K that each query head used.
    p : ndarray of uint16 (fp16 bits), shape (queries, occupied)
        Attention weights in slot order.
    rows : ndarray of bool, shape (queries, occupied)
        Slots whose V each query head used.
    output : ndarray of float32, shape (queries, head_dim)
    traffic : Traffic
    flagged : bool
        Whether an element of q, k or v, a score, a weight or the output was a bad number.
    """

    admission: Admission
    dimensions: Mask
    p: NDArray[np.uint16]
    rows: Mask
    output: Single
    traffic: Traffic
    flagged: bool


class Heads:
    """Caches of several (layer, KV head) that decode side by side, each as if alone.

    Parameters
    ----------
    parameters : HikvParameters
        Budgets and options of all, and the capacities where ``capacities`` is not given.
    capacities : sequence of (int, int), optional
        Recent and important capacity of each head.
    burst : int
        Bytes of the smallest transfer, for the traffic; 2 is exact.

    Attributes
    ----------
    contexts : list of Context
    k : ndarray of float16, shape (heads, head_dim + 1, slots)
        External memory, element-first. The last line is not memory: it stays +0, fills up tiles.
    v : ndarray of float16, shape (heads, slots, head_dim)
        External memory, by slot.
    """

    def __init__(
        self,
        parameters: HikvParameters,
        capacities: Sequence[tuple[int, int]] | None = None,
        burst: int = traffic.ELEMENT,
    ):
        p = self.parameters = parameters
        self.burst = burst
        pairs = [(p.cap_recent, p.cap_important)] if capacities is None else capacities
        self.contexts = [Context(recent, important, p.score_format) for recent, important in pairs]
        slots = max(context.slots for context in self.contexts)
        self.k = np.zeros((len(pairs), p.head_dim + 1, slots), np.float16)
        self.v = np.zeros((len(pairs), slots, p.head_dim), np.float16)
        self._sum = np.zeros((len(pairs), p.head_dim), np.float32)
        self._summed = np.zeros(len(pairs), np.int64)

    def initialise(self, scores: Sequence[NDArray[Any]], k: Half, v: Half) -> list[NDArray]:
        """Take over a prompt, or the whole history at a turn boundary.

        Parameters
        ----------
        scores : sequence of ndarray, shape (tokens,)
            Of each head; see :meth:`golden.hikv.Context.initialise`.
        k, v : ndarray of float16, shape (heads, tokens, head_dim)
            Of all tokens.

        Returns
        -------
        list of ndarray of intp
            Positions that each head keeps, ascending.
        """
        p = self.parameters
        self._sum[:], self._summed[:] = 0, 0
        positions = []
        for head, context in enumerate(self.contexts):
            kept = context.initialise(scores[head], p.head_dim, p.slot_order)
            slots = slots_of_kept(len(kept), p.head_dim, p.slot_order)
            self.k[head, :-1, slots] = k[head, kept]
            self.v[head, slots] = v[head, kept]
            if p.unselected == "mean":
                for row in self.v[head, : context.occupied]:
                    self._count(head, row, 1)
            positions.append(kept)
        return positions

    def _count(self, head: int, row: Half, sign: int) -> None:
        """Add a row to the mean, or take it out; rows that are not finite are in neither."""
        if np.isfinite(row).all():
            self._sum[head] += np.float32(sign) * row.astype(np.float32)
            self._summed[head] += sign

    @property
    def mean(self) -> Single:
        """Mean of each head's finite V rows, ``fp32(sum * fp32(1/n))``; 0 if there are none."""
        count = np.maximum(self._summed, 1).astype(np.float32)
        return self._sum * np.reciprocal(count)[:, np.newaxis]

    def step(self, q: Half, k: Half, v: Half) -> list[Step]:
        """Decode one token.

        Parameters
        ----------
        q : ndarray of float16, shape (heads, queries, head_dim)
            Query heads of each head's group.
        k, v : ndarray of float16, shape (heads, head_dim)
            Of the newcomer.

        Returns
        -------
        list of Step
            Of each head.
        """
        p = self.parameters
        admissions = [self._admit(head, k[head], v[head]) for head in range(len(self.contexts))]
        occupied = np.array([context.occupied for context in self.contexts])
        exists = np.arange(occupied.max()) < occupied[:, np.newaxis]

        dimensions = select_dimensions(np.ascontiguousarray(q).view(np.uint16), p.b_iik, p.grouping)
        accumulated = self._scores(q, dimensions, exists.shape[1])
        weights, bad = softmax(accumulated, p.head_dim, exists[:, np.newaxis])
        bits = weights.view(np.uint16)
        # Slots that do not exist weigh +0, so they neither displace others nor are selected.
        rows = select_slots(bits, p.b_iiv, p.head_dim, p.grouping)
        output = self._output(weights, rows)
        finite = [np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in (q, k, v, output)]
        flagged = bad.any(axis=1) | ~np.all(finite, axis=0)

        return [
            self._finish(
                head,
                admission,
                dimensions[head],
                bits[head, :, : occupied[head]],
                rows[head, :, : occupied[head]],
                output[head],
                bool(flagged[head]),
            )
            for head, admission in enumerate(admissions)
        ]

    def _finish(
        self,
        head: int,
        admission: Admission,
        dimensions: Mask,
        p: NDArray[np.uint16],
        rows: Mask,
        output: Single,
        flagged: bool,
    ) -> Step:
        context = self.contexts[head]
        moved = traffic.step(
            dimensions,
            rows,
            admission.slot,
            tokens=context.tokens,
            reads_evicted=self.parameters.unselected == "mean" and admission.evicted,
            burst=self.burst,
        )
        bad_weight = context.accumulate(p)
        return Step(admission, dimensions, p, rows, output, moved, flagged or bad_weight)

    def _admit(self, head: int, k: Half, v: Half) -> Admission:
        admission = self.contexts[head].admit()
        if self.parameters.unselected == "mean":
            if admission.evicted:
                self._count(head, self.v[head, admission.slot], -1)
            self._count(head, v, 1)
        self.k[head, :-1, admission.slot] = k
        self.v[head, admission.slot] = v
        return admission

    def _scores(self, q: Half, dimensions: Mask, length: int) -> Single:
        """Dot products of the selected dimensions, shape (heads, queries, length)."""
        shared = self.parameters.grouping != "per_query"
        masks = dimensions[:, :1] if shared else dimensions
        counts = masks.sum(axis=-1, keepdims=True)
        order = np.argsort(~masks, axis=-1, kind="stable")[..., : counts.max()]
        order = np.where(np.arange(order.shape[-1]) < counts, order, self.parameters.head_dim)
        elements = np.take_along_axis(
            np.pad(q, ((0, 0), (0, 0), (0, 1))),
            np.broadcast_to(order, (*q.shape[:2], order.shape[-1])),
            axis=-1,
        )
        lines = self.k[np.arange(len(q))[:, np.newaxis, np.newaxis], order, :length]
        return dot(elements[..., np.newaxis, :], lines.swapaxes(-1, -2))

    def _output(self, weights: Half, rows: Mask) -> Single:
        values = self.v[:, np.newaxis, : weights.shape[-1]]
        output = weighted_sum(weights, values, rows)
        if self.parameters.unselected == "drop":
            return output
        # A running sum, unlike `sum`, adds in the order of the slots.
        selected = np.where(rows, weights, np.float16(0))
        mass = np.cumsum(selected, axis=-1, dtype=np.float32)[..., -1:]
        if self.parameters.unselected == "mean":
            return np.add(output, (1 - mass) * self.mean[:, np.newaxis], dtype=np.float32)
        renormalised = np.zeros_like(output)
        np.divide(output, mass, out=renormalised, where=mass > 0)
        return renormalised


class Head:
    """Cache of one (layer, KV head): :class:`Heads` with one head, without that dimension.

    Parameters
    ----------
    parameters : HikvParameters
        Capacities, budgets and options.
    burst : int
        Bytes of the smallest transfer, for the traffic; 2 is exact.

    Attributes
    ----------
    context : Context
    """

    def __init__(self, parameters: HikvParameters, burst: int = traffic.ELEMENT):
        self.parameters = parameters
        self._heads = Heads(parameters, burst=burst)
        self.context = self._heads.contexts[0]

    def initialise(self, scores: NDArray[Any], k: Half, v: Half) -> NDArray[np.intp]:
        """Take over a prompt; see :meth:`Heads.initialise`."""
        return self._heads.initialise([scores], k[np.newaxis], v[np.newaxis])[0]

    def step(self, q: Half, k: Half, v: Half) -> Step:
        """Decode one token; see :meth:`Heads.step`."""
        return self._heads.step(q[np.newaxis], k[np.newaxis], v[np.newaxis])[0]
