# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.sorting.selection.Selection`, in the Amaranth simulator."""

import dataclasses
import re

import hypothesis
import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator
from hypothesis import given
from hypothesis import strategies as st

from golden.numerics import sort_keys
from golden.parameters import SelectionParameters
from golden.selection import select
from rtl.sorting.entry import Mode
from rtl.sorting.index_stream import IndexStream
from rtl.sorting.ris import Ris
from rtl.sorting.selection import Selection, ris_parameters
from rtl.sorting.selection_timing import TRIVIAL, clocks_to_mask
from rtl.sorting.sequencer import Sequencer
from rtl.sorting.sort_key import sort_key
from verif import sim
from verif.selection_stimulus import FAULTS, Vector, faulty, random_vectors

SMALL = SelectionParameters(
    head_dim=16, ways=4, max_length=64, vectors_in_flight=3, tag_width=4, index_lanes=3
)


def vector_of(values, b_ii, mode=Mode.CHUNK_SORT, *, parameters=SMALL, rng=None):
    return Vector.of(values, b_ii, mode, parameters=parameters, rng=rng)


def expected(vectors):
    """Beats of ``o`` less their tags, as `unpacked` returns them."""
    return [
        (r.chunk, r.last, np.flatnonzero(r.mask).tolist(), r.count, r.error)
        for vector in vectors
        for r in vector.responses()
    ]


def unpacked(beat):
    """One beat of ``o`` as plain values, the mask as a list of indices."""
    chosen = [place for place in range(beat.shape()["mask"].width) if beat.mask >> place & 1]
    return beat.tag, beat.chunk, bool(beat["last"]), chosen, beat["count"], bool(beat.error)


def simulate(p, vectors, *, stalls=(0, 0, 0, 0), seed=0, index=True, timeout=20_000):
    """Beats of ``o`` and selections of ``o_index`` for vectors back to back; final status."""
    dut = Selection(p)
    count = len(expected(vectors))
    selections, listed, status = [], [], []
    gaps = [sim.gaps((seed, n), longest) for n, longest in enumerate(stalls)]
    tags = 1 << p.tag_width

    async def command(ctx):
        payloads = (
            {"mode": v.mode, "length": v.length, "b_ii": v.b_ii, "tag": n % tags}
            for n, v in enumerate(vectors)
        )
        await sim.drive(ctx, dut.i_command, payloads, gaps[0])

    async def values(ctx):
        payloads = (
            {"values": beat.tolist(), "last": n == len(vector.bits) - 1}
            for vector in vectors
            for n, beat in enumerate(vector.bits)
        )
        await sim.drive(ctx, dut.i, payloads, gaps[1])

    async def masks(ctx):
        for beat in await sim.collect(ctx, dut.o, count, gaps[2]):
            selections.append(unpacked(beat))
        flags = ("nan", "short", "long", "bad_command")
        status.append({name: ctx.get(dut.status[name]) for name in flags})

    async def indices(ctx):
        ctx.set(dut.index_enable, 1)
        while len(listed) < count:
            found = []
            while True:
                (beat,) = await sim.collect(ctx, dut.o_index, 1, gaps[3])
                found += [int(i) for i in beat.indices][: beat["count"]]
                if beat.end:
                    break
                assert beat["count"] == p.index_lanes
            listed.append((beat.tag, beat.chunk, bool(beat["last"]), found))

    benches = [command, values, masks]
    if p.index_lanes and index:
        benches.insert(0, indices)
    sim.run(dut, *benches, timeout=timeout)
    return selections, listed, status[0]


def check(p, vectors, **options):
    """Compare all that comes out with the golden model."""
    selections, listed, status = simulate(p, vectors, **options)
    tags = 1 << p.tag_width
    wanted = [(n % tags, *beat) for n, v in enumerate(vectors) for beat in expected([v])]
    assert selections == wanted
    if p.index_lanes and options.get("index", True):
        assert listed == [beat[:4] for beat in wanted]
    return status


def fp16(values):
    return np.asarray(values, np.float16).view(np.uint16)


