"""Golden model of :class:`rtl.hikv.hikv_selector.HikvSelector`: the selections of one step."""

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.hikv import select_dimensions, select_slots

__all__ = ["Selected", "Selections", "select_step"]


@dataclasses.dataclass(frozen=True)
class Selected:
    """One beat: the query head that it goes with, chunk, whether it is the last one, mask."""

    query: int
    chunk: int
    last: bool
    mask: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Entries selected."""
        return int(self.mask.sum())


class Selections(NamedTuple):
    """Beats of one step: elements of K, and slots of V."""

    k: list[Selected]
    v: list[Selected]


def select_step(
    q: NDArray[np.uint16],
    p: NDArray[np.uint16],
    *,
    b_iik: int,
    b_iiv: int,
    grouping: str,
) -> Selections:
    """Select for the query heads of one group.

    Parameters
    ----------
    q : ndarray of uint16 (fp16 bits), shape (queries, head_dim)
        Of the heads, ascending.
    p : ndarray of uint16 (fp16 bits), shape (queries, occupied)
        In slot order.
    b_iik : int
        Elements of K to select.
    b_iiv : int
        Slots to select of each chunk of ``head_dim``.
    grouping : {"per_query", "per_group", "union"}
        One selection per head, or one for all, which goes with the last head.
    """
    queries, head_dim = q.shape
    occupied = p.shape[-1]
    chunks = -(-occupied // head_dim)
    dimensions = select_dimensions(q, b_iik, grouping)
    slots = np.zeros((queries, chunks * head_dim), bool)
    slots[:, :occupied] = select_slots(p, b_iiv, head_dim, grouping)
    masks = slots.reshape(queries, chunks, head_dim)
    heads = range(queries) if grouping == "per_query" else [queries - 1]
    return Selections(
        [Selected(head, 0, True, dimensions[head]) for head in heads],
        [
            Selected(head, chunk, chunk == chunks - 1, masks[head, chunk])
            for head in heads
            for chunk in range(chunks)
        ],
    )
