"""Microcode of the selection sequencer: schedules with a place in memory for every group."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Const
from amaranth.lib import data

from rtl.sorting.schedules import Schedule, Target, schedule

__all__ = ["Invocation", "Microcode", "program", "rows_of", "word_layout"]

#: Clocks from issue to issue of a dependent invocation that programs are ordered for.
_NOMINAL_LATENCY = 9


@dataclasses.dataclass(frozen=True)
class Invocation:
    """One invocation of the sorter: operands from one row of each bank, results into the same rows.

    Parameters
    ----------
    rows : tuple of int
        Row in bank 0 and in bank 1.
    arrives : bool
        The operands are the next two groups of the input instead.
    ranks : bool
        The second operand is an empty group; of the upper result only the first entries count.
    swap : bool
        The upper result goes to bank 1, the lower one to bank 0.
    selects : bool
        The upper result is selected; otherwise it goes to memory. The lower one never is: then
        both would be, and comparing them would be in vain.
    stores : bool
        The lower result goes to memory; otherwise it is dropped.
    last : bool
        The program ends with it.
    """

    rows: tuple[int, int]
    arrives: bool
    ranks: bool
    swap: bool
    selects: bool
    stores: bool
    last: bool


def rows_of(groups: int) -> int:
    """Rows of each bank that a vector of that many groups needs; 2 at least, for its addresses."""
    return max(2, -(-groups // 2))


def word_layout(groups: int) -> data.StructLayout:
    """Microcode word of a sequencer for vectors up to ``groups``."""
    return data.StructLayout({
        "rows": data.ArrayLayout(range(rows_of(groups)), 2),
        "arrives": 1,
        "ranks": 1,
        "swap": 1,
        "selects": 1,
        "stores": 1,
        "last": 1,
    })


def _heights(pairs: list[tuple[int, ...]]) -> list[int]:
    """Longest chain of invocations that starts at each; pairs of the wires they touch."""
    heights, height = [0] * len(pairs), {}
    for number in reversed(range(len(pairs))):
        heights[number] = 1 + max(height.get(wire, 0) for wire in pairs[number])
        height |= dict.fromkeys(pairs[number], heights[number])
    return heights


def _ordered(pairs: list[tuple[int, ...]], arriving: int) -> list[int]:
    """Numbers of the invocations in the order of issue, the ``arriving`` ones first.

    They issue in order, so the order decides how well rounds overlap: always the one next that can
    start first, of several the one with the longest chain behind it.
    """
    heights = _heights(pairs)
    order, time = list(range(arriving)), 2 * arriving
    done = {w: 2 * n + 2 + _NOMINAL_LATENCY for n in order for w in pairs[n]}
    waiting = list(range(arriving, len(pairs)))
    while waiting:
        blocked: set[int] = set()
        free = []
        for number in waiting:
            if blocked.isdisjoint(pairs[number]):
                start = max(time, *(done.get(wire, 0) for wire in pairs[number]))
                free.append((start, -heights[number], number))
            blocked |= set(pairs[number])
        start, _, number = min(free)
        waiting.remove(number)
        order.append(number)
        time = start + 1
        done |= dict.fromkeys(pairs[number], start + _NOMINAL_LATENCY)
    return order


def _coloured(edges: dict[int, list[int]], zeros: list[int]) -> dict[int, int]:
    """Two-colouring with ``zeros`` coloured 0.

    It exists: a value has one edge to its twin result and one to its fellow operand, so that edges
    alternate along paths and even cycles; the odd last group and the group to be ranked are ends
    of paths at an even distance.
    """
    colour: dict[int, int] = {}
    for start in [*zeros, *edges]:
        waiting = [(start, 0)] if start not in colour else []
        while waiting:
            value, shade = waiting.pop()
            if value in colour:
                assert colour[value] == shade
                continue
            colour[value] = shade
            waiting += [(other, 1 - shade) for other in edges[value]]
    assert not any(colour[value] for value in zeros)
    return colour


@functools.cache
def program(groups: int, full: int, boundary: bool) -> tuple[Invocation, ...]:
    """Invocations of a schedule in the order of issue.

    Parameters
    ----------
    groups, full, boundary
        As of :func:`rtl.sorting.schedules.schedule`.
    """
    return _place(schedule(groups, full, boundary))


def _place(made: Schedule) -> tuple[Invocation, ...]:
    groups = made.target.groups
    arriving = groups // 2
    pairs: list[tuple[int, ...]] = list(made.comparators)
    if made.boundary is not None:
        pairs.append((made.boundary,))
    order = _ordered(pairs, arriving)

    # A value is one result of an invocation, or the odd last group; wires hold the latest.
    bye = 2 * len(pairs)
    wires = {groups - 1: bye} if groups % 2 else {}
    operands: list[tuple[int, ...]] = []
    consumed: set[int] = set()
    for number in order:
        operands.append(tuple(wires[w] for w in pairs[number]) if number >= arriving else ())
        consumed |= set(operands[-1])
        wires |= {wire: 2 * number + lower for lower, wire in enumerate(pairs[number])}
    kept = {wires[wire] for wire in made.kept}
    if made.boundary is not None:
        kept.add(wires[made.boundary])

    edges: dict[int, list[int]] = {value: [] for value in range(bye + 1)}
    twins = [(2 * n, 2 * n + 1) for n in order if {2 * n, 2 * n + 1} <= consumed]
    for one, other in [*twins, *(pair for pair in operands if len(pair) == 2)]:
        edges[one].append(other)
        edges[other].append(one)
    alone = [pair[0] for pair in operands if len(pair) == 1]
    bank = _coloured(edges, [bye, *alone])

    row = {bye: arriving}
    placed = []
    for position, (number, values) in enumerate(zip(order, operands, strict=True)):
        rows = (number, number) if number < arriving else (0, 0)
        for value in values:
            rows = (row[value], rows[1]) if bank[value] == 0 else (rows[0], row[value])
        upper, lower = 2 * number, 2 * number + 1
        swap = bank[upper] == 1 if upper in consumed else bank[lower] == 0
        row |= {upper: rows[swap], lower: rows[not swap]}
        assert (upper in consumed) != (upper in kept) and lower not in kept
        placed.append(
            Invocation(
                rows=rows,
                arrives=number < arriving,
                ranks=len(pairs[number]) == 1,
                swap=swap,
                selects=upper in kept,
                stores=lower in consumed,
                last=position == len(order) - 1,
            )
        )
    return tuple(placed)


class Microcode:
    """Programs of all targets up to ``groups``, one behind the other.

    Attributes
    ----------
    words : list of int
        As :func:`word_layout` packs them.
    starts : dict of Target to int
        Address of each program's first word.
    """

    def __init__(self, groups: int):
        self.groups = groups
        self.words: list[int] = []
        self.starts: dict[Target, int] = {}
        for target in self._targets():
            self.starts[target] = len(self.words)
            invocations = program(target.groups, target.full, target.boundary)
            self.words += [self._pack(invocation) for invocation in invocations]

    def _targets(self) -> Iterator[Target]:
        for groups in range(1, self.groups + 1):
            yield from Target.all(groups)

    def _pack(self, invocation: Invocation) -> int:
        layout = word_layout(self.groups)
        fields: dict[int | str, Any] = {**dataclasses.asdict(invocation)}
        fields["rows"] = list(invocation.rows)
        return Const.cast(layout.const(fields)).value
