"""Golden model of :class:`rtl.sorting.ris.Ris`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.sorter import sort_entries

__all__ = ["Entries", "pick", "sort_merge"]


class Entries(NamedTuple):
    """Keys and indices, arrays of one shape."""

    keys: NDArray[Any]
    indices: NDArray[Any]


def sort_merge(
    a_keys: NDArray[np.unsignedinteger],
    a_indices: NDArray[np.integer],
    b_keys: NDArray[np.unsignedinteger],
    b_indices: NDArray[np.integer],
) -> tuple[Entries, Entries]:
    """Highest and lowest halves of two groups together.

    Parameters
    ----------
    a_keys, a_indices : ndarray, shape (..., ways)
        One group.
    b_keys, b_indices : ndarray, shape (..., ways)
        The other one.

    Returns
    -------
    upper, lower : Entries, shape (..., ways)
        Each in descending order; the hardware promises the sets only.
    """
    ways = a_keys.shape[-1]
    keys, indices = sort_entries(
        np.concatenate([a_keys, b_keys], -1), np.concatenate([a_indices, b_indices], -1)
    )
    return (
        Entries(keys[..., :ways], indices[..., :ways]),
        Entries(keys[..., ways:], indices[..., ways:]),
    )


def pick(
    keys: NDArray[np.unsignedinteger], indices: NDArray[np.integer]
) -> tuple[Entries, Entries]:
    """Lowest and highest entry of a group.

    Parameters
    ----------
    keys, indices : ndarray, shape (..., ways)
        A group.

    Returns
    -------
    minimum, maximum : Entries, shape (...)
    """
    keys, indices = sort_entries(keys, indices)
    return (
        Entries(keys[..., -1], indices[..., -1]),
        Entries(keys[..., 0], indices[..., 0]),
    )
