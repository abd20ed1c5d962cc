"""Rows of the scoreboard's own memories, and what its parts hand to one another."""

from amaranth.lib import data

from golden.parameters import ScoreboardParameters
from rtl.hikv.interface import Cause
from rtl.sorting.entry import group_layout

__all__ = [
    "UNOCCUPIED",
    "budget_row_layout",
    "cause_of_layout",
    "context_shape",
    "entry_shape",
    "important_mark",
    "lane_bits",
    "minimum_layout",
    "outcome_layout",
    "state_layout",
    "weights_row_layout",
]

#: Score of a slot that nobody has, as an integer that is cut to the width of a score.
UNOCCUPIED = -1


def context_shape(p: ScoreboardParameters) -> range:
    """Shape of the number of a context."""
    return range(max(2, p.contexts))


def lane_bits(p: ScoreboardParameters) -> int:
    """Lowest bits of a slot, or of a place in the ring: its lane in a row."""
    return (p.lanes - 1).bit_length()


def important_mark(p: ScoreboardParameters) -> int:
    """Score of a slot whose token is in the important bank: the sign bit alone."""
    return 1 << (p.score_width - 1)


def entry_shape(p: ScoreboardParameters) -> data.ArrayLayout:
    """One node of the heap."""
    return group_layout(p.ways, p.score_width, p.slot_width)


def budget_row_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Capacities of a context, and where its rows begin."""
    return data.StructLayout({
        "cap_recent": range(p.max_slots + 1),
        "cap_important": range(p.max_slots + 1),
        "heap_base": range(p.heap_rows),
        "score_base": range(p.score_rows),
        "ring_base": range(p.ring_rows),
    })


def state_layout(p: ScoreboardParameters) -> data.StructLayout:
    """State that changes with every step: tokens per bank, place and slot of the oldest recent."""
    return data.StructLayout({
        "recent": range(p.max_slots + 1),
        "important": range(p.max_slots + 1),
        "place": range(max(2, p.max_slots)),
        "oldest": p.slot_width,
    })


def minimum_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Lowest entry of the important bank; the key is EMPTY while there is room."""
    return data.StructLayout({"key": p.score_width, "slot": p.slot_width})


def weights_row_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Rows that the P of a step touches: the first, and how many follow it."""
    return data.StructLayout({"base": range(p.score_rows), "more": range(p.score_rows)})


def outcome_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Part of a response that is not in the command."""
    return data.StructLayout({
        "slot": p.slot_width,
        "evicted": 1,
        "promoted": 1,
        "occupied": range(p.max_slots + 1),
        "cause": Cause,
    })


def cause_of_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Context that is lost, and why."""
    return data.StructLayout({"valid": 1, "context": context_shape(p), "cause": Cause})
