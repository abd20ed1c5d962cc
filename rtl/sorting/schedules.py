"""Selection schedules: which groups are compared in which order, proven when loaded.

``python -m rtl.sorting.schedules`` prints invocations and rounds of every schedule.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rtl.sorting.zero_one import Comparators, run, section_masks

__all__ = [
    "MOST_GROUPS",
    "TABLE",
    "Comparators",
    "Schedule",
    "Target",
    "depth",
    "first_layer",
    "key",
    "kept_wires",
    "load_table",
    "markdown",
    "schedule",
]

MOST_GROUPS = 16

#: Committed result of :mod:`rtl.sorting.schedule_search`.
TABLE = Path(__file__).with_name("schedules.json")


@dataclasses.dataclass(frozen=True)
class Target:
    """What a schedule selects: the highest ``full`` of ``groups``, and the next if ``boundary``.

    Without boundary at least one group is kept and one is not; with it at least the boundary group
    remains: all other selections need no comparison.
    """

    groups: int
    full: int
    boundary: bool

    def __post_init__(self):
        low, high = (0, self.groups - 1) if self.boundary else (1, self.groups - 1)
        if not 1 <= self.groups <= MOST_GROUPS:
            raise ValueError(f"Groups must be from 1 to {MOST_GROUPS}, not {self.groups}")
        if not low <= self.full <= high:
            raise ValueError(
                f"Full must be from {low} to {high} of {self.groups} groups, not {self.full}"
            )

    def __str__(self):
        return f"({self.groups},{self.full}{'+b' if self.boundary else ''})"

    @property
    def totals(self) -> tuple[int, ...]:
        """Numbers of ones that decide whether a network is right."""
        return (self.full, self.full + 1) if self.boundary else (self.full,)

    @property
    def separates(self) -> "Target":
        """The target whose comparators do: a boundary group at either end is a plain selection."""
        if self.boundary and self.groups > 1:
            if self.full == 0:
                return Target(self.groups, 1, False)
            if self.full == self.groups - 1:
                return Target(self.groups, self.full, False)
        return self

    @property
    def mirror(self) -> "Target":
        """The same split counted from the lowest group."""
        full = self.groups - self.full - self.boundary
        return dataclasses.replace(self, full=full)

    @classmethod
    def all(cls, groups: int) -> Iterator["Target"]:
        """Every target for that many groups."""
        yield from (cls(groups, full, False) for full in range(1, groups))
        yield from (cls(groups, full, True) for full in range(groups))

    @classmethod
    def primitives(cls, groups: int) -> Iterator["Target"]:
        """Targets that no other one answers."""
        for target in cls.all(groups):
            if target.separates == target and target.full <= target.mirror.full and groups > 1:
                yield target


def first_layer(groups: int) -> Comparators:
    """Neighbours first, as they arrive; an odd last group waits."""
    return tuple((2 * pair, 2 * pair + 1) for pair in range(groups // 2))


def kept_wires(
    comparators: Sequence[tuple[int, int]], target: Target, start: Sequence[int] | None = None
) -> tuple[tuple[int, ...], int | None] | None:
    """Wires of the full groups and of the boundary group; None if the network does not select.

    Decided by the 0-1 vectors with ``full`` (and ``full + 1``) ones; see :class:`Schedule`.
    """
    wires = run(target.groups, comparators, target.totals, start)
    masks = section_masks(target.groups, target.totals)
    kept = tuple(w for w, bits in enumerate(wires) if bits & masks[0] == masks[0] and target.full)
    if len(kept) != target.full:
        return None
    if not target.boundary:
        return kept, None
    upper = [w for w, bits in enumerate(wires) if bits & masks[1] == masks[1] and w not in kept]
    return (kept, upper[0]) if len(upper) == 1 else None


def depth(comparators: Sequence[tuple[int, int]], target: Target) -> int:
    """Count the rounds, with that of the invocation that ranks the boundary group."""
    level = [0] * target.groups
    for upper, lower in comparators:
        level[upper] = level[lower] = max(level[upper], level[lower]) + 1
    if target.boundary:
        wires = kept_wires(comparators, target)
        if wires is not None and wires[1] is not None:
            level[wires[1]] += 1
    return max(level, default=0)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Comparators between groups, and the wires on which the selected groups end.

    A comparator puts the W highest entries of two groups on its first wire, the others on its
    second. After all of them the ``kept`` wires hold the highest ``full * W`` entries and wire
    ``boundary`` the next W; one more invocation ranks the latter.

    That 0-1 vectors of whole groups suffice, whatever W: let a group hold ones in a share x of its
    places; a comparator maps (x, y) to (min(1, x + y), max(0, x + y - 1)). Between the folds of
    that map each wire is 0, 1 or a sum of the shares of some input groups less an integer, and the
    sets of input groups on the wires are disjoint and only ever merge. So the folds bound polytopes
    by a laminar family of sums with integer limits, which is totally unimodular: the corners are
    0-1 vectors, and the network, linear in between, keeps what it keeps at the corners.

    Raises
    ------
    ValueError
        If the 2**groups 0-1 vectors show that the network does not select.
    """

    target: Target
    comparators: Comparators
    kept: tuple[int, ...] = ()
    boundary: int | None = None

    def __post_init__(self):
        if not self._proven():
            raise ValueError(f"Schedule {self.target} does not select what it says")

    def _proven(self) -> bool:
        """Check all 0-1 vectors, by their number of ones."""
        full, rejected = self.target.full, self.target.full + self.target.boundary
        if len(self.kept) != full or (self.boundary is None) == self.target.boundary:
            return False
        totals = tuple(range(self.target.groups + 1))
        masks = section_masks(self.target.groups, totals)
        for wire, bits in enumerate(run(self.target.groups, self.comparators, totals)):
            if wire in self.kept:
                must_be_one, must_be_zero = totals[full:], ()
            elif wire == self.boundary:
                must_be_one, must_be_zero = totals[rejected:], totals[:rejected]
            else:
                must_be_one, must_be_zero = (), totals[:rejected + 1]
            if any(masks[ones] & ~bits for ones in must_be_one):
                return False
            if any(masks[ones] & bits for ones in must_be_zero):
                return False
        return True

    @property
    def invocations(self) -> int:
        """Invocations of the sorter, the ranking one included."""
        return len(self.comparators) + self.target.boundary

    @property
    def rounds(self) -> int:
        """Longest chain of dependent invocations."""
        return depth(self.comparators, self.target)


