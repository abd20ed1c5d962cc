"""Comparator networks as data: stages of pairs, proven when made."""

import functools
from collections.abc import Callable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Stages",
    "apply",
    "bitonic",
    "comparators",
    "merger",
    "merges",
    "odd_even_merge",
    "picker",
    "picks",
    "size_optimal",
    "sorter",
    "sorts",
    "twice",
]

#: Of each pair (i, j) the entry that ranks higher goes to place i, the other one to place j. The
#: pairs of one stage touch different places.
Stages = tuple[tuple[tuple[int, int], ...], ...]

_MOST_EXHAUSTIVE = 16

# The fewest comparators known, at the depth of the bitonic network.
_SIZE_OPTIMAL: dict[int, Stages] = {
    4: (
        ((0, 2), (1, 3)),
        ((0, 1), (2, 3)),
        ((1, 2),),
    ),
    8: (
        ((0, 2), (1, 3), (4, 6), (5, 7)),
        ((0, 4), (1, 5), (2, 6), (3, 7)),
        ((0, 1), (2, 3), (4, 5), (6, 7)),
        ((2, 4), (3, 5)),
        ((1, 4), (3, 6)),
        ((1, 2), (3, 4), (5, 6)),
    ),
    16: (
        ((0, 13), (1, 12), (2, 15), (3, 14), (4, 8), (5, 6), (7, 11), (9, 10)),
        ((0, 5), (1, 7), (2, 9), (3, 4), (6, 13), (8, 14), (10, 15), (11, 12)),
        ((0, 1), (2, 3), (4, 5), (6, 8), (7, 9), (10, 11), (12, 13), (14, 15)),
        ((0, 2), (1, 3), (4, 10), (5, 11), (6, 7), (8, 9), (12, 14), (13, 15)),
        ((1, 2), (3, 12), (4, 6), (5, 7), (8, 10), (9, 11), (13, 14)),
        ((1, 4), (2, 6), (5, 8), (7, 10), (9, 13), (11, 14)),
        ((2, 4), (3, 6), (9, 12), (11, 13)),
        ((3, 5), (6, 8), (7, 9), (10, 12)),
        ((3, 4), (5, 6), (7, 8), (9, 10), (11, 12)),
        ((6, 7), (8, 9)),
    ),
}


def comparators(stages: Stages) -> int:
    """Compare-exchange cells of a network."""
    return sum(len(pairs) for pairs in stages)


def twice(stages: Stages, ways: int) -> Stages:
    """Double a network: two groups of ``ways``, one behind the other."""
    return _beside(stages, _shifted(stages, ways))


def _beside(*networks: Stages) -> Stages:
    """Networks of equal depth side by side."""
    return tuple(tuple(chain(*stages)) for stages in zip(*networks, strict=True))


def _shifted(stages: Stages, offset: int) -> Stages:
    return tuple(tuple((i + offset, j + offset) for i, j in pairs) for pairs in stages)


