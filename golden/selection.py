"""Golden model of :class:`rtl.sorting.selection.Selection`: strict-order top-k, chunk by chunk."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.numerics import EMPTY, rank, sort_keys

__all__ = ["Response", "Selections", "respond", "select", "select_keys"]


class Selections(NamedTuple):
    """Selections of the chunks of a vector: ``masks`` (..., chunks, head_dim), ``counts``."""

    masks: NDArray[np.bool_]
    counts: NDArray[np.int64]


def select_keys(keys: NDArray[np.unsignedinteger], b_ii: int) -> NDArray[np.bool_]:
    """Mask of the ``b_ii`` highest keys; of equal ones the lower index, empty ones never.

    Parameters
    ----------
    keys : ndarray of unsigned integers, shape (..., entries)
        Sort keys.
    b_ii : int
        Entries to select.

    Returns
    -------
    ndarray of bool, shape of ``keys``
    """
    order = rank(keys, np.broadcast_to(np.arange(keys.shape[-1]), keys.shape))
    mask = np.zeros(keys.shape, bool)
    np.put_along_axis(mask, order[..., :b_ii], True, axis=-1)
    return mask & (keys != EMPTY)


def select(
    bits: NDArray[Any], b_ii: int, *, head_dim: int, magnitude: bool = False
) -> Selections:
    """Select the ``min(b_ii, entries)`` highest values of each chunk of a vector.

    Parameters
    ----------
    bits : ndarray of uint16 (fp16) or uint32 (fp32), shape (..., length)
        Bit patterns; the vectors of a batch have one length.
    b_ii : int
        From 0 to ``head_dim``.
    head_dim : int
        Entries of a chunk; the last one may be shorter.
    magnitude : bool
        Rank by absolute value (Q) instead of the signed value (P).

    Returns
    -------
    Selections
        Masks of shape (..., chunks, head_dim) and counts of shape (..., chunks).

    Raises
    ------
    ValueError
        If ``b_ii`` or the length is out of its range.
    """
    length = bits.shape[-1]
    if not 0 <= b_ii <= head_dim:
        raise ValueError(f"B_II must be from 0 to head dim ({head_dim}), not {b_ii}")
    if length == 0:
        raise ValueError("Length must be at least 1, not 0")
    chunks = -(-length // head_dim)
    keys = np.full((*bits.shape[:-1], chunks * head_dim), EMPTY, bits.dtype)
    keys[..., :length] = sort_keys(bits, magnitude=magnitude)
    masks = select_keys(keys.reshape(*bits.shape[:-1], chunks, head_dim), b_ii)
    return Selections(masks, masks.sum(axis=-1))


@dataclasses.dataclass(frozen=True)
class Response:
    """One beat of the block: a chunk's selection, and whether its vector was at fault."""

    chunk: int
    last: bool
    mask: NDArray[np.bool_]
    count: int
    error: bool


def respond(
    bits: NDArray[Any],
    b_ii: int,
    *,
    length: int,
    head_dim: int,
    ways: int,
    max_length: int,
    mode: int,
) -> list[Response]:
    """Answer of the block to one command and the values that really came.

    Parameters
    ----------
    bits : ndarray of uint16 or uint32, shape (beats, ways)
        Values as they came, beat by beat, the last beat marked as such.
    b_ii, length : int
        As announced; may be out of range.
    head_dim, ways, max_length : int
        Of the block.
    mode : int
        0: ``GLOBAL_SORT``; 1: ``CHUNK_SORT``; others are at fault.
    """
    magnitude = mode == 0
    limit = head_dim if magnitude else max_length
    nothing = np.zeros(head_dim, bool)
    if mode not in (0, 1) or not 1 <= length <= limit or b_ii > head_dim:
        return [Response(0, True, nothing, 0, True)]
    responses, beats = [], list(bits)
    chunks = -(-length // head_dim)
    for chunk in range(chunks):
        size = min(head_dim, length - chunk * head_dim)
        wanted, final = -(-size // ways), chunk == chunks - 1
        came, beats = beats[:wanted], beats[wanted:]
        error = final if beats else not final or len(came) < wanted
        mask = nothing.copy()
        if came:
            values = np.concatenate(came)[:size]
            mask[: len(values)] = select(
                values, min(b_ii, len(values)), head_dim=len(values), magnitude=magnitude
            ).masks[0]
        responses.append(Response(chunk, final, mask, int(mask.sum()), error))
    return responses
