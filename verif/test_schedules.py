"""Selection schedules and their microcode, against exhaustive 0-1 checks and the golden model."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from golden.ris import sort_merge
from golden.selection import select_keys
from rtl.sorting import networks
from rtl.sorting.microcode import Microcode, program, rows_of, word_layout
from rtl.sorting.schedules import MOST_GROUPS, Target, key, load_table, markdown, schedule
from rtl.sorting.selection_timing import clocks_to_mask

TARGETS = [target for groups in range(1, MOST_GROUPS + 1) for target in Target.all(groups)]


def made(target):
    return schedule(target.groups, target.full, target.boundary)


def split(counts, made, places):
    """Ones in each group after the schedule, from ones in each group before, shape (groups, n)."""
    counts = counts.copy()
    for upper, lower in made.comparators:
        total = counts[upper] + counts[lower]
        counts[upper] = np.minimum(total, places)
        counts[lower] = total - counts[upper]
    return counts


def selects(counts, made, places):
    """Whether the groups kept hold as many ones as the highest groups of a sorted vector."""
    after = split(counts, made, places)
    total = counts.sum(axis=0)
    full = made.target.full
    right = (after[list(made.kept)].sum(axis=0) == np.minimum(total, full * places)).all()
    if made.boundary is not None:
        right &= (after[made.boundary] == np.clip(total - full * places, 0, places)).all()
    return right


def all_counts(groups, places):
    """Every choice of 0 .. places ones in each group, shape (groups, (places + 1) ** groups)."""
    numbers = np.arange((places + 1) ** groups)
    return numbers // (places + 1) ** np.arange(groups)[:, np.newaxis] % (places + 1)


@pytest.mark.parametrize("groups", range(1, MOST_GROUPS + 1))
def test_every_schedule_selects_all_zero_one_vectors(groups):
    counts = all_counts(groups, 1).astype(np.int8)
    for target in Target.all(groups):
        assert selects(counts, made(target), 1), target


@pytest.mark.parametrize("places, groups", [(2, 8), (3, 8)])
def test_every_schedule_selects_groups_of_several_entries_exhaustively(places, groups):
    for target in TARGETS:
        if target.groups <= groups:
            counts = all_counts(target.groups, places).astype(np.int8)
            assert selects(counts, made(target), places), target


@pytest.mark.nightly
@pytest.mark.parametrize("places, groups", [(2, 13), (3, 11)])
def test_every_schedule_selects_larger_vectors_exhaustively(places, groups):
    for target in TARGETS:
        if target.groups <= groups:
            counts = all_counts(target.groups, places).astype(np.int8)
            assert selects(counts, made(target), places), target


@pytest.mark.parametrize("places", [2, 3, 16, 32])
def test_every_schedule_selects_random_counts(places):
    rng = np.random.default_rng(places)
    for target in TARGETS:
        counts = rng.integers(places + 1, size=(target.groups, 300))
        counts[:, ::3] = rng.integers(2, size=counts[:, ::3].shape) * places
        # Totals at the border of the selection are the hard ones.
        border = counts[:, 1::3]
        excess = border.sum(axis=0) - places * target.full
        for group in border:
            change = np.clip(excess, group - places, group)
            group -= change
            excess -= change
        assert selects(counts, made(target), places), target


@pytest.mark.parametrize("target", [t for t in TARGETS if t.groups <= 8], ids=str)
def test_no_comparator_is_superfluous(target):
    """Every comparator taken away is noticed: the check can fail, and nothing is wasted."""
    whole = made(target)
    for number in range(len(whole.comparators)):
        fewer = whole.comparators[:number] + whole.comparators[number + 1 :]
        with pytest.raises(ValueError, match=re.escape(f"Schedule {target} does not select")):
            dataclasses.replace(whole, comparators=fewer)


@pytest.mark.parametrize(
    "groups, full, boundary, most",
    [
        (4, 2, False, 4),
        (8, 4, False, 14),
        (8, 2, False, 12),
        (8, 1, False, 7),
        (4, 1, False, 3),
        (8, 2, True, 16),
        (8, 1, True, 14),
        (8, 3, True, 18),
    ],
)
def test_invocations(groups, full, boundary, most):
    assert schedule(groups, full, boundary).invocations <= most


def test_top_8_of_16_takes_4_invocations_in_2_rounds_and_full_ranking_5_in_3():
    ranking = networks.sorter("size_optimal", 4)
    assert (networks.comparators(ranking), len(ranking)) == (5, 3)
    selection = schedule(4, 2, False)
    assert (selection.invocations, selection.rounds) == (4, 2)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_neighbours_meet_first(target):
    """Groups are compared as they arrive, so that they never go to memory before."""
    pairs = [(2 * pair, 2 * pair + 1) for pair in range(target.groups // 2)]
    comparators = made(target).comparators
    assert [tuple(sorted(pair)) for pair in comparators[: len(pairs)]] == pairs


class Machine:
    """What the sequencer does, word by word; complains about rows that hold nothing."""

    def __init__(self, keys):
        self.groups, self.ways = keys.shape
        indices = np.arange(keys.size).reshape(keys.shape)
        self.input = list(zip(keys, indices, strict=True))
        self.rows = {}
        if self.groups % 2:
            self.rows[0, self.groups // 2] = self.input[-1]
        self.selected = []

    def run(self, words, rest):
        for number, word in enumerate(words):
            if word.arrives:
                a, b = self.input[2 * number : 2 * number + 2]
            else:
                a = self.rows.pop((0, word.rows[0]))
                nothing = np.zeros(self.ways, np.uint16), np.full(self.ways, 0xFFFF)
                b = nothing if word.ranks else self.rows.pop((1, word.rows[1]))
            upper, lower = sort_merge(*a, *b)
            if word.selects:
                count = rest if word.ranks else self.ways
                real = upper.keys[:count] != 0
                self.selected += upper.indices[:count][real].tolist()
            else:
                self.store(word.swap, word.rows, upper)
            if word.stores:
                self.store(not word.swap, word.rows, lower)
        return sorted(self.selected)

    def store(self, bank, rows, group):
        assert (bank, rows[bank]) not in self.rows
        self.rows[bank, rows[bank]] = group


@pytest.mark.parametrize("groups", range(1, MOST_GROUPS + 1))
def test_every_program_selects_what_golden_selects(groups):
    rng = np.random.default_rng(groups)
    ways = 4
    for target in Target.all(groups):
        for levels in (2, 60000):
            keys = rng.integers(1, levels + 1, size=(groups, ways), dtype=np.uint16)
            keys.flat[keys.size - rng.integers(ways) :] = 0
            rest = int(rng.integers(1, ways)) if target.boundary else 0
            words = program(target.groups, target.full, target.boundary)
            wanted = np.flatnonzero(select_keys(keys.ravel(), target.full * ways + rest))
            assert Machine(keys).run(words, rest) == wanted.tolist(), target


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_only_the_last_word_ends_a_program(target):
    words = program(target.groups, target.full, target.boundary)
    assert [word.last for word in words] == [False] * (len(words) - 1) + [True]
    assert words[-1].selects


@pytest.mark.parametrize("groups", [1, 2, 5, 8])
def test_microcode_holds_every_program(groups):
    code = Microcode(groups)
    layout = word_layout(groups)
    assert set(code.starts) == {t for n in range(1, groups + 1) for t in Target.all(n)}
    for target, start in code.starts.items():
        for offset, word in enumerate(program(target.groups, target.full, target.boundary)):
            packed = layout.from_bits(code.words[start + offset])
            assert list(packed.rows) == list(word.rows)
            for name in ("arrives", "ranks", "swap", "selects", "stores", "last"):
                assert packed[name] == getattr(word, name)


def test_rows_of_a_vector_fit_both_banks():
    for target in TARGETS:
        words = program(target.groups, target.full, target.boundary)
        assert all(row < rows_of(target.groups) for word in words for row in word.rows)


def test_more_rounds_take_longer():
    assert clocks_to_mask(8, 2, True, 5) > clocks_to_mask(8, 2, False, 5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0, 0, True), "Groups must be from 1 to 16, not 0"),
        ((17, 1, False), "Groups must be from 1 to 16, not 17"),
        ((4, 0, False), "Full must be from 1 to 3 of 4 groups, not 0"),
        ((4, 4, True), "Full must be from 0 to 3 of 4 groups, not 4"),
    ],
)
def test_rejects_what_needs_no_schedule(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        schedule(*arguments)


def test_table_has_no_entry_that_is_never_used():
    primitives = itertools.chain(*(Target.primitives(n) for n in range(2, MOST_GROUPS + 1)))
    assert set(load_table()) == {key(target) for target in primitives}


def test_table_in_the_documentation_is_the_one_printed():
    page = Path(__file__).parent.parent / "docs" / "selection.md"
    assert markdown() in page.read_text()
