"""Layouts of what moves into, out of and inside the heap."""

import dataclasses

from amaranth import Cat, Shape, Value
from amaranth.lib import data

from golden.parameters import RisParameters, ScoreboardParameters
from rtl.sorting.entry import Mode, entry_layout, group_layout

__all__ = [
    "access_layout",
    "build_layout",
    "entry_of",
    "group_of",
    "halves_layout",
    "heap_ris",
    "invocation_layout",
    "minimum_layout",
    "outranks",
    "pair_count",
    "picks_layout",
    "place_layout",
    "region_layout",
    "replace_layout",
    "tag_layout",
    "update_layout",
]


def outranks(a, b) -> Value:
    """Whether entry ``a`` ranks above ``b``: by key, of equal keys the lower index."""
    return Cat(~a.index, a.key) > Cat(~b.index, b.key)


def entry_of(p: ScoreboardParameters) -> data.StructLayout:
    """One token: the sort key of its score, and its slot."""
    return entry_layout(p.score_width, p.slot_width)


def group_of(p: ScoreboardParameters) -> data.ArrayLayout:
    """Entries of one node; the lowest is first, the highest last."""
    return group_layout(p.ways, p.score_width, p.slot_width)


def pair_count(p: ScoreboardParameters) -> int:
    """Rows of the minima array: node i of a region at ``base`` has row ``base // 2 + i``."""
    return max(2, p.heap_rows // 2)


def region_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Where the heap of one context stands: its first row, and how many nodes it has."""
    return data.StructLayout({"base": range(p.heap_rows), "nodes": range(p.heap_rows + 1)})


def replace_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Entry that takes the place of the minimum."""
    return data.StructLayout({
        "region": region_layout(p),
        "key": p.score_width,
        "slot": p.slot_width,
    })


def build_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Entries, in any order, of the next node of a heap under construction."""
    return data.StructLayout({"region": region_layout(p), "entries": group_of(p), "last": 1})


def minimum_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Lowest entry of a heap."""
    return data.StructLayout({"key": p.score_width, "slot": p.slot_width})


def access_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Raw access to one node; ``data`` matters to writes."""
    return data.StructLayout({
        "region": region_layout(p),
        "write": 1,
        "node": range(p.heap_rows),
        "data": group_of(p),
    })


def place_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Where a node is stored: its row, and the row and half of its minimum.

    A ``root`` has no stored minimum.
    """
    return data.StructLayout({
        "row": range(p.heap_rows),
        "pair": range(pair_count(p)),
        "side": 1,
        "root": 1,
    })


def tag_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Tag of an invocation: for whom, and of a row update its place and whether it is the last."""
    return data.StructLayout({"build": 1, "place": place_layout(p), "last": 1})


def update_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Entry that one node of a path gains in place of its minimum."""
    return data.StructLayout({"incoming": entry_of(p), "place": place_layout(p), "last": 1})


def heap_ris(p: ScoreboardParameters) -> RisParameters:
    """Parameters of the sorter that serves a heap."""
    return dataclasses.replace(p.ris(), tag_width=Shape.cast(tag_layout(p)).width)


def _with_tag(p: ScoreboardParameters, members: dict) -> data.StructLayout:
    return data.StructLayout(members | {"tag": heap_ris(p).tag_width})


def invocation_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Payload of the sorter's ``i_sort``."""
    return _with_tag(p, {"mode": Mode, "a": group_of(p), "b": group_of(p)})


def picks_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Payload of the sorter's ``i_pick``."""
    return _with_tag(p, {"a": group_of(p), "b": group_of(p)})


def halves_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Payload of the sorter's ``o_pick``."""
    return _with_tag(p, {"upper": group_of(p), "lower": group_of(p)})
