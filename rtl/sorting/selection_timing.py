"""Clocks that the selection of one vector takes when nothing else is going on."""

from rtl.sorting.microcode import Invocation, program

__all__ = ["TRIVIAL", "clocks_to_mask"]

#: From the last beat to the selection, if all or none of the entries are selected.
TRIVIAL = 2

# From an event in the clock of an issue to what it causes.
_FETCH = 2
_REQUEST = 1
_STORED = 1
_LISTED = 1
_FINISHED = 1


def _issue_clocks(groups: int, words: tuple[Invocation, ...], sort_latency: int) -> list[int]:
    """Clock of each issue; the job starts in clock 0, its beats come from clock 1 on."""
    present: dict[tuple[int, int], int] = {}
    if groups % 2:
        present[0, groups // 2] = groups + 2
    clock, clocks = 0, []
    for number, word in enumerate(words):
        clock += _FETCH
        if word.arrives:
            clock = max(clock, 2 * number + 2)
        else:
            banks = (0,) if word.ranks else (0, 1)
            clock = max(clock, *(present[bank, word.rows[bank]] for bank in banks))
        clocks.append(clock)
        for bank, row in enumerate(word.rows):
            present[bank, row] = clock + _REQUEST + sort_latency + _STORED
    return clocks


def clocks_to_mask(groups: int, full: int, boundary: bool, sort_latency: int) -> int:
    """Clocks from the last beat of a vector to its selection, if it is alone.

    Parameters
    ----------
    groups, full, boundary
        As of :func:`rtl.sorting.schedules.schedule`.
    sort_latency : int
        Of the sorter.
    """
    words = program(groups, full, boundary)
    last = _issue_clocks(groups, words, sort_latency)[-1]
    return last + _REQUEST + sort_latency + _LISTED + _FINISHED - groups
