"""External memory traffic of a KV cache: exact counts of bytes."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Traffic", "context_bytes", "full_step", "step"]

#: Bytes of one fp16 element.
ELEMENT = 2


@dataclasses.dataclass(frozen=True)
class Traffic:
    """External memory traffic in bytes, of one step or summed over several.

    Parameters
    ----------
    k_read, v_read : int
        Selected elements of K and rows of V, the newcomer's own excepted: it is still on chip.
    written : int
        The newcomer's K and V.
    metadata : int
        V rows read because they leave the mean, and contexts moved.
    full_read, full_written : int
        What the full cache moves at the same steps.
    """

    k_read: int = 0
    v_read: int = 0
    written: int = 0
    metadata: int = 0
    full_read: int = 0
    full_written: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Traffic(*(a + b for a, b in pairs))

    @property
    def total(self) -> int:
        """Bytes that the method moves."""
        return self.k_read + self.v_read + self.written + self.metadata

    @property
    def share(self) -> float:
        """Bytes moved over those of the full cache."""
        return self.total / (self.full_read + self.full_written)


def _bursts(numbers: NDArray[Any], size: int, burst: int) -> int:
    """Bytes of the bursts that items of ``size`` bytes lie in; item 0 begins a burst."""
    first, last = numbers * size // burst, (numbers * size + size - 1) // burst
    if len(numbers) == 0:
        return 0
    # An item begins inside the burst in which the one before ends, or in a later one.
    joined = np.count_nonzero(first[1:] == last[:-1])
    return int((last - first + 1).sum() - joined) * burst


def full_step(tokens: int, head_dim: int, burst: int = ELEMENT) -> Traffic:
    """Count what the full cache moves at a step.

    Parameters
    ----------
    tokens, head_dim : int
        Tokens, the newcomer included, and elements of a row.
    burst : int
        Bytes of the smallest transfer; rows of K and of V lie side by side.
    """
    row = ELEMENT * head_dim
    return Traffic(
        full_read=2 * _bursts(np.arange(tokens - 1), row, burst),
        full_written=2 * _bursts(np.array([tokens - 1]), row, burst),
    )


def step(
    dimensions: NDArray[np.bool_],
    rows: NDArray[np.bool_],
    newcomer: int,
    *,
    tokens: int,
    reads_evicted: bool = False,
    burst: int = ELEMENT,
) -> Traffic:
    """Count what one HiKV decode step of one KV head moves, and the full cache at that step.

    K lies element-first (one line of slots per dimension, each beginning a burst), V row by row.
    What several query heads of the group select moves once.

    Parameters
    ----------
    dimensions : ndarray of bool, shape (queries, head_dim)
        Dimensions of K that each query head uses.
    rows : ndarray of bool, shape (queries, occupied)
        Slots whose V each query head uses.
    newcomer : int
        Slot that is written and not read.
    tokens : int
        Tokens that the full cache holds, the newcomer included.
    reads_evicted : bool
        Whether the V row in the newcomer's slot is read before it is overwritten.
    burst : int
        Bytes of the smallest transfer, reading and writing; 2 is exact.
    """
    head_dim, occupied = dimensions.shape[-1], rows.shape[-1]
    row = ELEMENT * head_dim
    written = np.array([newcomer])
    fetched = np.flatnonzero(rows.any(axis=0))
    line = _bursts(np.delete(np.arange(occupied), newcomer), ELEMENT, burst)
    v_row = _bursts(written, row, burst)
    return full_step(tokens, head_dim, burst) + Traffic(
        k_read=line * int(dimensions.any(axis=0).sum()),
        v_read=_bursts(fetched[fetched != newcomer], row, burst),
        written=_bursts(written, ELEMENT, burst) * head_dim + v_row,
        metadata=v_row * reads_evicted,
    )


def context_bytes(
    cap_recent: int, cap_important: int, *, score_bytes: int = 2, lanes: int = 32, ways: int = 16
) -> int:
    """Count the bytes of a context: slots of the recent ring, scores by slot, heap.

    Parameters
    ----------
    cap_recent, cap_important : int
        Capacities of its banks.
    score_bytes : int
        2, or 4 for ``fp32`` and ``ufix``.
    lanes : int
        Scores, and places of the ring, per row.
    ways : int
        Entries per heap row.
    """
    ring = -(-cap_recent // lanes) * lanes * ELEMENT
    scores = -(-(cap_recent + cap_important) // lanes) * lanes * score_bytes
    heap = -(-cap_important // ways) * ways * (score_bytes + ELEMENT)
    return ring + scores + heap
