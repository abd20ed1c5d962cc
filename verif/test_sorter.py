# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.sorting.sorter.Sorter` and its parts, in the Amaranth simulator."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Const
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.parameters import NETWORKS, SorterParameters
from golden.sorter import sort_entries
from rtl.sorting.compare_exchange import Network
from rtl.sorting.networks import picker
from rtl.sorting.sorter import Sorter
from verif import sim
from verif.sorting_stimulus import groups, ordered, payloads, unranked


def simulate(parameters, keys, indices, *, i_gap=0, o_gap=0):
    """Keys and indices that leave a sorter, with up to so many idle clocks between transfers."""
    dut = Sorter(parameters)
    results = []

    async def drive(ctx):
        await sim.drive(ctx, dut.i, payloads(keys, indices), sim.gaps(1, i_gap))

    async def collect(ctx):
        idle = sim.gaps(2, o_gap) if parameters.stall else None
        results.extend(await sim.collect(ctx, dut.o, len(keys), idle))

    sim.run(dut, drive, collect)
    return unranked(results)


def assert_sorted(parameters, keys, indices, **gaps):
    got = simulate(parameters, keys, indices, **gaps)
    expected = sort_entries(keys, indices)
    assert [side.tolist() for side in got] == [side.tolist() for side in expected]


@pytest.mark.parametrize("i_gap, o_gap", [(0, 0), (3, 0), (0, 3), (3, 3)])
@pytest.mark.parametrize("pipeline", [None, (), (1,), (1, 2, 3)])
@pytest.mark.parametrize("network", ["bitonic", "size_optimal"])
def test_matches_golden_under_stalls(network, pipeline, i_gap, o_gap):
    parameters = SorterParameters(ways=4, network=network, pipeline=pipeline)
    keys, indices = groups(np.random.default_rng(3), 16, parameters)

    assert_sorted(parameters, keys, indices, i_gap=i_gap, o_gap=o_gap)


@pytest.mark.parametrize(
    "ways, key_width, index_width, network, stall",
    [
        (4, 32, 32, "bitonic", False),
        (4, 16, 1, "odd_even_merge", True),
        (8, 32, 7, "odd_even_merge", True),
        (8, 16, 16, "size_optimal", False),
        (8, 16, 32, "bitonic", True),
        (16, 16, 16, "size_optimal", True),
        (32, 16, 5, "size_optimal", False),
    ],
)
def test_matches_golden_at_all_sizes(ways, key_width, index_width, network, stall):
    parameters = SorterParameters(
        ways=ways, network=network, key_width=key_width, index_width=index_width, stall=stall
    )
    keys, indices = groups(np.random.default_rng(4), 16, parameters)

    assert_sorted(parameters, keys, indices)


def test_ranks_keys_of_two_and_three_values_by_index():
    """Every group of four keys of three values, with the indices in every order."""
    keys = np.array(list(itertools.product([7, 8, 0x8007], repeat=4)), np.uint16).repeat(24, axis=0)
    indices = np.tile(list(itertools.permutations(range(4))), (81, 1))

    assert_sorted(SorterParameters(ways=4), keys, indices)


def test_all_keys_equal_lose_and_double_no_index():
    indices = np.random.default_rng(5).integers(1 << 16, size=(30, 8))
    keys = np.repeat(np.array([[0x8000], [0x0000], [0xFFFF]], np.uint16), 10, axis=0)

    assert_sorted(SorterParameters(ways=8), np.repeat(keys, 8, axis=1), indices)


def test_sorts_input_that_is_not_sorted_already():
    keys = np.array([[1000, 3000, 2000, 4000], [4000, 3000, 2000, 1000]], np.uint16)
    indices = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])

    got, _ = simulate(SorterParameters(ways=4), keys, indices)

    assert got.tolist() == [[4000, 3000, 2000, 1000]] * 2


def test_differences_of_one_bit_decide():
    """Two entries that differ in one bit of key or index, against all ones and zeros below."""
    words = [1 << bit for bit in range(32)] + [(1 << bit) - 1 for bit in range(33)]
    pairs = [(a, b) for a in words for b in (a - 1, a + 1, a ^ (1 << 16)) if 0 <= b < 1 << 32]
    entries = np.array([(a, b, 0, (1 << 32) - 1) for a, b in pairs], np.uint64)
    keys, indices = (entries >> 16).astype(np.uint16), (entries & 0xFFFF).astype(np.int64)

    assert_sorted(SorterParameters(ways=4, pipeline=(3,)), keys, indices)


