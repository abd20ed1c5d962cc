"""How a context is laid out in the rows of SAVE and LOAD."""

from amaranth.lib import data

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import entry_of

__all__ = ["entries_per_row", "entry_rows", "header_layout", "parts_per_node", "row_bits"]


def row_bits(p: ScoreboardParameters) -> int:
    """Bits of a row of the stream."""
    return p.lanes * p.score_width


def header_layout(p: ScoreboardParameters) -> data.StructLayout:
    """First row: what each bank holds, where the ring begins, and the budget."""
    count = range(p.max_slots + 1)
    return data.StructLayout({
        "recent": count,
        "important": count,
        "place": range(max(2, p.max_slots)),
        "cap_recent": count,
        "cap_important": count,
    })


def entries_per_row(p: ScoreboardParameters) -> int:
    """Entries of a heap node that one row holds, a power of two."""
    room = row_bits(p) // entry_of(p).size
    return min(p.ways, 1 << (room.bit_length() - 1))


def parts_per_node(p: ScoreboardParameters) -> int:
    """Rows of one heap node."""
    return p.ways // entries_per_row(p)


def entry_rows(p: ScoreboardParameters) -> data.ArrayLayout:
    """Entries of a row."""
    return data.ArrayLayout(entry_of(p), entries_per_row(p))
