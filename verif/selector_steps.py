"""Decode steps for the HiKV selector: what to send, and what golden says must come."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.hikv import Admission, Context
from golden.hikv_selector import select_step
from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import Operation

__all__ = ["Step", "Workload", "gather"]

_FP16_ONE = 0x3C00


def gather(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Payloads of a stream, beat first, from one dict per beat."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


@dataclasses.dataclass
class Step:
    """One step of one group of query heads: payloads of every stream, a dict per beat."""

    commands: list[dict[str, Any]]
    q: list[dict[str, Any]]
    p: list[dict[str, Any]]
    release: dict[str, Any]
    responses: list[dict[str, Any]]
    k: list[dict[str, Any]]
    v: list[dict[str, Any]]


class Workload:
    """Contexts with budgets of their own, and random steps on them.

    Parameters
    ----------
    parameters : HikvSelectorParameters
    rng : numpy.random.Generator
    grouping : {"per_query", "per_group", "union"}
    b_iik, b_iiv : int

    Attributes
    ----------
    contexts : list of Context
    steps : int
        STEP commands so far.
    """

    def __init__(
        self,
        parameters: HikvSelectorParameters,
        rng: np.random.Generator,
        *,
        grouping: str,
        b_iik: int,
        b_iiv: int,
    ):
        self.parameters, self.rng, self.grouping = parameters, rng, grouping
        self.bounds = {"b_iik": b_iik, "b_iiv": b_iiv}
        self.contexts = [
            Context(
                int(rng.integers(1, parameters.cap_recent + 1)),
                int(rng.integers(parameters.cap_important + 1)),
                parameters.score_format,
            )
            for _ in range(parameters.contexts)
        ]
        self.steps = 0
        self._tags = 0

    def command(self, operation: Operation, context: int, **fields: int) -> dict[str, Any]:
        """Build a command with the next tag."""
        self._tags += 1
        base = {"query": 0, "first": 0, "last": 0}
        tag = self._tags % (1 << self.parameters.tag_width)
        return {"operation": operation.value, "context": context, "tag": tag} | base | fields

    def initialise(self, number: int, tokens: int) -> list[dict[str, Any]]:
        """Fill a context after a prompt of that many tokens; what INIT is to be sent."""
        context = self.contexts[number]
        scores = self.rng.integers(_FP16_ONE, size=tokens).astype(context.scores.dtype)
        context.initialise(scores, self.parameters.head_dim)
        slots = [*sorted(context.important), *context.recent]
        return [
            {
                "score": context.scores[slot],
                "slot": slot,
                "important": slot in context.important,
                "last": place == len(slots) - 1,
            }
            for place, slot in enumerate(slots)
        ]

    def _beats(self, vector: Any) -> list[dict[str, Any]]:
        lanes = self.parameters.lanes
        padded = np.pad(vector, (0, -len(vector) % lanes))
        count = len(padded) // lanes
        rows = padded.reshape(count, lanes)
        return [{"values": row, "last": place == count - 1} for place, row in enumerate(rows)]

    def step(self, number: int, queries: int | None = None) -> Step:
        """Draw Q and P of a step, decode it in golden, and tell all that it sends and receives.

        Parameters
        ----------
        number : int
            Context.
        queries : int, optional
            Query heads of the group; unset: any number.
        """
        p, context = self.parameters, self.contexts[number]
        queries = queries or int(self.rng.integers(1, p.queries + 1))
        self.steps += queries
        admission = context.admit()
        q = self.rng.integers(0x7C00, size=(queries, p.head_dim)).astype(np.uint16)
        q |= self.rng.integers(2, size=q.shape).astype(np.uint16) << 15
        weights = self.rng.integers(_FP16_ONE, size=(queries, context.occupied)).astype(np.uint16)
        weights[self.rng.random(weights.shape) < 0.2] = 0
        context.accumulate(weights)
        return self.wrap(number, q, weights, admission)

    def wrap(
        self,
        number: int,
        q: NDArray[np.uint16],
        weights: NDArray[np.uint16],
        admission: Admission,
    ) -> Step:
        """Build a step of given Q and P: all that it sends and receives.

        Parameters
        ----------
        number : int
            Context.
        q : ndarray of uint16, shape (queries, head_dim)
            fp16 bits.
        weights : ndarray of uint16, shape (queries, occupied)
            P, fp16 bits.
        admission : Admission
            Of the newcomer.
        """
        queries, occupied = weights.shape
        chosen = select_step(q, weights, grouping=self.grouping, **self.bounds)
        commands = [
            self.command(Operation.STEP, number, query=head, first=head == 0,
                         last=head == queries - 1)
            for head in range(queries)
        ]  # fmt: skip
        answer = {
            "slot": admission.slot,
            "evicted": admission.evicted,
            "promoted": admission.promoted,
            "occupied": occupied,
            "cause": 0,
        }

        def beats(selections):
            return [
                {
                    "context": number, "query": one.query, "tag": commands[one.query]["tag"],
                    "chunk": one.chunk, "last": one.last, "error": 0, "count": one.count,
                    "mask": one.mask,
                }
                for one in selections
            ]  # fmt: skip

        return Step(
            commands=commands,
            q=[beat for head in q for beat in self._beats(head)],
            p=[beat for head in weights for beat in self._beats(head)],
            release={"context": number, "tag": commands[-1]["tag"]},
            responses=[
                {name: c[name] for name in ("operation", "context", "tag")} | answer
                for c in commands
            ],
            k=beats(chosen.k),
            v=beats(chosen.v),
        )