@functools.cache
def load_table() -> dict[str, Comparators]:
    """Read the comparators that the search found, by :func:`key`."""

    def pairs(text):
        return tuple((int(pair[0], 16), int(pair[1], 16)) for pair in text.split())

    return {name: pairs(text) for name, text in json.loads(TABLE.read_text()).items()}


def key(target: Target) -> str:
    """Name of a target in the table."""
    return f"{target.groups:02},{target.full}{'+b' if target.boundary else ''}"


@functools.cache
def schedule(groups: int, full: int, boundary: bool) -> Schedule:
    """Proven schedule with the fewest invocations known.

    Parameters
    ----------
    groups : int
        From 1 to 16.
    full : int
        Groups kept whole: from 0 with ``boundary``, from 1 without, and below ``groups``.
    boundary : bool
        Whether the next group is separated and ranked too.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    target = Target(groups, full, boundary)
    comparators = _comparators(target.separates)
    wires = kept_wires(comparators, target)
    kept, last = wires if wires is not None else ((), None)
    return Schedule(target, comparators, kept, last)


def _comparators(target: Target) -> Comparators:
    if target.groups == 1:
        return ()
    table = load_table()
    if key(target) in table:
        return table[key(target)]
    return tuple((lower, upper) for upper, lower in table[key(target.mirror)])


def markdown() -> str:
    """Write invocations and rounds of all schedules as a Markdown table."""
    lines = [
        "| groups | full groups kept: invocations/rounds | the same with a boundary group |",
        "|---|---|---|",
    ]
    for groups in range(1, MOST_GROUPS + 1):
        cells: dict[bool, list[str]] = {False: [], True: []}
        for target in Target.all(groups):
            made = schedule(groups, target.full, target.boundary)
            cells[target.boundary].append(f"{target.full}: {made.invocations}/{made.rounds}")
        lines.append(f"| {groups} | {', '.join(cells[False])} | {', '.join(cells[True])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
