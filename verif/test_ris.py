# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.sorting.ris.Ris`, in the Amaranth simulator."""

import numpy as np
import pytest
from amaranth.hdl import Const
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.parameters import RisParameters
from golden.ris import pick, sort_merge
from golden.sorter import sort_entries
from rtl.sorting.entry import Mode
from rtl.sorting.ris import Ris
from verif import sim
from verif.sorting_stimulus import groups, ordered, payloads, unranked

PIPELINES = [None, (), (1, 2, 3, 4, 5, 6), (2,), (4,), (5,)]


def sort_payloads(parameters, a, b, modes):
    beats = enumerate(zip(modes, payloads(*a), payloads(*b), strict=True))
    tag = {"tag": 0} if parameters.tag_width else {}
    return [
        {"mode": Mode(mode), "a": x, "b": y} | {key: number for key in tag}
        for number, (mode, x, y) in beats
    ]


def pick_payloads(parameters, a, b):
    beats = enumerate(zip(payloads(*a), payloads(*b), strict=True), 128)
    tag = {"tag": 0} if parameters.tag_width else {}
    return [{"a": x, "b": y} | {key: number for key in tag} for number, (x, y) in beats]


def simulate(parameters, sorts, picks, *, i_gap=0, o_gap=0):
    """Run a sorter; return what leaves on both output ports. Gaps are the most idle clocks."""
    dut = Ris(parameters)
    heapify = sum(payload["mode"] == Mode.HEAPIFY_UP for payload in sorts)
    counts = (len(sorts) - heapify, heapify + len(picks))
    results = ([], [])

    def collector(stream, seed, count, into):
        async def collect(ctx):
            idle = sim.gaps(seed, o_gap) if parameters.stall else None
            into.extend(await sim.collect(ctx, stream, count, idle))

        return collect

    async def drive_sort(ctx):
        await sim.drive(ctx, dut.i_sort, sorts, sim.gaps(11, i_gap))

    async def drive_pick(ctx):
        await sim.drive(ctx, dut.i_pick, picks, sim.gaps(12, i_gap))

    sim.run(
        dut,
        drive_sort,
        drive_pick,
        collector(dut.o_sort, 13, counts[0], results[0]),
        collector(dut.o_pick, 14, counts[1], results[1]),
    )
    return results


def sets(results):
    """Upper and lower sets of a port's results."""
    return [ordered(*unranked([getattr(r, side) for r in results])) for side in ("upper", "lower")]


def assert_merged(results, a, b):
    """Upper and lower sets are the golden ones."""
    expected = [ordered(*entries) for entries in sort_merge(*a, *b)]
    assert sets(results) == expected


def assert_picked(results):
    """In both groups of every result the minimum is first and the maximum last."""
    for side in ("upper", "lower"):
        keys, indices = unranked([getattr(result, side) for result in results])
        minimum, maximum = pick(keys, indices)
        assert (keys[:, 0].tolist(), indices[:, 0].tolist()) == (
            minimum.keys.tolist(),
            minimum.indices.tolist(),
        )
        assert (keys[:, -1].tolist(), indices[:, -1].tolist()) == (
            maximum.keys.tolist(),
            maximum.indices.tolist(),
        )


def select(entries, where):
    return tuple(side[where] for side in entries)


def check_traffic(parameters, seed, count, **gaps):
    """All modes on the sort port and picks beside them, each port in order, against golden."""
    rng = np.random.default_rng(seed)
    a, b, c, d = (groups(rng, count, parameters) for _ in range(4))
    modes = rng.integers(4, size=count)
    sorted_, picked = simulate(
        parameters,
        sort_payloads(parameters, a, b, modes),
        pick_payloads(parameters, c, d),
        **gaps,
    )
    ups = modes == Mode.HEAPIFY_UP.value
    heapified = [result for result in picked if result.tag < 128]
    direct = [result for result in picked if result.tag >= 128]

    assert [result.tag for result in sorted_] == np.flatnonzero(~ups).tolist()
    assert [result.tag for result in heapified] == np.flatnonzero(ups).tolist()
    assert [result.tag for result in direct] == list(range(128, 128 + count))
    assert_merged(sorted_, select(a, ~ups), select(b, ~ups))
    assert_merged(heapified, select(a, ups), select(b, ups))
    assert sets(direct) == [ordered(*c), ordered(*d)]
    assert_picked(picked)