@pytest.mark.parametrize("stalls", [(0, 0, 0, 0), (3, 0, 9, 2), (0, 2, 0, 9)])
def test_matches_golden(stalls):
    rng = np.random.default_rng(1)
    check(SMALL, random_vectors(SMALL, rng, 24), stalls=stalls)


@pytest.mark.parametrize(
    "lengths", [range(1, 7), range(7, 12), range(12, 17), (17, 31, 33)], ids=str
)
def test_any_length_and_padding_never_wins(lengths):
    """Lanes beyond the end hold anything, even what looks like +inf, NaN or padding."""
    rng = np.random.default_rng(lengths[0])
    vectors = []
    for length in lengths:
        for b_ii in (0, 1, SMALL.ways, SMALL.ways + 1, SMALL.head_dim):
            for pool in ([0xFC00], [0xFC00, 0x0000, 0x7C00], [0xFFFF, 0x7E01, 0x0001]):
                bits = rng.choice(np.array(pool, np.uint16), size=length)
                fits = length <= SMALL.head_dim and rng.integers(2)
                mode = Mode.GLOBAL_SORT if fits else Mode.CHUNK_SORT
                vectors.append(vector_of(bits, b_ii, mode, rng=rng))
    check(SMALL, vectors, index=False)


@pytest.mark.parametrize("length", [16, 13, 9, 5, 1, 35])
def test_every_b_ii(length):
    """B_II = 0, one below and above whole groups, and all of a chunk; also of shorter chunks."""
    rng = np.random.default_rng(length)
    bits = rng.integers(1 << 16, size=(SMALL.head_dim + 1, length), dtype=np.uint16)
    vectors = [vector_of(values, b_ii, rng=rng) for b_ii, values in enumerate(bits)]
    check(SMALL, vectors, index=False)


@pytest.mark.parametrize("levels", [1, 2])
def test_all_keys_equal_or_of_two_values(levels):
    """The lower indices win; none is doubled or lost."""
    rng = np.random.default_rng(levels)
    check(SMALL, random_vectors(SMALL, rng, 16, levels=levels))


def test_special_values_follow_the_one_order():
    """NaN of both signs with payload, infinities, zeros, subnormals: compared by index."""
    special = np.array(
        [0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00, 0x0000, 0x8000, 0x0001, 0x8001,
         0x03FF, 0x83FF, 0x0400, 0x8400, 0x7BFF, 0xFBFF],
        np.uint16,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    vectors = [
        vector_of(rng.permutation(special), b_ii, mode, rng=rng)
        for b_ii in range(1, 16)
        for mode in (Mode.CHUNK_SORT, Mode.GLOBAL_SORT)
    ]
    check(SMALL, vectors, index=False)


def test_nan_is_selected_only_where_numbers_run_out():
    bits = np.full(16, 0x7E00, np.uint16)
    bits[[3, 14]] = [0xFC00, 0x8000]
    selections, _, status = simulate(SMALL, [vector_of(bits, b_ii) for b_ii in (1, 2, 3)])
    assert [chosen for *_, chosen, _, _ in selections] == [[14], [3, 14], [0, 3, 14]]
    assert status == {"nan": 1, "short": 0, "long": 0, "bad_command": 0}


def test_q_is_ranked_by_magnitude():
    vector = vector_of(fp16([1, -4, 2, -3, 0.5, -0.25]), 3, Mode.GLOBAL_SORT)
    signed = dataclasses.replace(vector, mode=Mode.CHUNK_SORT)
    selections, _, _ = simulate(SMALL, [vector, signed])
    assert [chosen for *_, chosen, _, _ in selections] == [[1, 2, 3], [0, 2, 4]]


def test_b_ii_and_mode_change_with_every_vector_in_flight():
    rng = np.random.default_rng(8)
    p = dataclasses.replace(SMALL, vectors_in_flight=8, index_lanes=0)
    check(p, random_vectors(p, rng, 30, lengths=[16, 15, 7]))


@pytest.mark.parametrize(
    "settings",
    [
        {"head_dim": 30, "ways": 8, "max_length": 100, "vectors_in_flight": 1, "index_lanes": 0},
        {"head_dim": 4, "ways": 16, "max_length": 30, "vectors_in_flight": 2, "index_lanes": 1},
        {"head_dim": 27, "ways": 4, "max_length": 31, "vectors_in_flight": 32, "index_lanes": 2},
        {"head_dim": 64, "ways": 4, "max_length": 150, "vectors_in_flight": 6, "index_lanes": 0},
        {"head_dim": 16, "ways": 4, "max_length": 64, "key_width": 32, "pipeline": ()},
        {"head_dim": 16, "ways": 4, "max_length": 20, "network": "size_optimal", "pipeline": (1,)},
    ],
    ids=str,
)
def test_sizes(settings):
    """The smallest sizes, odd ones, chunks that are no multiple of W, 16 groups, fp32."""
    p = SelectionParameters(tag_width=8, **settings)
    rng = np.random.default_rng(5)
    vectors = [*random_vectors(p, rng, 6), *random_vectors(p, rng, 4, levels=2)]
    check(p, vectors, stalls=(2, 0, 3, 1))


@hypothesis.settings(max_examples=5)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([0, 1, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00]),
                     min_size=1, max_size=40),
            st.integers(0, 16),
        ),
        min_size=1,
        max_size=5,
    ),
    st.tuples(*[st.integers(0, 4)] * 4),
)  # fmt: skip
def test_any_values_and_stalls(cases, stalls):
    vectors = [vector_of(np.array(bits, np.uint16), b_ii) for bits, b_ii in cases]
    check(SMALL, vectors, stalls=stalls)


