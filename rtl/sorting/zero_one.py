"""Exhaustive 0-1 evaluation of comparator networks whose kept wires are not ordered.

A wire carries one bit per input vector, in one big integer. The vectors are grouped into sections
by their number of ones.
"""

import functools
import math
from collections.abc import Iterable, Sequence

__all__ = ["Comparators", "run", "section_masks"]

#: Pairs (upper, lower), first to last: the higher entry goes to wire ``upper``.
Comparators = tuple[tuple[int, int], ...]


@functools.cache
def _section(groups: int, ones: int) -> tuple[int, ...]:
    """Wires of all vectors with that many ones."""
    if not 0 <= ones <= groups:
        return (0,) * groups
    if groups == 0:
        return ()
    zeros_last, ones_last = _section(groups - 1, ones), _section(groups - 1, ones - 1)
    offset = math.comb(groups - 1, ones)
    last = ((1 << math.comb(groups - 1, ones - 1)) - 1 if ones else 0) << offset
    joined = (low | high << offset for low, high in zip(zeros_last, ones_last, strict=True))
    return (*joined, last)


@functools.cache
def section_masks(groups: int, totals: tuple[int, ...]) -> tuple[int, ...]:
    """One mask per total: which bits of a wire belong to vectors with that many ones."""
    masks, offset = [], 0
    for ones in totals:
        size = math.comb(groups, ones)
        masks.append(((1 << size) - 1) << offset)
        offset += size
    return tuple(masks)


@functools.cache
def _vectors(groups: int, totals: tuple[int, ...]) -> tuple[int, ...]:
    wires, offset = [0] * groups, 0
    for ones in totals:
        for wire, bits in enumerate(_section(groups, ones)):
            wires[wire] |= bits << offset
        offset += math.comb(groups, ones)
    return tuple(wires)


def run(
    groups: int,
    comparators: Iterable[tuple[int, int]],
    totals: tuple[int, ...],
    start: Sequence[int] | None = None,
) -> list[int]:
    """Wires after the network, for all vectors with one of the ``totals`` of ones.

    Parameters
    ----------
    groups : int
        Wires.
    comparators : iterable of (upper, lower)
        First to last.
    totals : tuple of int
        Sections, in this order.
    start : sequence of int, optional
        Wires after an earlier part of the network, instead of its inputs.
    """
    wires = list(start if start is not None else _vectors(groups, totals))
    for upper, lower in comparators:
        high, low = wires[upper], wires[lower]
        wires[upper] = high | low
        wires[lower] = high & low
    return wires
