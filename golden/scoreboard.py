"""Rows of a context that :class:`rtl.hikv.scoreboard_core.ScoreboardCore` saves and loads."""

import dataclasses
from collections import deque

import numpy as np

from golden.hikv import Context
from golden.numerics import EMPTY, blocked, rank, score_keys
from golden.parameters import ScoreboardParameters

__all__ = ["SavedContext", "read_rows", "row_count", "saved_bytes", "saved_rows"]


def _ceil(count: int, per_row: int) -> int:
    return -(-count // per_row)


@dataclasses.dataclass(frozen=True)
class _Format:
    """Widths and counts of the rows of a context with given capacities."""

    p: ScoreboardParameters
    cap_recent: int
    cap_important: int

    @property
    def slots(self) -> int:
        return self.cap_recent + self.cap_important

    @property
    def row_bits(self) -> int:
        return self.p.lanes * self.p.score_width

    @property
    def nodes(self) -> int:
        return _ceil(self.cap_important, self.p.ways)

    @property
    def entries(self) -> int:
        room = self.row_bits // (self.p.score_width + self.p.slot_width)
        return min(self.p.ways, 1 << (room.bit_length() - 1))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows of ring, heap and scores."""
        lanes = self.p.lanes
        return (
            _ceil(self.cap_recent, lanes),
            self.nodes * self.p.ways // self.entries,
            _ceil(self.slots, lanes),
        )

    @property
    def header(self) -> tuple[int, ...]:
        """Widths of both counts, the place and both capacities."""
        count = self.p.max_slots.bit_length()
        return (count, count, max(1, (self.p.max_slots - 1).bit_length()), count, count)


def _join(values, widths) -> int:
    row = shift = 0
    for value, width in zip(values, widths, strict=True):
        row |= int(value) << shift
        shift += width
    return row


def _split(row: int, widths) -> list[int]:
    values = []
    for width in widths:
        values.append(row & ((1 << width) - 1))
        row >>= width
    return values


def row_count(p: ScoreboardParameters, cap_recent: int, cap_important: int) -> int:
    """Rows that SAVE gives and LOAD takes, header included, whatever the context holds."""
    return 1 + sum(_Format(p, cap_recent, cap_important).counts)


def saved_bytes(p: ScoreboardParameters, cap_recent: int, cap_important: int) -> int:
    """Bytes that moving a context in or out takes: metadata traffic."""
    return row_count(p, cap_recent, cap_important) * p.lanes * p.score_width // 8


@dataclasses.dataclass(frozen=True)
class SavedContext:
    """What the rows of a context say, independent of how ring and heap are arranged.

    Parameters
    ----------
    recent : list of int
        Slots of the recent bank, oldest first.
    important : dict of int to int
        Slots of the important bank and their sort keys.
    scores : dict of int to int
        Scores of the recent slots.
    """

    recent: list[int]
    important: dict[int, int]
    scores: dict[int, int]

    @classmethod
    def of(cls, context: Context) -> "SavedContext":
        """State of a golden context."""
        keys = score_keys(context.scores, context.score_format)
        return cls(
            recent=list(context.recent),
            important={slot: int(keys[slot]) for slot in sorted(context.important)},
            scores={slot: int(context.scores[slot]) for slot in context.recent},
        )


def saved_rows(context: Context, p: ScoreboardParameters) -> list[int]:
    """Rows to load a golden context with: its ring begins at place 0, its heap is sorted."""
    form = _Format(p, context.cap_recent, context.cap_important)
    ones, index_ones = blocked(p.score_width), (1 << p.slot_width) - 1
    recent, important = list(context.recent), np.array(sorted(context.important), dtype=np.intp)
    header = (len(recent), len(important), 0, context.cap_recent, context.cap_important)
    ring = [*recent, *[0] * (form.counts[0] * p.lanes - len(recent))]

    keys = score_keys(context.scores[important], context.score_format)
    order = rank(keys, important)[::-1]
    heap = [(EMPTY, index_ones)] * (context.cap_important - len(important))
    heap += zip(keys[order].tolist(), important[order].tolist(), strict=True)
    heap += [(ones, index_ones)] * (form.nodes * p.ways - len(heap))

    scores = [ones] * (form.counts[2] * p.lanes)
    for slot in context.important:
        scores[slot] = 1 << (p.score_width - 1)
    for slot in context.recent:
        scores[slot] = int(context.scores[slot])

    rows = [_join(header, form.header)]
    for values, width, per_row in (
        (ring, p.slot_width, p.lanes),
        ([key | slot << p.score_width for key, slot in heap], p.score_width + p.slot_width,
         form.entries),
        (scores, p.score_width, p.lanes),
    ):  # fmt: skip
        parts = [values[start : start + per_row] for start in range(0, len(values), per_row)]
        rows += [_join(part, [width] * per_row) for part in parts]
    return rows


def read_rows(
    rows: list[int], p: ScoreboardParameters, cap_recent: int, cap_important: int
) -> SavedContext:
    """Read saved rows, and check every rule of their format.

    Raises
    ------
    ValueError
        If a rule is broken: counts, marks, a doubled slot, the order of the heap.
    """
    form = _Format(p, cap_recent, cap_important)

    def check(holds: bool, text: str):
        if not holds:
            raise ValueError(f"Saved rows: {text}")

    check(len(rows) == 1 + sum(form.counts), f"{len(rows)} rows")
    ends = np.cumsum([1, *form.counts])
    ring_rows, heap_rows, score_rows = (
        rows[start:end] for start, end in zip(ends, ends[1:], strict=False)
    )
    count, kept, place, *caps = _split(rows[0], form.header)
    check(caps == [cap_recent, cap_important], f"capacities {caps}")
    check(count <= cap_recent and place < cap_recent, f"{count} recent from place {place}")
    check(count == cap_recent or place == 0, f"place {place} of a ring that is not full")

    ring = [v for row in ring_rows for v in _split(row, [p.slot_width] * p.lanes)][:count]
    recent = deque(ring)
    recent.rotate(-place)
    important = _read_heap(heap_rows, form, check)
    check(len(important) == kept, f"{len(important)} important, not {kept}")
    occupied = sorted([*ring, *important])
    check(occupied == list(range(count + kept)), f"slots {occupied}")

    mark, ones = 1 << (p.score_width - 1), blocked(p.score_width)
    scores = [v for row in score_rows for v in _split(row, [p.score_width] * p.lanes)]
    for slot, score in enumerate(scores):
        expected = mark if slot in important else ones if slot >= count + kept else None
        check(score < mark if expected is None else score == expected, f"slot {slot}: {score:#x}")
    return SavedContext(list(recent), important, {slot: scores[slot] for slot in recent})


def _read_heap(rows: list[int], form: _Format, check) -> dict[int, int]:
    """Slots and keys of the heap's entries."""
    p, width = form.p, form.p.score_width
    index_ones = (1 << p.slot_width) - 1
    values = [v for row in rows for v in _split(row, [width + p.slot_width] * form.entries)]
    entries = [(v & blocked(width), v >> width) for v in values]
    nodes = [entries[n * p.ways : (n + 1) * p.ways] for n in range(form.nodes)]
    order = [[(key, -slot) for key, slot in node] for node in nodes]
    for number, node in enumerate(order):
        check(node[0] == min(node) and node[-1] == max(node), f"order in node {number}")
        if number:
            check(order[(number - 1) // 2][-1] <= node[0], f"order above node {number}")
    reserved = [entry for entry in entries if entry[0] in (EMPTY, blocked(width))]
    check(all(slot == index_ones for _, slot in reserved), "slot of an empty place")
    full = sum(key == blocked(width) for key, _ in reserved)
    check(full == len(entries) - form.cap_important, f"{full} places beyond the capacity")
    return {slot: key for key, slot in sorted(entries, key=lambda e: e[1])
            if key not in (EMPTY, blocked(width))}  # fmt: skip
