"""Golden model of :class:`rtl.hikv.heap.Heap`: a min-heap whose nodes are groups (HiKV, IV-B)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.numerics import EMPTY, blocked
from golden.ris import Entries
from golden.sorter import sort_entries

__all__ = ["Built", "Replaced", "build", "node_count", "nodes_of", "replace"]


class Built(NamedTuple):
    """A heap, and how many sorter invocations its construction took."""

    heap: Entries
    invocations: int


class Replaced(NamedTuple):
    """A heap, and the nodes that the insertion touched, from the root on."""

    heap: Entries
    path: list[int]


def node_count(capacity: int, ways: int) -> int:
    """Nodes of a heap of that capacity, at least 1."""
    return -(-capacity // ways)


def nodes_of(
    keys: NDArray[np.unsignedinteger],
    indices: NDArray[np.integer],
    *,
    capacity: int,
    ways: int,
    index_width: int,
) -> Entries:
    """Lay entries out as nodes for :func:`build`: then empty places, then blocked ones.

    Parameters
    ----------
    keys, indices : ndarray, shape (count,)
        At most ``capacity`` entries, in any order.
    capacity : int
        Entries that the heap may hold.
    ways : int
        Entries of a node.
    index_width : int
        Bits of an index; empty and blocked places have all ones.

    Returns
    -------
    Entries
        Of shape (nodes, ways), dtype of ``keys``.

    Raises
    ------
    ValueError
        If there are more entries than the capacity.
    """
    count = len(keys)
    if count > capacity:
        raise ValueError(f"Entries must be at most the capacity ({capacity}), not {count}")
    places = node_count(capacity, ways) * ways
    laid_keys = np.full(places, EMPTY, keys.dtype)
    laid_keys[:count] = keys
    laid_keys[capacity:] = blocked(keys.dtype.itemsize * 8)
    laid_indices = np.full(places, (1 << index_width) - 1)
    laid_indices[:count] = indices
    return Entries(laid_keys.reshape(-1, ways), laid_indices.reshape(-1, ways))


def _ascending(keys: NDArray[Any], indices: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    descending = sort_entries(keys, indices)
    return descending[0][..., ::-1], descending[1][..., ::-1]


def _outranks(heap: Entries, a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether the entry at place ``a`` ranks above the one at ``b``."""
    (key_a, key_b), (index_a, index_b) = ((part[a], part[b]) for part in heap)
    return bool(key_a > key_b or (key_a == key_b and index_a < index_b))


def build(nodes: Entries) -> Built:
    """Construct a heap node by node (``HEAPIFY_UP``).

    Each node is merged with its parent, whose lower half moves on towards the root, until a merge
    would change nothing. A new node is merged at least once, node 0 picked once.

    Parameters
    ----------
    nodes : Entries, shape (nodes, ways)
        Entries in any order.

    Returns
    -------
    Built
        Its nodes are in ascending order; the hardware promises the first and the last place only.
    """
    ways = nodes.keys.shape[1]
    heap = Entries(nodes.keys.copy(), nodes.indices.copy())
    heap.keys[0], heap.indices[0] = _ascending(nodes.keys[0], nodes.indices[0])
    invocations = 1
    for new in range(1, len(heap.keys)):
        node = new
        while node:
            parent = (node - 1) // 2
            if node != new and not _outranks(heap, (parent, ways - 1), (node, 0)):
                break
            both = [parent] * ways + [node] * ways
            places = list(range(ways)) * 2
            keys, indices = _ascending(heap.keys[both, places], heap.indices[both, places])
            heap.keys[both, places], heap.indices[both, places] = keys, indices
            invocations += 1
            node = parent
    return Built(heap, invocations)


def replace(heap: Entries, key: int, index: int) -> Replaced:
    """Put an entry in the place of the minimum (``HEAPIFY_DOWN``).

    A node on the path loses its minimum. It gains the lower of its children's minima (of two equal
    ones the left child's) if the entry ranks above that, else the entry, and the path ends.

    Parameters
    ----------
    heap : Entries, shape (nodes, ways)
        Ascending nodes; left as it is.
    key : int
        Of the entry.
    index : int
        Of the entry, which must rank above the minimum.

    Returns
    -------
    Replaced
        Its nodes are in ascending order.
    """
    heap = Entries(heap.keys.copy(), heap.indices.copy())
    heap.keys[0, 0], heap.indices[0, 0] = key, index
    node, path = 0, [0]
    while True:
        children = [child for child in (2 * node + 1, 2 * node + 2) if child < len(heap.keys)]
        if not children:
            break
        lower = children[0]
        if len(children) == 2 and _outranks(heap, (children[0], 0), (children[1], 0)):
            lower = children[1]
        if not _outranks(heap, (node, 0), (lower, 0)):
            break
        for part in heap:
            part[node, 0], part[lower, 0] = part[lower, 0], part[node, 0]
        node = lower
        path.append(node)
    for touched in path:
        heap.keys[touched], heap.indices[touched] = _ascending(
            heap.keys[touched], heap.indices[touched]
        )
    return Replaced(heap, path)