def test_streams_are_ready_at_once_and_one_beat_per_clock_loads():
    """Nothing to sort: 16 beats in a row, and one clock each for the command and each chunk."""
    bits = np.arange(64, dtype=np.uint16)
    dut = Selection(SMALL)
    clocks = []

    async def bench(ctx):
        command = {"mode": Mode.CHUNK_SORT, "length": 64, "b_ii": 0, "tag": 0}
        await sim.put(ctx, dut.i_command, command)
        clock = 0
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.o_index.ready, 1)
        for n, beat in enumerate(vector_of(bits, 0).bits):
            ctx.set(dut.i.payload, {"values": beat.tolist(), "last": n == 15})
            ctx.set(dut.i.valid, 1)
            while True:
                clock += 1
                _, _, ready = await ctx.tick().sample(dut.i.ready)
                if ready:
                    break
            clocks.append(clock)

    sim.run(dut, bench)
    assert clocks[-1] == 16 + 4


def measured_latencies(p, length):
    """Clocks from the last beat to the selection for each B_II, in an idle block that flows."""
    dut = Selection(p)
    rng = np.random.default_rng(0)
    bits = rng.permutation(np.arange(1, 1 + length)).astype(np.uint16)
    beats = vector_of(bits, 0, parameters=p).bits
    sent, took = [], []

    async def drive(ctx):
        for b_ii in range(length + 1):
            command = {"mode": Mode.CHUNK_SORT, "length": length, "b_ii": b_ii, "tag": 0}
            await sim.put(ctx, dut.i_command, command)
            for n, beat in enumerate(beats):
                await sim.put(ctx, dut.i, {"values": beat.tolist(), "last": n == len(beats) - 1})
            sent.append(clock[0])
            while len(took) <= b_ii:
                await ctx.tick()

    clock = [0]

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        while len(took) <= length:
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            clock[0] += 1
            if valid:
                took.append(clock[0] - sent[-1])

    sim.run(dut, watch, drive)
    return took