@pytest.mark.parametrize("i_gap, o_gap", [(0, 0), (3, 0), (0, 3), (2, 2)])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_matches_golden_under_stalls(pipeline, i_gap, o_gap):
    parameters = RisParameters(ways=4, pipeline=pipeline, tag_width=8)

    check_traffic(parameters, 20, 24, i_gap=i_gap, o_gap=o_gap)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_matches_golden_without_stall(pipeline):
    parameters = RisParameters(ways=4, pipeline=pipeline, stall=False, tag_width=8)

    check_traffic(parameters, 21, 24, i_gap=1)


@pytest.mark.parametrize(
    "ways, key_width, index_width, network, pipeline",
    [
        (8, 32, 10, "odd_even_merge", None),
        (8, 16, 3, "size_optimal", (6, 7)),
        (16, 16, 16, "size_optimal", (4, 8, 12)),
    ],
)
def test_matches_golden_at_other_sizes(ways, key_width, index_width, network, pipeline):
    parameters = RisParameters(
        ways=ways,
        key_width=key_width,
        index_width=index_width,
        network=network,
        pipeline=pipeline,
        tag_width=8,
    )

    check_traffic(parameters, 22, 16, i_gap=1, o_gap=1)


@settings(max_examples=8)
@given(st.data())
def test_matches_golden_for_any_few_valued_groups(data):
    entry = st.tuples(st.sampled_from([0, 1, 2, 0x8000, 0xFFFF]), st.integers(0, 3))
    group = st.tuples(*[entry] * 4)
    pairs = data.draw(st.lists(st.tuples(group, group, st.integers(0, 3)), min_size=1, max_size=6))
    a, b = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    a, b = ((side[..., 0].astype(np.uint16), side[..., 1]) for side in (a, b))
    modes = np.array([pair[2] for pair in pairs])
    parameters = RisParameters(ways=4)

    sorted_, picked = simulate(parameters, sort_payloads(parameters, a, b, modes), [])

    ups = modes == Mode.HEAPIFY_UP.value
    assert_merged(sorted_, select(a, ~ups), select(b, ~ups))
    assert_merged(picked, select(a, ups), select(b, ups))
    if picked:
        assert_picked(picked)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("mode", [Mode.GLOBAL_SORT, Mode.CHUNK_SORT, Mode.HEAPIFY_UP])
def test_few_valued_keys_lose_and_double_no_index(mode, levels):
    """The multiset of indices in equals the multiset out, and ties go to the lower index."""
    parameters = RisParameters(ways=4)
    rng = np.random.default_rng(levels)
    a, b = (
        (rng.integers(7, 7 + levels, size=(40, 4)).astype(np.uint16), indices)
        for indices in np.split(rng.permuted(np.tile(np.arange(8), (40, 1)), axis=1), 2, axis=1)
    )

    results = simulate(parameters, sort_payloads(parameters, a, b, [mode.value] * 40), [])
    got = results[mode is Mode.HEAPIFY_UP]

    assert_merged(got, a, b)
    both = [unranked([getattr(r, side) for r in got])[1] for side in ("upper", "lower")]
    assert np.sort(np.concatenate(both, axis=1)).tolist() == [list(range(8))] * 40


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_few_valued_keys_lose_and_double_no_index_when_picked(levels):
    parameters = RisParameters(ways=8)
    rng = np.random.default_rng(levels)
    indices = rng.permuted(np.tile(np.arange(16), (30, 1)), axis=1)
    keys = rng.integers(7, 7 + levels, size=(30, 16)).astype(np.uint16)
    a, b = (keys[:, :8], indices[:, :8]), (keys[:, 8:], indices[:, 8:])

    _, picked = simulate(parameters, [], pick_payloads(parameters, a, b))

    assert sets(picked) == [ordered(*a), ordered(*b)]
    assert_picked(picked)


