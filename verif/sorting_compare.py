"""Groups of entries in a canonical order, to compare those whose order is free."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_sets", "entries"]


def entries(group: dict[str, NDArray[Any]], index_width: int) -> NDArray[np.uint64]:
    """One number per entry, whose order is that of key, then index; shape of the fields."""
    keys = group["key"].astype(np.uint64)
    return keys << np.uint64(index_width) | group["index"].astype(np.uint64)


def as_sets(group: dict[str, NDArray[Any]], index_width: int) -> NDArray[np.uint64]:
    """Entries of each group, ascending."""
    return np.sort(entries(group, index_width), axis=-1)
