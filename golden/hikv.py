"""HiKV: which tokens stay in a cache of fixed size, and what of them is read (HiKV, III)."""

import dataclasses
from collections import deque
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import accumulate, rank, score_dtype, score_keys
from golden.selection import select

__all__ = [
    "Admission",
    "Context",
    "add_rows",
    "prefill_scores",
    "select_dimensions",
    "select_slots",
    "slots_of_kept",
    "split_budget",
    "stage_one_budget",
    "stage_two_budget",
]

Mask = NDArray[np.bool_]


def stage_one_budget(prompt: int, ratio: Fraction | int | str, granularity: int = 1) -> int:
    """Tokens kept per KV head, ``B_I = 2 g max(1, floor(L_p / (2 g r_I)))``.

    Parameters
    ----------
    prompt : int
        Prompt length ``L_p``.
    ratio : Fraction, int or decimal text
        ``r_I`` ≥ 1, exact: "2.86" is 286/100.
    granularity : int
        Unit ``g`` of each bank.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    exact = _ratio(ratio)
    if prompt < 1 or granularity < 1:
        raise ValueError(
            f"Prompt and granularity must be at least 1, not {prompt} and {granularity}"
        )
    return 2 * granularity * max(1, int(Fraction(prompt) / (2 * granularity * exact)))


def stage_two_budget(head_dim: int, ratio: Fraction | int | str) -> int:
    """Elements kept per vector or chunk, ``B_II = round_half_even(d_h / r_II)``."""
    return round(Fraction(head_dim) / _ratio(ratio))


def _ratio(ratio: Fraction | int | str) -> Fraction:
    if isinstance(ratio, float):
        raise TypeError(f"Ratio must be exact: a Fraction, an integer or a text, not {ratio!r}")
    exact = Fraction(ratio)
    if exact < 1:
        raise ValueError(f"Ratio must be at least 1, not {ratio}")
    return exact


@dataclasses.dataclass(frozen=True)
class Admission:
    """What a decode step does to the banks before attention.

    Parameters
    ----------
    slot : int
        Where the newcomer's K and V are written.
    evicted : bool
        Whether the token in that slot left the cache.
    promoted : bool
        Whether the token that left the recent bank went into the important one.
    """

    slot: int
    evicted: bool
    promoted: bool


class Context:
    """Both banks of one (layer, KV head): slot numbers and importance scores.

    Parameters
    ----------
    cap_recent : int
        Tokens of the recent bank, a FIFO. At least 1.
    cap_important : int
        Tokens of the important bank, those with the highest scores. At least 0.
    score_format : {"fp16", "fp32", "ufix"}
        Format of the scores.

    Attributes
    ----------
    occupied : int
        Slots in use: 0 … ``occupied - 1``.
    tokens : int
        Tokens seen: what a full cache would hold.
    recent : deque of int
        Slots of the recent bank, oldest first.
    important : set of int
        Slots of the important bank.
    scores : ndarray, shape (cap_recent + cap_important,)
        Bit patterns by slot: growing while the token is recent, frozen once it is important.

    Raises
    ------
    ValueError
        If a capacity is out of range.
    """

    def __init__(self, cap_recent: int, cap_important: int, score_format: str = "fp16"):
        if cap_recent < 1:
            raise ValueError(f"Cap recent must be at least 1, not {cap_recent}")
        if cap_important < 0:
            raise ValueError(f"Cap important must be at least 0, not {cap_important}")
        self.cap_recent = cap_recent
        self.cap_important = cap_important
        self.score_format = score_format
        self.occupied = 0
        self.tokens = 0
        self.recent: deque[int] = deque()
        self.important: set[int] = set()
        self.scores = np.zeros(cap_recent + cap_important, dtype=score_dtype(score_format))

    @property
    def slots(self) -> int:
        """Slots of both banks together."""
        return self.cap_recent + self.cap_important

    def initialise(
        self, scores: NDArray[Any], head_dim: int, slot_order: str = "interleaved"
    ) -> NDArray[np.intp]:
        """Fill the banks after a prefill, or at a turn boundary.

        Parameters
        ----------
        scores : ndarray, shape (tokens,)
            Bit patterns of :func:`prefill_scores`.
        head_dim : int
            Entries of a chunk, for the interleaving.
        slot_order : {"interleaved", "contiguous"}
            See :func:`slots_of_kept`.

        Returns
        -------
        ndarray of intp, shape (kept,)
            Positions of the kept tokens, ascending; token i of it takes slot i of
            :func:`slots_of_kept`.

        Raises
        ------
        TypeError
            If the scores are not bit patterns of the format.
        """
        if scores.dtype != self.scores.dtype:
            raise TypeError(
                f"Scores must be {self.scores.dtype} ({self.score_format} bits), not {scores.dtype}"
            )
        tokens = len(scores)
        first_recent = max(0, tokens - self.cap_recent)
        positions = np.arange(first_recent)
        order = rank(score_keys(scores[:first_recent], self.score_format), positions)
        important = np.sort(order[: self.cap_important])
        kept = np.concatenate([important, np.arange(first_recent, tokens)]).astype(np.intp)
        slots = slots_of_kept(len(kept), head_dim, slot_order)
        self.scores[:] = 0
        self.scores[slots] = scores[kept]
        self.important = set(slots[: len(important)].tolist())
        self.recent = deque(slots[len(important) :].tolist())
        self.occupied, self.tokens = len(kept), tokens
        return kept

    def admit(self) -> Admission:
        """Make room for a newcomer, and put it into the recent bank with score 0."""
        self.tokens += 1
        promoted = evicted = False
        slot = self.occupied
        if len(self.recent) == self.cap_recent:
            leaving = self.recent.popleft()
            if len(self.important) < self.cap_important:
                promoted = True
            else:
                slot, evicted = leaving, True
                lowest = self._lowest_of([*self.important, leaving])
                if lowest != leaving:
                    self.important.remove(lowest)
                    slot, promoted = lowest, True
            if promoted:
                self.important.add(leaving)
        if slot == self.occupied:
            self.occupied += 1
        self.recent.append(slot)
        self.scores[slot] = 0
        return Admission(slot, evicted, promoted)

    def accumulate(self, p: NDArray[np.uint16]) -> bool:
        """Add attention weights to the scores of the recent bank.

        Parameters
        ----------
        p : ndarray of uint16 (fp16 bits), shape (queries, occupied)
            In slot order; the query heads of the group ascending.

        Returns
        -------
        bool
            Whether a weight was NaN or negative, which adds nothing.

        Raises
        ------
        ValueError
            If P has another length.
        """
        if p.shape[-1] != self.occupied:
            raise ValueError(
                f"P must have one weight for each of the {self.occupied} occupied slots,"
                f" not {p.shape[-1]}"
            )
        recent = np.fromiter(self.recent, dtype=np.intp)
        any_bad = False
        for weights in p:
            self.scores[recent], bad = accumulate(
                self.scores[recent], weights[recent], self.score_format
            )
            any_bad |= bool(bad.any())
        return any_bad

    def _lowest_of(self, slots: list[int]) -> int:
        numbers = np.array(slots)
        keys = score_keys(self.scores[numbers], self.score_format)
        return int(numbers[rank(keys, numbers)[-1]])


def slots_of_kept(
    count: int, head_dim: int, slot_order: str = "interleaved"
) -> NDArray[np.intp]:
    """Slots of ``count`` kept prompt tokens, in order of position.

    Interleaved: slot 0 of every chunk of ``head_dim`` slots, then slot 1 of every chunk, and so on:
    neighbouring tokens fall into different chunks. Contiguous: 0, 1, 2, …
    """
    if slot_order == "contiguous":
        return np.arange(count)
    chunks = -(-count // head_dim)
    slots = (np.arange(head_dim)[:, np.newaxis] + np.arange(chunks) * head_dim).ravel()
    return slots[slots < count]


def split_budget(tokens: int) -> tuple[int, int]:
    """Split a head's budget into capacities (recent, important): halves, the odd one to the latter.

    A head that keeps one token keeps the newcomer.
    """
    recent = max(1, tokens // 2)
    return recent, tokens - recent


def add_rows(
    scores: NDArray[Any],
    p: NDArray[np.uint16],
    first: int,
    cap_recent: NDArray[np.integer] | int,
    score_format: str = "fp16",
) -> None:
    """Add some rows of causal attention to prompt tokens' scores, in place.

    Parameters
    ----------
    scores : ndarray, shape (..., tokens)
        Bit patterns.
    p : ndarray of uint16 (fp16 bits), shape (..., queries, rows, columns)
        Attention weights of the query heads of each group; row r is that of token ``first + r``.
        Added by rows ascending, inside a row by query heads ascending.
    first : int
        Token of the first row; ``columns`` exceeds that of the last one.
    cap_recent : int, or ndarray of int, shape (...)
        Rows that count for a token, from its own on.
    score_format : {"fp16", "fp32", "ufix"}
        Format of the scores.
    """
    capacity = np.asarray(cap_recent)
    widest = int(capacity.max())
    for row in range(p.shape[-2]):
        own = first + row
        window = slice(max(0, own - widest + 1), own + 1)
        age = own - np.arange(window.start, window.stop)
        counts = age < capacity[..., np.newaxis]
        for query in range(p.shape[-3]):
            weights = np.where(counts, p[..., query, row, window], np.uint16(0))
            scores[..., window], _ = accumulate(scores[..., window], weights, score_format)


def prefill_scores(
    p: NDArray[np.uint16], cap_recent: int, score_format: str = "fp16"
) -> NDArray[Any]:
    """Sum each attention column of a prompt over ``cap_recent`` rows, from the token's own on.

    Parameters
    ----------
    p : ndarray of uint16 (fp16 bits), shape (queries, tokens, tokens)
        Causal attention weights of the query heads of one group.
    cap_recent : int
        Rows that count for a token.
    score_format : {"fp16", "fp32", "ufix"}
        Format of the scores.

    Returns
    -------
    ndarray, shape (tokens,)
        Bit patterns; see :func:`add_rows`.
    """
    scores = np.zeros(p.shape[-1], dtype=score_dtype(score_format))
    add_rows(scores, p, 0, cap_recent, score_format)
    return scores


def _of_group(
    bits: NDArray[np.uint16], b_ii: int, head_dim: int, grouping: str, magnitude: bool
) -> Mask:
    """Masks (..., queries, chunks, head_dim) of the values (..., queries, length) of groups."""
    if grouping == "per_group":
        total = np.zeros_like(bits[..., 0, :])
        for query in range(bits.shape[-2]):
            value = bits[..., query, :]
            total, _ = accumulate(total, value & np.uint16(0x7FFF) if magnitude else value)
        mask = select(total, b_ii, head_dim=head_dim).masks[..., np.newaxis, :, :]
    else:
        mask = select(bits, b_ii, head_dim=head_dim, magnitude=magnitude).masks
        if grouping == "union":
            mask = mask.any(axis=-3, keepdims=True)
    return np.broadcast_to(mask, (*bits.shape[:-1], *mask.shape[-2:]))


def select_dimensions(q: NDArray[np.uint16], b_iik: int, grouping: str = "union") -> Mask:
    """Select the dimensions of Q that scores use: the ``b_iik`` largest magnitudes.

    Parameters
    ----------
    q : ndarray of uint16 (fp16 bits), shape (..., queries, head_dim)
        Query heads of one group each.
    b_iik : int
        From 0 to ``head_dim``.
    grouping : {"per_query", "per_group", "union"}
        Each head its own selection; one by the heads' magnitudes, summed in fp16; or every head the
        union of all selections.

    Returns
    -------
    ndarray of bool, shape of ``q``
    """
    return _of_group(q, b_iik, q.shape[-1], grouping, magnitude=True)[..., 0, :]


def select_slots(
    p: NDArray[np.uint16], b_iiv: int, head_dim: int, grouping: str = "union"
) -> Mask:
    """Select slots whose V rows are used: the ``b_iiv`` highest P of each chunk of ``head_dim``.

    Slots whose P is zero in all heads that a selection serves are left out.

    Parameters
    ----------
    p : ndarray of uint16 (fp16 bits), shape (..., queries, occupied)
        Attention weights in slot order.
    b_iiv, head_dim : int
        Slots of each chunk that are selected, and slots of a chunk.
    grouping : {"per_query", "per_group", "union"}
        As for :func:`select_dimensions`; the sum of a group is of P.

    Returns
    -------
    ndarray of bool, shape of ``p``
    """
    masks = _of_group(p, b_iiv, head_dim, grouping, magnitude=False)
    flat = masks.reshape(*p.shape[:-1], -1)[..., : p.shape[-1]]
    weighs = (p & 0x7FFF) != 0
    return flat & (weighs if grouping == "per_query" else weighs.any(axis=-2, keepdims=True))