@pytest.mark.parametrize("ways", [4, 8, 16])
def test_group_against_an_all_empty_partner_is_fully_ranked(ways):
    parameters = RisParameters(ways=ways, network="size_optimal")
    a = groups(np.random.default_rng(ways), 16, parameters)
    empty = np.zeros_like(a[0]), np.full_like(a[1], 0xFFFF)

    got, _ = simulate(parameters, sort_payloads(parameters, a, empty, [0] * 16), [])

    keys, indices = unranked([result.upper for result in got])
    assert [keys.tolist(), indices.tolist()] == [side.tolist() for side in sort_entries(*a)]


def test_padding_never_displaces_an_entry():
    """Groups filled up with empties at every length; real keys may look like the padding."""
    parameters = RisParameters(ways=8)
    lengths = [(first, second) for first in range(1, 9) for second in (0, 1, 5, 8)]
    a, b = ((np.zeros((32, 8), np.uint16), np.full((32, 8), 0xFFFF)) for _ in range(2))
    for beat, filled in enumerate(lengths):
        for (keys, indices), length, offset in zip((a, b), filled, (0, 8), strict=True):
            keys[beat, :length] = (0x0000, 0x0002, 0x8000)[beat % 3]
            indices[beat, :length] = np.arange(length) + offset

    got, _ = simulate(parameters, sort_payloads(parameters, a, b, [1] * 32), [])

    for result, (first, second) in zip(sets(got)[0], lengths, strict=True):
        real = [index for _, index in result if index != 0xFFFF]
        assert len(real) == min(8, first + second)


def entries(*pairs):
    """One group of (value, index) as the paper prints them."""
    keys, indices = zip(*pairs, strict=True)
    return np.array([keys], np.uint16), np.array([indices])


def listed(group):
    return [(entry.key, entry.index) for entry in group]


def test_heapify_up_of_the_paper():
    """Fig. 11, in our order of ties: node 0 is the parent, node 1 the child."""
    parameters = RisParameters(ways=4)
    parent = entries((5, 0), (3, 1), (8, 2), (7, 3))
    child = entries((10, 4), (2, 5), (5, 6), (8, 7))
    for mode in (Mode.GLOBAL_SORT, Mode.HEAPIFY_UP):
        beat = sort_payloads(parameters, parent, child, [mode.value])

        (result,) = simulate(parameters, beat, [])[mode is Mode.HEAPIFY_UP]

        assert set(listed(result.lower)) == {(3, 1), (5, 0), (5, 6), (2, 5)}
        assert set(listed(result.upper)) == {(10, 4), (8, 7), (7, 3), (8, 2)}
        if mode is Mode.HEAPIFY_UP:
            assert (listed(result.lower)[0], listed(result.lower)[-1]) == ((2, 5), (5, 0))
            assert (listed(result.upper)[0], listed(result.upper)[-1]) == ((7, 3), (10, 4))


def test_heapify_down_of_the_paper():
    """Fig. 11: the two groups that the path changes, root and node 2, are picked."""
    parameters = RisParameters(ways=4)
    root = entries((5, 6), (3, 1), (2, 5), (4, 10))
    node = entries((9, 12), (5, 0), (9, 11), (11, 9))

    (result,) = simulate(parameters, [], pick_payloads(parameters, root, node))[1]

    assert (listed(result.upper)[0], listed(result.upper)[-1]) == ((2, 5), (5, 6))
    assert set(listed(result.upper)) == {(2, 5), (3, 1), (4, 10), (5, 6)}
    assert (listed(result.lower)[0], listed(result.lower)[-1]) == ((5, 0), (11, 9))
    assert set(listed(result.lower)) == {(9, 12), (5, 0), (9, 11), (11, 9)}