@settings(max_examples=15)
@given(st.data())
def test_matches_golden_for_any_few_valued_entries(data):
    entry = st.tuples(st.sampled_from([0, 1, 2, 0x8000, 0xFFFE, 0xFFFF]), st.integers(0, 3))
    entries = np.array(data.draw(st.lists(st.tuples(*[entry] * 4), min_size=1, max_size=6)))

    assert_sorted(SorterParameters(ways=4), entries[..., 0].astype(np.uint16), entries[..., 1])


def test_padding_never_wins_at_any_length():
    """Also not against real keys with the pattern of the padding or of the smallest legal key."""
    lengths = [length for length in range(1, 9) for _ in range(3)]
    keys, indices = np.zeros((24, 8), np.uint16), np.full((24, 8), 0xFFFF)
    for beat, length in enumerate(lengths):
        keys[beat, :length] = (0x0000, 0x0002, 0x03FF)[beat % 3]
        indices[beat, :length] = np.arange(length)[::-1]

    got = simulate(SorterParameters(ways=8, network="size_optimal"), keys, indices)

    for length, group in zip(lengths, got[1].tolist(), strict=True):
        assert group[:length] == list(range(length))


@pytest.mark.parametrize("network", NETWORKS)
def test_without_index_tiebreak_keys_are_sorted_and_entries_kept(network):
    parameters = SorterParameters(ways=8, network=network, index_tiebreak=False)
    keys, indices = groups(np.random.default_rng(6), 32, parameters)

    got_keys, got_indices = simulate(parameters, keys, indices)

    assert got_keys.tolist() == sort_entries(keys, indices)[0].tolist()
    assert ordered(got_keys, got_indices) == ordered(keys, indices)


def test_index_tiebreak_changes_the_result():
    """The two orders differ, so the tests above tell them apart."""
    keys, indices = np.full((2, 4), 5, np.uint16), np.array([[3, 2, 1, 0], [0, 1, 2, 3]])

    strict = simulate(SorterParameters(ways=4), keys, indices)
    weak = simulate(SorterParameters(ways=4, index_tiebreak=False), keys, indices)

    assert strict[1].tolist() == [[0, 1, 2, 3]] * 2
    assert weak[1].tolist() != strict[1].tolist()


@pytest.mark.parametrize("stall", [True, False])
@pytest.mark.parametrize(
    "pipeline, clocks", [((), 0), ((1,), 1), ((2, 3), 2), (None, 2), ((1, 2, 3), 3)]
)
def test_latency_is_one_clock_per_register_set(pipeline, clocks, stall):
    dut = Sorter(SorterParameters(ways=4, pipeline=pipeline, stall=stall))
    assert dut.latency == {"i to o": clocks}

    async def bench(ctx):
        if stall:
            ctx.set(dut.o.ready, 1)
        for _ in range(3):
            ctx.set(dut.i.valid, 1)
            for clock in range(clocks):
                assert not ctx.get(dut.o.valid), clock
                await ctx.tick()
                ctx.set(dut.i.valid, 0)
            assert ctx.get(dut.o.valid)
            await ctx.tick()
            ctx.set(dut.i.valid, 0)

    sim.run(dut, bench)


@pytest.mark.parametrize("pipeline", [(), None, (1, 2, 3)])
@pytest.mark.parametrize("stall", [True, False])
def test_takes_one_group_per_clock(stall, pipeline):
    """Back to back, without a gap on either side."""
    dut = Sorter(SorterParameters(ways=4, pipeline=pipeline, stall=stall))
    keys, indices = groups(np.random.default_rng(7), 20, dut.parameters)
    results = []

    async def bench(ctx):
        if stall:
            ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for clock in range(20 + dut.latency["i to o"]):
            ctx.set(dut.i.valid, clock < 20)
            ctx.set(dut.i.payload, payloads(keys, indices)[min(clock, 19)])
            assert ctx.get(dut.i.ready)
            valid, payload = ctx.get(dut.o.valid), ctx.get(dut.o.payload)
            assert valid == (clock >= dut.latency["i to o"])
            results.extend([payload] if valid else [])
            await ctx.tick()

    sim.run(dut, bench)
    assert unranked(results)[0].tolist() == sort_entries(keys, indices)[0].tolist()