def _merge_sort(ways: int, merge: Callable[[int], Stages]) -> Stages:
    """Sorter made of two of half the size and ``merge`` of their sorted halves."""
    if ways == 1:
        return ()
    return twice(_merge_sort(ways // 2, merge), ways // 2) + merge(ways)


def _bitonic_merge(ways: int) -> Stages:
    first = tuple((i, ways - 1 - i) for i in range(ways // 2))
    distances = [ways >> level for level in range(2, ways.bit_length())]
    return first, *(tuple((i, i + d) for i in range(ways) if not i & d) for d in distances)


def _odd_even_merge(ways: int) -> Stages:
    first = tuple((i, i + ways // 2) for i in range(ways // 2))
    distances = [ways >> level for level in range(2, ways.bit_length())]
    return first, *(tuple((i, i + d) for i in range(d, ways - d) if i & d) for d in distances)


def bitonic(ways: int) -> Stages:
    """Bitonic sorter, all comparators in one direction."""
    return _merge_sort(ways, _bitonic_merge)


def odd_even_merge(ways: int) -> Stages:
    """Odd-even merge sorter."""
    return _merge_sort(ways, _odd_even_merge)


def size_optimal(ways: int) -> Stages:
    """Sorter with the fewest comparators known at the depth of the bitonic one."""
    if ways in _SIZE_OPTIMAL:
        return _SIZE_OPTIMAL[ways]
    return twice(size_optimal(ways // 2), ways // 2) + _odd_even_merge(ways)


def apply(stages: Stages, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Evaluate a network for 0-1 inputs, shape (ways, vectors)."""
    bits = bits.copy()
    for pairs in stages:
        for i, j in pairs:
            bits[i], bits[j] = bits[i] | bits[j], bits[i] & bits[j]
    return bits


def _all_vectors(ways: int) -> NDArray[np.bool_]:
    return np.arange(1 << ways) >> np.arange(ways)[:, np.newaxis] & 1 != 0


def _sorted_halves(ways: int) -> NDArray[np.bool_]:
    """Every 0-1 vector of ``ways`` places whose two halves descend."""
    half = np.arange(ways // 2)[:, np.newaxis] < np.arange(ways // 2 + 1)
    return np.concatenate([np.repeat(half, half.shape[1], axis=1), np.tile(half, half.shape[1])])


def _descends(bits: NDArray[np.bool_]) -> bool:
    return not (bits[1:] & ~bits[:-1]).any()


def sorts(stages: Stages, ways: int) -> bool:
    """Whether place 0 ends with the highest entry, and so on down.

    By the 0-1 principle: exhaustive up to 16 ways, above that the halves, then their merge.
    """
    if ways <= _MOST_EXHAUSTIVE:
        return _descends(apply(stages, _all_vectors(ways)))
    half = ways // 2
    levels = half.bit_length() - 1
    depth = levels * (levels + 1) // 2
    halves, merge = stages[:depth], stages[depth:]
    if any((i < half) != (j < half) for pairs in halves for i, j in pairs):
        return False
    low = tuple(tuple(p for p in pairs if p[0] < half) for pairs in halves)
    high = tuple(tuple((i - half, j - half) for i, j in s if i >= half) for s in halves)
    merged = apply(merge, _sorted_halves(ways))
    return sorts(low, half) and sorts(high, half) and _descends(merged)


def merges(stages: Stages, ways: int) -> bool:
    """Whether, of two descending groups of ``ways``, the highest entries end in the first half."""
    merged = apply(stages, _sorted_halves(2 * ways))
    return not (merged[ways:].any(axis=0) & ~merged[:ways].all(axis=0)).any()


def picks(stages: Stages, ways: int) -> bool:
    """Whether the lowest entry ends at place 0 and the highest at the last place.

    Outputs of a network are monotone, so that one high (low) entry among others proves it.
    """
    one_high = apply(stages, np.eye(ways, dtype=bool))
    one_low = apply(stages, ~np.eye(ways, dtype=bool))
    return bool(one_high[-1].all() and not one_low[0].any())


def _prove(holds: bool, name: str, ways: int) -> None:
    if not holds:
        raise ValueError(f"Network {name} of {ways} ways does not do what its name says")


@functools.cache
def sorter(name: str, ways: int) -> Stages:
    """Sorting network of a name in :data:`golden.parameters.NETWORKS`, proven.

    Parameters
    ----------
    name : str
        One of ``bitonic``, ``odd_even_merge``, ``size_optimal``.
    ways : int
        A power of two from 4 to 32.

    Returns
    -------
    Stages
        ``levels * (levels + 1) / 2`` of them, ``levels`` the logarithm of ``ways``; place 0 ends
        with the highest entry.
    """
    networks: dict[str, Callable[[int], Stages]] = {
        "bitonic": bitonic,
        "odd_even_merge": odd_even_merge,
        "size_optimal": size_optimal,
    }
    stages = networks[name](ways)
    _prove(sorts(stages, ways), name, ways)
    return stages


@functools.cache
def merger(ways: int) -> Stages:
    """One stage that splits two descending groups, one behind the other, into upper and lower.

    Returns
    -------
    Stages
        Over ``2 * ways`` places: the first half ends with the ``ways`` highest entries.
    """
    stages = (tuple((i, 2 * ways - 1 - i) for i in range(ways)),)
    _prove(merges(stages, ways), "merger", ways)
    return stages


@functools.cache
def picker(ways: int) -> Stages:
    """Network that brings the lowest entry to place 0 and the highest to the last place."""
    half = ways // 2
    stages = [tuple((i + half, i) for i in range(half))]
    while half > 1:
        half //= 2
        low = tuple((i + half, i) for i in range(half))
        high = tuple((ways - 1 - i, ways - 1 - i - half) for i in range(half))
        stages.append(low + high)
    _prove(picks(tuple(stages), ways), "picker", ways)
    return tuple(stages)