@pytest.mark.parametrize("length", [16, 9])
@pytest.mark.parametrize("pipeline", [(), (2, 4), (1, 2, 3, 4)])
def test_latency_is_as_the_timing_model_says(length, pipeline):
    p = dataclasses.replace(SMALL, pipeline=pipeline, index_lanes=0)
    groups = -(-length // p.ways)
    wanted = [TRIVIAL]
    for b_ii in range(1, length):
        full, rest = divmod(b_ii, p.ways)
        wanted.append(clocks_to_mask(groups, full, rest > 0, len(pipeline)))
    assert measured_latencies(p, length) == [*wanted, TRIVIAL]


def test_stated_latency_is_that_of_the_slowest_b_ii():
    p = dataclasses.replace(SMALL, index_lanes=0)
    measured = measured_latencies(p, p.head_dim)
    assert Selection(p).latency == {
        "i to o, all or nothing selected": measured[0],
        "i to o, whole chunk, slowest b_ii": max(measured),
    }


class Probe(wiring.Component):
    """Sequencer and sorter, with a view on the port between them."""

    def __init__(self, p):
        self.sequencer = Sequencer(p)
        self.ris = Ris(ris_parameters(p))
        super().__init__({"busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequencer = self.sequencer
        m.submodules.ris = self.ris
        wiring.connect(m, self.sequencer.o_ris, self.ris.i_sort)
        wiring.connect(m, self.ris.o_sort, self.sequencer.i_ris)
        m.d.comb += self.busy.eq(self.ris.i_sort.valid & self.ris.i_sort.ready)
        return m


def utilisation(p, jobs):
    """Share of clocks in which the sorter starts an invocation, between the 8th result and the end.

    The end is the last load: from then on the block runs empty.
    """
    dut = Probe(p)
    rng = np.random.default_rng(0)
    busy, done, loaded = [], [], []

    async def drive(ctx):
        payloads = (
            {"chunk_sort": 1, "groups": n, "full": full, "rest": rest} for n, full, rest in jobs
        )
        await sim.drive(ctx, dut.sequencer.i_job, payloads)

    async def values(ctx):
        groups = (
            rng.integers(2, 60000, size=p.ways).tolist() for n, _, _ in jobs for _ in range(n)
        )
        await sim.drive(ctx, dut.sequencer.i, groups)
        loaded.append(len(busy))

    async def watch(ctx):
        ctx.set(dut.sequencer.o.ready, 1)
        while len(done) < len(jobs):
            _, _, starts, valid = await ctx.tick().sample(dut.busy, dut.sequencer.o.valid)
            busy.append(starts)
            if valid:
                done.append(len(busy))

    sim.run(dut, drive, values, watch)
    window = busy[done[7] : loaded[0]]
    assert sum(done[7] < clock <= loaded[0] for clock in done) >= 8
    return sum(window) / len(window)


@pytest.mark.parametrize(
    "kinds",
    [[(8, 2, 1)], [(8, 2, 1), (8, 4, 0), (8, 3, 5), (8, 1, 1), (8, 5, 7), (8, 6, 2)]],
    ids=["2+b", "mixed"],
)
def test_sorter_is_busy_90_percent_over_8_or_more_vectors(kinds):
    """Vectors of 8 groups, vectors in flight by default, as many register sets as at 16 ways."""
    p = SelectionParameters(head_dim=64, ways=8, max_length=64, pipeline=(1, 2, 4, 6, 7))
    paper = Selection(SelectionParameters())
    sort = Ris(ris_parameters(p)).latency["i_sort to o_sort"]
    assert sort == Ris(ris_parameters(paper.parameters)).latency["i_sort to o_sort"]
    assert utilisation(p, kinds * (24 // len(kinds))) >= 0.90


def test_reset_in_mid_operation_leaves_nothing_behind():
    reset, running = Signal(), Signal()
    inner = Selection(dataclasses.replace(SMALL, index_lanes=0))
    dut = ResetInserter(reset)(inner)
    rng = np.random.default_rng(4)
    vectors = random_vectors(SMALL, rng, 6)
    results = []

    async def bench(ctx):
        for clocks in (3, 11, 26, 41, 77):
            ctx.set(inner.i_command.payload, {"mode": 1, "length": 64, "b_ii": 5, "tag": 3})
            ctx.set(inner.i.payload, {"values": [0x7E00] * SMALL.ways, "last": 0})
            ctx.set(inner.i_command.valid, 1)
            ctx.set(inner.i.valid, 1)
            for _ in range(clocks):
                await ctx.tick()
            ctx.set(inner.i_command.valid, 0)
            ctx.set(inner.i.valid, 0)
            assert ctx.get(inner.status.nan)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(inner.o.valid)
            assert ctx.get(inner.status.as_value()) == 0
        ctx.set(running, 1)
        for n, vector in enumerate(vectors):
            command = {"mode": vector.mode, "length": vector.length, "b_ii": vector.b_ii, "tag": n}
            await sim.put(ctx, inner.i_command, command)
            for beat, values in enumerate(vector.bits):
                last = beat == len(vector.bits) - 1
                await sim.put(ctx, inner.i, {"values": values.tolist(), "last": last})

    async def collect(ctx):
        await ctx.tick().until(running)
        for beat in await sim.collect(ctx, inner.o, len(expected(vectors))):
            results.append(unpacked(beat)[1:])

    sim.run(dut, bench, collect)
    assert results == expected(vectors)


@pytest.mark.parametrize("kind", FAULTS)
def test_faulty_vector_gives_errors_and_the_next_one_is_unharmed(kind):
    rng = np.random.default_rng(FAULTS.index(kind))
    vectors = []
    for _ in range(4):
        vectors += [faulty(SMALL, rng, kind), *random_vectors(SMALL, rng, 1)]
    status = check(SMALL, vectors, stalls=(2, 1, 3, 1))
    flag = kind if kind in ("short", "long") else "bad_command"
    raised = {name: bool(status[name]) for name in ("short", "long", "bad_command")}
    assert raised == {name: name == flag for name in raised}


def test_faults_of_all_kinds_in_any_order():
    rng = np.random.default_rng(9)
    vectors = [faulty(SMALL, rng, str(rng.choice(FAULTS))) for _ in range(40)]
    check(SMALL, vectors, index=False)


def test_vector_that_ends_early_is_selected_from_what_came():
    values = fp16(np.arange(64))
    vector = vector_of(values, 3)
    vector.bits = vector.bits[:6]
    selections, _, status = simulate(SMALL, [vector])
    assert selections == [
        (0, 0, False, [13, 14, 15], 3, False),
        (0, 1, False, [5, 6, 7], 3, True),
        (0, 2, False, [], 0, True),
        (0, 3, True, [], 0, True),
    ]
    assert status == {"nan": 0, "short": 1, "long": 0, "bad_command": 0}


def test_flags_stay_until_cleared():
    dut = Selection(dataclasses.replace(SMALL, index_lanes=0))

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        command = {"mode": Mode.CHUNK_SORT, "length": 0, "b_ii": 1, "tag": 0}
        for _ in range(2):
            await sim.put(ctx, dut.i_command, command)
            await sim.put(ctx, dut.i, {"values": [0x7E00] * 4, "last": 1})
            await ctx.tick()
            assert ctx.get(dut.status.bad_command)
            assert not ctx.get(dut.status.nan)  # discarded values do not count
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            assert ctx.get(dut.status.as_value()) == 0
        # What sets a flag in the clock of the clear wins.
        ctx.set(dut.clear, 1)
        await sim.put(ctx, dut.i_command, command)
        assert ctx.get(dut.status.bad_command)

    sim.run(dut, bench)


def test_blocked_output_loses_nothing_that_needs_no_sorting():
    """More vectors than there is room for, each of one beat, while nothing leaves."""
    rng = np.random.default_rng(7)
    p = dataclasses.replace(SMALL, vectors_in_flight=1, index_lanes=0)
    bits = rng.integers(1 << 16, size=(16, 3), dtype=np.uint16)
    kept = [0, 3, 16, 2] * 4
    vectors = [vector_of(values, b_ii) for values, b_ii in zip(bits, kept, strict=True)]
    check(p, vectors, stalls=(0, 0, 60, 0))


def test_index_stream_that_is_switched_off_holds_nothing_back():
    rng = np.random.default_rng(2)
    check(SMALL, random_vectors(SMALL, rng, 12), index=False)


def test_slow_index_stream_holds_masks_back_by_one_selection_only():
    dut = Selection(SMALL)
    bits = np.arange(64, dtype=np.uint16)
    seen = []

    async def drive(ctx):
        await sim.put(ctx, dut.i_command, {"mode": 1, "length": 64, "b_ii": 16, "tag": 0})
        for n, beat in enumerate(vector_of(bits, 16).bits):
            await sim.put(ctx, dut.i, {"values": beat.tolist(), "last": n == 15})

    async def watch(ctx):
        ctx.set(dut.index_enable, 1)
        ctx.set(dut.o.ready, 1)
        for _ in range(60):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            seen.append(valid)

    sim.run(dut, drive, watch)
    assert sum(seen) == 2  # the first is being listed, the second waits for that


@pytest.mark.parametrize("width, lanes", [(2, 1), (16, 4), (17, 3), (36, 9)])
def test_index_stream_lists_any_mask(width, lanes):
    rng = np.random.default_rng(width)
    dut = IndexStream(width=width, lanes=lanes, context=8)
    masks = [0, (1 << width) - 1, 1, 1 << (width - 1)]
    masks += [int.from_bytes(rng.bytes(16)) % (1 << width) for _ in range(12)]
    found = []

    async def drive(ctx):
        await sim.drive(ctx, dut.i, ({"mask": m, "context": n} for n, m in enumerate(masks)))

    async def collect(ctx):
        indices = []
        while len(found) < len(masks):
            beat = await sim.get(ctx, dut.o)
            assert beat["count"] == lanes or beat.end
            indices += [int(place) for place in beat.indices][: beat["count"]]
            if beat.end:
                found.append((beat.context, indices))
                indices = []

    sim.run(dut, drive, collect)
    places = [[n for n in range(width) if mask >> n & 1] for mask in masks]
    assert found == list(enumerate(places))


@pytest.mark.parametrize("key_width", [16, 32])
def test_sort_keys_are_those_of_golden(key_width):
    bits, magnitude, key = Signal(key_width), Signal(), Signal(key_width)
    m = Module()
    m.d.comb += key.eq(sort_key(bits, magnitude))
    dtype = np.uint16 if key_width == 16 else np.uint32
    infinity = 0x7C00 if key_width == 16 else 0x7F800000
    edges = [0, 1, infinity - 1, infinity, infinity + 1, infinity // 2, (1 << key_width - 1) - 1]
    cases = np.array([edge | sign << key_width - 1 for edge in edges for sign in (0, 1)], dtype)
    found = []

    async def bench(ctx):
        for absolute in (0, 1):
            for case in cases:
                ctx.set(bits, int(case))
                ctx.set(magnitude, absolute)
                found.append(ctx.get(key))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    wanted = [sort_keys(cases), sort_keys(cases, magnitude=True)]
    assert found == np.concatenate(wanted).tolist()


@pytest.mark.parametrize(
    "parameters, message",
    [
        (
            {"head_dim": 512, "ways": 16, "max_length": 1024},
            "Head dim must be at most 16 times ways (256), not 512",
        ),
        ({"max_length": 64}, "Max length must be at least head dim (128), not 64"),
        ({"vectors_in_flight": 0}, "Vectors in flight must be an integer from 1 to 32, not 0"),
        ({"index_lanes": 17}, "Index lanes must be an integer from 0 to 16, not 17"),
    ],
)
def test_rejects_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SelectionParameters(**parameters)


def test_golden_rejects_what_no_command_may_ask():
    bits = np.zeros(4, np.uint16)
    with pytest.raises(ValueError, match=r"^B_II must be from 0 to head dim \(16\), not 17$"):
        select(bits, 17, head_dim=16)
    with pytest.raises(ValueError, match=r"^Length must be at least 1, not 0$"):
        select(bits[:0], 1, head_dim=16)


def test_golden_selects_as_a_sorted_list_would():
    rng = np.random.default_rng(6)
    bits = rng.choice(np.array([0, 0x8000, 0x3C00, 0xBC00, 0x7C00], np.uint16), size=(5, 37))
    masks, counts = select(bits, 6, head_dim=16)
    assert masks.shape == (5, 3, 16)
    assert (counts == np.minimum(6, [16, 16, 5])).all()
    values = bits.view(np.float16).astype(float)
    for vector, row in enumerate(values):
        for chunk in range(3):
            part = row[16 * chunk : 16 * chunk + 16]
            signs = np.signbit(part)
            order = sorted(range(len(part)), key=lambda n: (-part[n], signs[n], n))
            assert np.flatnonzero(masks[vector, chunk]).tolist() == sorted(order[:6])
