"""Golden model of :class:`rtl.sorting.sorter.Sorter`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.numerics import rank

__all__ = ["sort_entries"]


def sort_entries(
    keys: NDArray[np.unsignedinteger], indices: NDArray[np.integer]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Entries in descending order: the highest key first, of equal keys the lowest index.

    Parameters
    ----------
    keys, indices : ndarray, shape (..., count)
        Sort keys, and the index that belongs to each.

    Returns
    -------
    keys, indices : ndarray, shape (..., count)
    """
    order = rank(keys, indices)
    return np.take_along_axis(keys, order, -1), np.take_along_axis(indices, order, -1)
