"""Heaps of several contexts, what is done to them, and what must come of it."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.heap import build, node_count, nodes_of, replace
from golden.parameters import ScoreboardParameters
from golden.ris import Entries
from golden.sorter import sort_entries

__all__ = ["Case", "keys_of", "make_cases", "normal"]


def keys_of(rng: np.random.Generator, count: int, width: int, levels: int) -> NDArray[Any]:
    """Sort keys of tokens, NaN among them, of at most ``levels`` values; 0: any value."""
    dtype = np.uint16 if width == 16 else np.uint32
    top = (1 << width) - 2
    values = rng.integers(1, top, size=levels or 4 * count + 1, endpoint=True)
    return rng.choice(values, size=count).astype(dtype)


def normal(heap: Entries) -> list[tuple]:
    """First, last and set of entries of each node, for comparison by ``==``."""
    nodes = []
    for keys, indices in zip(heap.keys.tolist(), heap.indices.tolist(), strict=True):
        entries = list(zip(keys, indices, strict=True))
        nodes.append((entries[0], entries[-1], sorted(entries)))
    return nodes


@dataclasses.dataclass
class Case:
    """One context: how it starts, what replaces its minimum, and how it ends.

    Parameters
    ----------
    base : int
        First row.
    nodes : Entries
        As given to the construction.
    replacements : list of (int, int)
        Keys and slots.
    minima : list of (int, int)
        After the construction, and after each replacement.
    heap : Entries
        At the end.
    """

    base: int
    nodes: Entries
    replacements: list[tuple[int, int]]
    minima: list[tuple[int, int]]
    heap: Entries

    @property
    def region(self) -> dict[str, int]:
        """Region as the block takes it."""
        return {"base": self.base, "nodes": len(self.nodes.keys)}


def _minimum(heap: Entries) -> tuple[int, int]:
    return int(heap.keys[0, 0]), int(heap.indices[0, 0])


def _ranked(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(entries, key=lambda entry: (entry[0], -entry[1]))


def _flat(heap: Entries) -> list[tuple[int, int]]:
    return list(zip(heap.keys.ravel().tolist(), heap.indices.ravel().tolist(), strict=True))


def make_case(
    rng: np.random.Generator,
    p: ScoreboardParameters,
    *,
    base: int,
    capacity: int,
    tokens: int,
    newcomers: int,
    levels: int,
) -> Case:
    """Random tokens, then random newcomers, of which those below the minimum are left out.

    The golden heap is held against a plain sorted list all the time.
    """
    keys = keys_of(rng, tokens + newcomers, p.score_width, levels)
    slots = rng.permutation(p.max_slots)[: tokens + newcomers]
    nodes = nodes_of(keys[:tokens], slots[:tokens], capacity=capacity, ways=p.ways,
                     index_width=p.slot_width)  # fmt: skip
    heap = build(nodes).heap
    best = _ranked(_flat(nodes))
    case = Case(base, nodes, [], [_minimum(heap)], heap)
    for key, slot in zip(keys[tokens:].tolist(), slots[tokens:].tolist(), strict=True):
        if (key, -slot) < (best[0][0], -best[0][1]):
            continue
        heap = replace(heap, key, slot).heap
        best = _ranked([*best[1:], (key, slot)])
        assert _ranked(_flat(heap)) == best
        assert_ordered(heap)
        case.replacements.append((key, slot))
        case.minima.append(_minimum(heap))
        assert case.minima[-1] == best[0]
    case.heap = heap
    return case


def assert_ordered(heap: Entries) -> None:
    """No entry of a node ranks above any of a child."""
    for node in range(1, len(heap.keys)):
        parent = (node - 1) // 2
        pair = sort_entries(heap.keys[[parent, node]], heap.indices[[parent, node]])
        highest = int(pair[0][0, 0]), -int(pair[1][0, 0])
        lowest = int(pair[0][1, -1]), -int(pair[1][1, -1])
        assert highest <= lowest


def make_cases(
    rng: np.random.Generator,
    p: ScoreboardParameters,
    capacities: list[int],
    *,
    newcomers: int,
    levels: int = 0,
    fill: float | None = None,
) -> list[Case]:
    """One context per capacity, side by side, filled to a share of it at the start; unset: any."""
    cases, base = [], 0
    for capacity in capacities:
        tokens = round(capacity * (rng.random() if fill is None else fill))
        cases.append(make_case(rng, p, base=base, capacity=capacity, tokens=tokens,
                               newcomers=newcomers, levels=levels))  # fmt: skip
        base += node_count(capacity, p.ways)
    if base > p.heap_rows:
        raise ValueError(f"Capacities must fit into {p.heap_rows} rows, not {base}")
    return cases