@pytest.mark.parametrize("mode", [Mode.CHUNK_SORT, Mode.HEAPIFY_UP])
def test_without_index_tiebreak_keys_are_split_and_entries_kept(mode):
    parameters = RisParameters(ways=8, index_tiebreak=False)
    rng = np.random.default_rng(8)
    a, b = groups(rng, 24, parameters), groups(rng, 24, parameters)

    results = simulate(parameters, sort_payloads(parameters, a, b, [mode.value] * 24), [])
    got = results[mode is Mode.HEAPIFY_UP]

    parts = [unranked([getattr(r, side) for r in got]) for side in ("upper", "lower")]
    for (keys, _), expected in zip(parts, sort_merge(*a, *b), strict=True):
        assert np.sort(keys)[:, ::-1].tolist() == expected.keys.tolist()
        if mode is Mode.HEAPIFY_UP:
            assert keys[:, 0].tolist() == keys.min(axis=1).tolist()
            assert keys[:, -1].tolist() == keys.max(axis=1).tolist()
    together = [np.concatenate(side, axis=1) for side in zip(*parts, strict=True)]
    given_ = [np.concatenate(side, axis=1) for side in zip(a, b, strict=True)]
    assert ordered(*together) == ordered(*given_)


def test_heapify_down_on_the_sort_port_sorts_and_raises_the_sticky_flag():
    dut = Ris(RisParameters(ways=4, pipeline=(4,)))

    async def send(ctx, mode):
        beat = {"mode": mode, "a": [{"key": k, "index": 0} for k in (1, 2, 3, 4)], "b": []}
        await sim.put(ctx, dut.i_sort, beat)

    async def bench(ctx):
        for mode in (Mode.GLOBAL_SORT, Mode.CHUNK_SORT, Mode.HEAPIFY_UP):
            await send(ctx, mode)
            await sim.get(ctx, dut.o_pick if mode is Mode.HEAPIFY_UP else dut.o_sort)
            assert not ctx.get(dut.illegal_mode)
        await send(ctx, Mode.HEAPIFY_DOWN)
        assert ctx.get(dut.illegal_mode)
        result = await sim.get(ctx, dut.o_sort)
        assert {entry.key for entry in result.upper} == {1, 2, 3, 4}
        await send(ctx, Mode.GLOBAL_SORT)
        await sim.get(ctx, dut.o_sort)
        assert ctx.get(dut.illegal_mode)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert not ctx.get(dut.illegal_mode)
        await send(ctx, Mode.HEAPIFY_DOWN)
        assert ctx.get(dut.illegal_mode)

    sim.run(dut, bench)


@pytest.mark.parametrize("stall", [True, False])
@pytest.mark.parametrize(
    "pipeline, sort, heapify, pick_",
    [((), 0, 0, 0), (None, 2, 3, 1), ((1, 4, 5, 6), 2, 4, 2), ((1, 2, 3, 4, 5, 6), 4, 6, 2)],
)
def test_latency_of_each_path_is_its_register_sets(pipeline, sort, heapify, pick_, stall):
    dut = Ris(RisParameters(ways=4, pipeline=pipeline, stall=stall))
    assert dut.latency == {
        "i_sort to o_sort": sort,
        "i_sort to o_pick": heapify,
        "i_pick to o_pick": pick_,
    }

    async def measure(ctx, i, o, clocks):
        ctx.set(i.valid, 1)
        for clock in range(clocks):
            assert not ctx.get(o.valid), clock
            await ctx.tick()
            ctx.set(i.valid, 0)
        assert ctx.get(o.valid)
        await ctx.tick()
        ctx.set(i.valid, 0)

    async def bench(ctx):
        for stream in (dut.o_sort, dut.o_pick) if stall else ():
            ctx.set(stream.ready, 1)
        for _ in range(2):
            await measure(ctx, dut.i_sort, dut.o_sort, sort)
            ctx.set(dut.i_sort.payload.mode, Mode.HEAPIFY_UP)
            await measure(ctx, dut.i_sort, dut.o_pick, heapify)
            ctx.set(dut.i_sort.payload.mode, Mode.CHUNK_SORT)
            await measure(ctx, dut.i_pick, dut.o_pick, pick_)

    sim.run(dut, bench)


