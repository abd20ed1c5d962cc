"""Layouts of what sorters move: entries (key, index) and groups of them."""

from amaranth.lib import data, enum

__all__ = ["Mode", "entry_layout", "group_layout"]


class Mode(enum.Enum, shape=2):
    """Operation of one invocation of the importance sorter (HiKV, IV-B)."""

    GLOBAL_SORT = 0
    CHUNK_SORT = 1
    HEAPIFY_UP = 2
    HEAPIFY_DOWN = 3


def entry_layout(key_width: int, index_width: int) -> data.StructLayout:
    """One entry: unsigned sort key, and the index that it belongs to."""
    return data.StructLayout({"key": key_width, "index": index_width})


def group_layout(ways: int, key_width: int, index_width: int) -> data.ArrayLayout:
    """``ways`` entries, element 0 in the least significant bits."""
    return data.ArrayLayout(entry_layout(key_width, index_width), ways)
