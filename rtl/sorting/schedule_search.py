"""Search for selection schedules with few invocations; writes the table that is committed.

``python -m rtl.sorting.schedule_search --seconds 10`` improves ``schedules.json`` in place. It
starts from sorting networks cut down to what the selection needs and mutates them at random, never
leaving the networks that select correctly.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from rtl.sorting import networks
from rtl.sorting.schedules import (
    TABLE,
    Comparators,
    Target,
    depth,
    first_layer,
    kept_wires,
    key,
    load_table,
)
from rtl.sorting.zero_one import run

__all__ = ["main"]


def _sorting_network(groups: int) -> Iterator[Comparators]:
    """Sorting networks of 16 (and 8, 4) wires, cut down to ``groups``, in our first layer."""
    for name in ("size_optimal", "odd_even_merge"):
        for ways in (4, 8, 16):
            if ways >= groups:
                stages = networks.sorter(name, ways)
                yield _cut([pair for stage in stages for pair in stage], ways, groups)


def _cut(pairs: list[tuple[int, int]], ways: int, groups: int) -> Comparators:
    """Rename the wires to :func:`first_layer`, then feed the last ones with empty groups."""
    place: dict[int, int] = {}
    for upper, lower in pairs[: ways // 2]:
        place[upper], place[lower] = len(place), len(place) + 1
    renamed = [(place[upper], place[lower]) for upper, lower in pairs]
    wire = list(range(ways))
    cut = []
    for upper, lower in renamed:
        if wire[lower] >= groups:
            continue
        if wire[upper] >= groups:
            wire[upper], wire[lower] = wire[lower], wire[upper]
            continue
        cut.append((wire[upper], wire[lower]))
    return tuple(cut)


def _pair(groups: int, rng: random.Random) -> tuple[int, int]:
    upper, lower = rng.sample(range(groups), 2)
    return upper, lower


def _mutated(tail: list[tuple[int, int]], groups: int, rng: random.Random) -> list[tuple[int, int]]:
    tail = list(tail)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        kind = rng.random()
        if not tail or kind < 0.1:
            tail.insert(rng.randrange(len(tail) + 1), _pair(groups, rng))
            continue
        at = rng.randrange(len(tail))
        if kind < 0.4:
            del tail[at]
        elif kind < 0.6:
            tail[at] = _pair(groups, rng)
        elif kind < 0.8:
            other = rng.randrange(len(tail))
            tail[at], tail[other] = tail[other], tail[at]
        elif kind < 0.9:
            tail.insert(rng.randrange(len(tail)), tail.pop(at))
        else:
            other = rng.randrange(len(tail))
            (a, b), (c, d) = tail[at], tail[other]
            if a != d and c != b:
                tail[at], tail[other] = (a, d), (c, b)
    return tail


def _cost(comparators: Comparators, target: Target) -> tuple[int, int]:
    return len(comparators), depth(comparators, target)


def _pruned(comparators: Comparators, target: Target, rng: random.Random) -> Comparators:
    """Remove comparators, in random order, as long as the selection stays right."""
    first = len(first_layer(target.groups))
    kept = list(comparators)
    order = list(range(first, len(kept)))
    rng.shuffle(order)
    removed: set[int] = set()
    for at in order:
        without = [c for i, c in enumerate(kept) if i not in removed | {at}]
        if kept_wires(without, target) is not None:
            removed.add(at)
    return tuple(c for i, c in enumerate(kept) if i not in removed)


def _search(
    target: Target, start: Comparators | None, seconds: float, rng: random.Random
) -> Comparators:
    layer = first_layer(target.groups)
    seeds = [start] if start is not None else []
    bases = list(_sorting_network(target.groups))
    for _ in range(8):
        seeds += [_pruned(base, target, rng) for base in bases]
    best = min(seeds, key=lambda c: _cost(c, target))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        current = rng.choice([best, best, *seeds])
        cost = _cost(current, target)
        prefix = run(target.groups, layer, target.totals)
        for _ in range(3000 if target.groups <= 8 else 1500):
            tail = _mutated(list(current[len(layer):]), target.groups, rng)
            if len(layer) + len(tail) > cost[0]:
                continue
            if kept_wires(tail, target, prefix) is None:
                continue
            candidate = (*layer, *tail)
            new = _cost(candidate, target)
            if new <= cost or (new[0] == cost[0] and new[1] <= cost[1] + 1 and rng.random() < 0.2):
                current, cost = candidate, new
                if cost < _cost(best, target):
                    best = current
    return best


def main() -> None:
    """Search each target for some seconds; keep what is better than the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="*", default=range(2, 17))
    parser.add_argument("--seconds", type=float, default=10, help="per target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=TABLE)
    args = parser.parse_args()
    table = load_table() if args.output == TABLE and TABLE.exists() else {}
    rng = random.Random(args.seed)
    for groups in args.groups:
        for target in Target.primitives(groups):
            start = table.get(key(target))
            best = _search(target, start, args.seconds if groups > 3 else 0.1, rng)
            if start is None or _cost(best, target) < _cost(start, target):
                table[key(target)] = best
                text = {name: _text(table[name]) for name in sorted(table)}
                args.output.write_text(json.dumps(text, indent=0) + "\n")
            print(key(target), *_cost(table[key(target)], target), flush=True)


def _text(comparators: Comparators) -> str:
    return " ".join(f"{upper:x}{lower:x}" for upper, lower in comparators)


if __name__ == "__main__":
    main()