@pytest.mark.parametrize("mode", [Mode.GLOBAL_SORT, Mode.HEAPIFY_UP])
@pytest.mark.parametrize("stall", [True, False])
@pytest.mark.parametrize("pipeline", [(), (4,), None])
def test_takes_one_invocation_per_clock_on_the_sort_port(pipeline, stall, mode):
    dut = Ris(RisParameters(ways=4, pipeline=pipeline, stall=stall))
    output = dut.o_pick if mode is Mode.HEAPIFY_UP else dut.o_sort
    latency = dut.latency[f"i_sort to o_{'pick' if mode is Mode.HEAPIFY_UP else 'sort'}"]

    async def bench(ctx):
        if stall:
            ctx.set(output.ready, 1)
        ctx.set(dut.i_sort.valid, 1)
        ctx.set(dut.i_sort.payload.mode, mode)
        for clock in range(20):
            assert ctx.get(dut.i_sort.ready)
            assert ctx.get(output.valid) == (clock >= latency)
            await ctx.tick()

    sim.run(dut, bench)


@pytest.mark.parametrize("pipeline", [(), (4,), None])
def test_takes_one_invocation_per_clock_on_both_ports_at_once(pipeline):
    dut = Ris(RisParameters(ways=4, pipeline=pipeline))

    async def bench(ctx):
        for stream in (dut.i_sort, dut.i_pick):
            ctx.set(stream.valid, 1)
        for stream in (dut.o_sort, dut.o_pick):
            ctx.set(stream.ready, 1)
        for clock in range(20):
            assert ctx.get(dut.i_sort.ready) and ctx.get(dut.i_pick.ready)
            assert ctx.get(dut.o_sort.valid) == (clock >= dut.latency["i_sort to o_sort"])
            assert ctx.get(dut.o_pick.valid) == (clock >= dut.latency["i_pick to o_pick"])
            await ctx.tick()

    sim.run(dut, bench)


@pytest.mark.parametrize("stall", [True, False])
@pytest.mark.parametrize("pipeline", [(3, 6), (4, 6), (2, 4)])
def test_merger_goes_first_when_both_want_the_picker(pipeline, stall):
    dut = Ris(RisParameters(ways=4, pipeline=pipeline, stall=stall, tag_width=1))
    merged_at = dut.latency["i_sort to o_pick"] - dut.latency["i_pick to o_pick"]

    async def bench(ctx):
        if stall:
            ctx.set(dut.o_pick.ready, 1)
        ctx.set(dut.i_sort.valid, 1)
        ctx.set(dut.i_sort.payload.mode, Mode.HEAPIFY_UP)
        ctx.set(dut.i_sort.payload.tag, 1)
        for _ in range(merged_at):
            await ctx.tick()
            ctx.set(dut.i_sort.valid, 0)
        ctx.set(dut.i_pick.valid, 1)
        tags, ready = [], []
        for clock in range(5):
            if ctx.get(dut.o_pick.valid):
                tags.append(ctx.get(dut.o_pick.payload.tag))
            ready.append(ctx.get(dut.i_pick.ready))
            await ctx.tick()
            if clock == 1:
                ctx.set(dut.i_pick.valid, 0)
        assert ready == [0, 1, 1, 1, 1]
        assert tags == [1, 0]

    sim.run(dut, bench)


def test_pick_that_has_been_offered_stays_though_the_merger_wants_the_picker():
    """Without registers in the picker: what stands on ``o_pick`` does not change until taken."""
    dut = Ris(RisParameters(ways=4, pipeline=(2,), tag_width=2))

    async def bench(ctx):
        ctx.set(dut.i_pick.payload.tag, 1)
        ctx.set(dut.i_pick.valid, 1)
        ctx.set(dut.i_sort.payload.mode, Mode.HEAPIFY_UP)
        ctx.set(dut.i_sort.payload.tag, 2)
        ctx.set(dut.i_sort.valid, 1)
        for _ in range(5):
            await ctx.tick()
            ctx.set(dut.i_sort.valid, 0)
            assert ctx.get(dut.o_pick.valid) and ctx.get(dut.o_pick.payload.tag) == 1
        ctx.set(dut.o_pick.ready, 1)
        assert ctx.get(dut.i_pick.ready)
        await ctx.tick()
        assert ctx.get(dut.o_pick.payload.tag) == 2 and not ctx.get(dut.i_pick.ready)
        await ctx.tick()
        assert ctx.get(dut.o_pick.payload.tag) == 1 and ctx.get(dut.i_pick.ready)

    sim.run(dut, bench)


