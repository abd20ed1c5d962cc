"""Tests of the comparator networks in :mod:`rtl.sorting.networks`."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.parameters import NETWORKS, SorterParameters
from rtl.sorting import networks

WAYS = (4, 8, 16, 32)
CELLS = {
    "bitonic": (6, 24, 80, 240),
    "odd_even_merge": (5, 19, 63, 191),
    "size_optimal": (5, 19, 60, 185),
}


def run(stages, entries):
    """Entries after a network; of each pair the higher one ends at the first place."""
    entries = list(entries)
    for i, j in itertools.chain(*stages):
        entries[i], entries[j] = max(entries[i], entries[j]), min(entries[i], entries[j])
    return entries


def all_vectors(ways):
    return np.array(list(itertools.product([False, True], repeat=ways))).T


def without(stages, stage, cell):
    """Network that lacks one comparator."""
    pairs = stages[stage][:cell] + stages[stage][cell + 1 :]
    return (*stages[:stage], pairs, *stages[stage + 1 :])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("ways", WAYS)
def test_sorter_has_the_stated_cells_and_stages(name, ways):
    stages = networks.sorter(name, ways)

    assert networks.comparators(stages) == CELLS[name][WAYS.index(ways)]
    assert len(stages) == SorterParameters(ways=ways, network=name).stages


@pytest.mark.parametrize("ways, cells, stages", [(4, 4, 2), (8, 10, 3), (16, 22, 4), (32, 46, 5)])
def test_picker_and_merger_have_the_stated_cells_and_stages(ways, cells, stages):
    assert networks.comparators(networks.picker(ways)) == cells
    assert len(networks.picker(ways)) == stages
    assert networks.comparators(networks.merger(ways)) == ways
    assert len(networks.merger(ways)) == 1


@pytest.mark.parametrize("ways", WAYS)
def test_pairs_of_a_stage_touch_different_places(ways):
    sorters = [networks.sorter(name, ways) for name in NETWORKS]
    for stage in itertools.chain(*sorters, networks.picker(ways), networks.merger(ways)):
        places = list(itertools.chain(*stage))
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("ways", [4, 8, 16])
def test_sorts_every_vector_of_zeros_and_ones(name, ways):
    vectors = all_vectors(ways)

    result = networks.apply(networks.sorter(name, ways), vectors)

    assert (result == np.sort(vectors, axis=0)[::-1]).all()


@pytest.mark.parametrize("ways", [4, 8, 16])
def test_picks_the_ends_of_every_vector_of_zeros_and_ones(ways):
    vectors = all_vectors(ways)

    result = networks.apply(networks.picker(ways), vectors)

    assert (result[0] == vectors.all(axis=0)).all()
    assert (result[-1] == vectors.any(axis=0)).all()
    assert (result.sum(axis=0) == vectors.sum(axis=0)).all()


@pytest.mark.parametrize("ways", WAYS)
def test_merges_every_pair_of_descending_vectors(ways):
    for high, low in itertools.product(range(ways + 1), repeat=2):
        vector = [i < high for i in range(ways)] + [i < low for i in range(ways)]
        merged = run(networks.merger(ways), vector)
        assert sum(merged[:ways]) == min(high + low, ways)
        assert sum(merged) == high + low


@given(st.sampled_from(NETWORKS), st.lists(st.integers(0, 40), min_size=32, max_size=32))
def test_sorts_32_entries_whose_halves_are_proven_apart(name, entries):
    assert run(networks.sorter(name, 32), entries) == sorted(entries, reverse=True)


@given(st.lists(st.integers(0, 40), min_size=32, max_size=32))
def test_picks_the_ends_of_32_entries(entries):
    picked = run(networks.picker(32), entries)

    assert (picked[0], picked[-1]) == (min(entries), max(entries))
    assert sorted(picked) == sorted(entries)


@given(
    st.sampled_from(WAYS),
    st.lists(st.integers(0, 9), min_size=64, max_size=64),
)
def test_upper_is_ranked_if_the_partner_is_below_all(ways, entries):
    """A group sorted against an all-empty partner leaves in order."""
    group = sorted(entries[:ways], reverse=True)

    assert run(networks.merger(ways), group + [-1] * ways)[:ways] == group


@pytest.mark.parametrize("name, ways", [("size_optimal", 8), ("size_optimal", 16), ("bitonic", 32)])
def test_refuses_a_sorter_that_lacks_any_comparator(name, ways, monkeypatch):
    whole = networks.sorter(name, ways)
    message = f"^Network {name} of {ways} ways does not do what its name says$"
    for stage, pairs in enumerate(whole):
        for cell in range(0, len(pairs), 1 if ways < 32 else 5):
            broken = without(whole, stage, cell)
            monkeypatch.setattr(networks, name, lambda _, broken=broken: broken)
            with pytest.raises(ValueError, match=message):
                networks.sorter.__wrapped__(name, ways)


def test_refuses_a_sorter_of_32_whose_halves_are_mixed(monkeypatch):
    whole = networks.bitonic(32)
    crossed = (tuple((i, j ^ 16) for i, j in whole[0]), *whole[1:])
    monkeypatch.setattr(networks, "bitonic", lambda _: crossed)

    with pytest.raises(ValueError, match="^Network bitonic of 32 ways does not do what its name"):
        networks.sorter.__wrapped__("bitonic", 32)


@pytest.mark.parametrize("ways", WAYS)
def test_proofs_of_picker_and_merger_refuse_any_missing_comparator(ways):
    for check, stages in (
        (networks.picks, networks.picker(ways)),
        (networks.merges, networks.merger(ways)),
    ):
        assert check(stages, ways)
        for stage, pairs in enumerate(stages):
            assert not any(check(without(stages, stage, c), ways) for c in range(len(pairs)))


def test_twice_is_the_same_network_on_each_half():
    stages = networks.twice(networks.sorter("size_optimal", 4), 4)

    assert run(stages, [1, 3, 2, 4, 8, 5, 7, 6]) == [4, 3, 2, 1, 8, 7, 6, 5]