def test_fills_up_while_the_output_stalls():
    """Bubbles close: every register set takes a group before the input is refused."""
    dut = Sorter(SorterParameters(ways=4, pipeline=(1, 2, 3)))

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(3):
            assert ctx.get(dut.i.ready)
            await ctx.tick()
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.o.ready, 1)
        assert ctx.get(dut.i.ready)

    sim.run(dut, bench)


def test_without_stall_streams_are_always_ready():
    dut = Sorter(SorterParameters(stall=False))

    assert isinstance(dut.i.ready, Const) and isinstance(dut.o.ready, Const)


@pytest.mark.parametrize("key_width", [16, 32])
def test_reserved_keys_raise_the_sticky_flag_and_nothing_else_does(key_width):
    top = (1 << key_width) - 1
    dut = Sorter(SorterParameters(ways=4, key_width=key_width, pipeline=(1, 3)))

    async def send(ctx, key, place):
        group = [{"key": 1000, "index": 0} for _ in range(4)]
        group[place]["key"] = key
        await sim.put(ctx, dut.i, group)
        await sim.get(ctx, dut.o)
        return ctx.get(dut.reserved)

    async def bench(ctx):
        for key, place in itertools.product((0, 1, top, 2, top - 1, 0x03FF), range(4)):
            assert await send(ctx, key, place) == (key in (0, 1, top)), (key, place)
            if ctx.get(dut.reserved):
                assert await send(ctx, 1000, 0), "sticky"
                ctx.set(dut.clear, 1)
                await ctx.tick()
                ctx.set(dut.clear, 0)
                assert not ctx.get(dut.reserved)

    sim.run(dut, bench)


def test_clear_loses_against_a_reserved_key_in_the_same_clock():
    dut = Sorter(SorterParameters(ways=4, pipeline=()))

    async def bench(ctx):
        ctx.set(dut.clear, 1)
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        assert ctx.get(dut.reserved)
        ctx.set(dut.i.valid, 0)
        await ctx.tick()
        assert not ctx.get(dut.reserved)

    sim.run(dut, bench)


def test_register_sets_hold_without_load():
    """A set whose enable is low keeps its group whatever stands at the input."""
    parameters = SorterParameters(ways=4, pipeline=(1, 2))
    dut = Network(parameters, picker(4), first=1, places=4)
    group = [{"key": key, "index": 0} for key in (3, 1, 2, 4)]
    other = [{"key": 9, "index": 9}] * 4

    async def bench(ctx):
        ctx.set(dut.i, group)
        ctx.set(dut.load, 0b11)
        await ctx.tick()
        await ctx.tick()
        ctx.set(dut.i, other)
        ctx.set(dut.load, 0b00)
        await ctx.tick()
        picked = [entry.key for entry in ctx.get(dut.o)]
        assert (picked[0], picked[-1]) == (1, 4)
        ctx.set(dut.load, 0b01)
        await ctx.tick()
        assert [entry.key for entry in ctx.get(dut.o)] == picked
        ctx.set(dut.load, 0b10)
        await ctx.tick()
        assert [entry.key for entry in ctx.get(dut.o)] == [9] * 4

    sim.run(dut, bench)


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(ways=6), ValueError, "Ways must be one of 4, 8, 16, 32, not 6"),
        (dict(ways=True), TypeError, "Ways must be one of 4, 8, 16, 32, not True"),
        (dict(key_width=8), ValueError, "Key width must be one of 16, 32, not 8"),
        (dict(index_width=0), ValueError, "Index width must be an integer from 1 to 32, not 0"),
        (
            dict(network="bubble"),
            ValueError,
            "Network must be one of bitonic, odd_even_merge, size_optimal, not 'bubble'",
        ),
        (
            dict(ways=4, pipeline=(4,)),
            ValueError,
            r"Pipeline must name stages from 1 to 3, not \(4,\)",
        ),
    ],
)
def test_rejects_bad_parameters(settings, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        Sorter(SorterParameters(**settings))