def test_stalled_sort_output_holds_no_pick():
    dut = Ris(RisParameters(ways=4))

    async def bench(ctx):
        ctx.set(dut.i_sort.valid, 1)
        for _ in range(6):
            await ctx.tick()
        assert not ctx.get(dut.i_sort.ready)
        await sim.put(ctx, dut.i_pick, {"a": [], "b": []})
        await sim.get(ctx, dut.o_pick)

    sim.run(dut, bench, timeout=50)


@pytest.mark.parametrize("pipeline", [None, (2, 5), (4,), (2,), (1, 2, 3, 4, 5, 6)])
def test_bypassed_module_toggles_nothing(pipeline):
    """Sorts leave the picker and its registers alone, picks sorter and merger, idle inputs both."""
    parameters = RisParameters(ways=4, pipeline=pipeline)
    dut = Ris(parameters)
    rng = np.random.default_rng(9)
    a, b = groups(rng, 20, parameters), groups(rng, 20, parameters)
    sorts = sort_payloads(parameters, a, b, [0, 1, 0, 3] * 5)
    picks = pick_payloads(parameters, b, a)

    async def bench(ctx):
        for stream in (dut.o_sort, dut.o_pick):
            ctx.set(stream.ready, 1)
        await sim.put(ctx, dut.i_pick, picks[0])
        await sim.put(ctx, dut.i_sort, sorts[0])
        for _ in range(8):
            await ctx.tick()
        quiet = ctx.get(dut.o_pick.payload).as_bits()
        for payload, idle in zip(sorts, picks, strict=True):
            if dut.latency["i_pick to o_pick"]:
                ctx.set(dut.i_pick.payload, idle)
            await sim.put(ctx, dut.i_sort, payload)
            assert ctx.get(dut.o_pick.payload).as_bits() == quiet
        for _ in range(8):
            await ctx.tick()
        quiet = ctx.get(dut.o_sort.payload).as_bits()
        for payload, idle in zip(picks, sorts, strict=True):
            ctx.set(dut.i_sort.payload, idle)
            await sim.put(ctx, dut.i_pick, payload)
            assert ctx.get(dut.o_sort.payload).as_bits() == quiet

    sim.run(dut, bench)


@pytest.mark.parametrize("tag_width", [0, 5])
def test_tag_exists_only_with_a_width(tag_width):
    dut = Ris(RisParameters(ways=4, tag_width=tag_width))

    for stream in (dut.i_sort, dut.o_sort, dut.i_pick, dut.o_pick):
        assert ("tag" in stream.payload.shape().members) == (tag_width > 0)


def test_without_stall_all_but_the_pick_port_are_always_ready():
    dut = Ris(RisParameters(stall=False))

    assert [
        isinstance(stream.ready, Const)
        for stream in (dut.i_sort, dut.o_sort, dut.o_pick, dut.i_pick)
    ] == [True, True, True, False]


@pytest.mark.parametrize(
    "values, error, message",
    [
        (dict(ways=2), ValueError, "Ways must be one of 4, 8, 16, 32, not 2"),
        (dict(tag_width=65), ValueError, "Tag width must be an integer from 0 to 64, not 65"),
        (dict(stall=1), TypeError, "Stall must be true or false, not 1"),
        (
            dict(pipeline=(2, 16)),
            ValueError,
            r"Pipeline must name stages from 1 to 15, not \(2, 16\)",
        ),
        (
            dict(pipeline=(3, 3)),
            ValueError,
            r"Pipeline must be stage numbers from 1 in increasing order, not \(3, 3\)",
        ),
    ],
)
def test_rejects_bad_parameters(values, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        Ris(RisParameters(**values))
