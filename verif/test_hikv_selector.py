# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.hikv.hikv_selector.HikvSelector` and its parts, Amaranth simulator."""

import dataclasses
import re

import hypothesis
import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from hypothesis import given
from hypothesis import strategies as st

from golden.hikv_selector import select_step
from golden.parameters import GROUPINGS, HikvSelectorParameters
from rtl.hikv.command_front import CommandFront
from rtl.hikv.first_error import FirstError
from rtl.hikv.hikv_selector import HikvSelector
from rtl.hikv.interface import Cause, Grouping, Operation
from rtl.hikv.kv_selection import KvSelection
from rtl.hikv.vector_source import VectorSource
from rtl.sorting.ris import Ris
from rtl.sorting.selection import ris_parameters
from verif import sim
from verif.regression import DEFAULT_SEED, cases

SMALL = HikvSelectorParameters(
    contexts=3,
    cap_recent=20,
    cap_important=20,
    max_slots=50,
    ways=4,
    lanes=8,
    head_dim=16,
    queries=3,
    vectors_in_flight=3,
    steps_in_flight=3,
    tag_width=4,
    index_lanes=0,
)

SPECIAL = [0, 1, 0x8000, 0x8001, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF]


@dataclasses.dataclass
class Group:
    """Query heads of one step: values, and what is to be selected."""

    q: np.ndarray
    p: np.ndarray
    b_iik: int
    b_iiv: int
    grouping: str
    context: int = 0

    def beats(self):
        selected = select_step(
            self.q, self.p, b_iik=self.b_iik, b_iiv=self.b_iiv, grouping=self.grouping
        )
        return [[(self.context, b.query, b.chunk, b.last, np.flatnonzero(b.mask).tolist())
                 for b in side] for side in selected]  # fmt: skip


def random_group(p, rng, *, grouping=None, pool=None, occupied=None):
    queries = int(rng.integers(1, p.queries + 1))
    occupied = occupied or int(rng.integers(1, p.max_slots + 1))
    if pool is None:
        q = rng.integers(1 << 16, size=(queries, p.head_dim), dtype=np.uint16)
        w = rng.integers(0x3C01, size=(queries, occupied), dtype=np.uint16)
        w *= rng.integers(2, size=w.shape, dtype=np.uint16)
    else:
        q = rng.choice(np.array(pool, np.uint16), size=(queries, p.head_dim))
        w = rng.choice(np.array(pool, np.uint16), size=(queries, occupied))
    return Group(
        q, w, int(rng.integers(p.head_dim + 1)), int(rng.integers(p.head_dim + 1)),
        grouping or str(rng.choice(GROUPINGS)), int(rng.integers(p.contexts)),
    )  # fmt: skip


def wide(p, values, rng):
    """Beats of ``lanes`` values, anything beyond the end."""
    count = -(-len(values) // p.lanes) * p.lanes
    padded = rng.integers(1 << 16, size=count, dtype=np.uint16)
    padded[: len(values)] = values
    return [
        {"values": beat.tolist(), "last": n == count // p.lanes - 1}
        for n, beat in enumerate(padded.reshape(-1, p.lanes))
    ]


class Side(wiring.Component):
    """Selection with a sorter of its own."""

    def __init__(self, p):
        self.inner = KvSelection(p)
        self.ris = Ris(ris_parameters(p.selection()))
        super().__init__({"unused": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = self.inner
        m.submodules.ris = self.ris
        wiring.connect(m, self.inner.o_ris, self.ris.i_sort)
        wiring.connect(m, self.ris.o_sort, self.inner.i_ris)
        return m


def simulate(p, groups, *, stalls=(0,) * 6, seed=0, timeout=40_000):
    """Beats of ``o_k``, ``o_v`` and ``o_p`` for steps back to back."""
    side = Side(p)
    dut = side.inner
    rng = np.random.default_rng(seed)
    gaps = [sim.gaps((seed, n), longest) for n, longest in enumerate(stalls)]
    wanted = [g.beats() for g in groups]
    found = ([], [])

    async def steps(ctx):
        payloads = (
            {
                "context": g.context, "query": n, "tag": n, "first": n == 0,
                "last": n == len(g.q) - 1, "occupied": g.p.shape[1], "b_iik": g.b_iik,
                "b_iiv": g.b_iiv, "grouping": Grouping[g.grouping.upper()], "aborted": 0,
            }
            for g in groups for n in range(len(g.q))
        )  # fmt: skip
        await sim.drive(ctx, dut.i_step, payloads, gaps[0])

    async def queries(ctx):
        payloads = (b for g in groups for q in g.q for b in wide(p, q, rng))
        await sim.drive(ctx, dut.i_q, payloads, gaps[1])

    async def weights(ctx):
        payloads = (b for g in groups for row in g.p for b in wide(p, row, rng))
        await sim.drive(ctx, dut.i_p, payloads, gaps[2])

    def collector(number, port):
        async def collect(ctx):
            count = sum(len(w[number]) for w in wanted)
            for beat in await sim.collect(ctx, port, count, gaps[3 + number]):
                chosen = [n for n in range(p.head_dim) if beat.mask >> n & 1]
                assert len(chosen) == beat["count"]
                assert not beat.error
                found[number].append(
                    (beat.context, beat.query, beat.chunk, bool(beat["last"]), chosen)
                )
        return collect

    async def copies(ctx):
        for g in groups:
            for head, row in enumerate(g.p):
                beats = -(-len(row) // p.lanes)
                got = await sim.collect(ctx, dut.o_p, beats, gaps[5])
                values = [int(v) for b in got for v in b.values]
                assert values[: len(row)] == row.tolist()
                assert [b.context for b in got] == [g.context] * beats
                assert [bool(b["last"]) for b in got] == [False] * (beats - 1) + [True]
                assert {bool(b.final) for b in got} == {head == len(g.q) - 1}

    sim_benches = [steps, queries, weights, collector(0, dut.o_k), collector(1, dut.o_v), copies]
    sim.run(side, *sim_benches, timeout=timeout)
    for number in range(2):
        assert found[number] == [b for w in wanted for b in w[number]]


@pytest.mark.parametrize("stalls", [(0,) * 6, (9, 3, 3, 0, 0, 0), (0, 0, 0, 20, 9, 3)])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_selections_are_those_of_golden(grouping, stalls):
    rng = np.random.default_rng(1)
    simulate(SMALL, [random_group(SMALL, rng, grouping=grouping) for _ in range(8)], stalls=stalls)


def test_groupings_may_change_with_every_step():
    rng = np.random.default_rng(2)
    simulate(SMALL, [random_group(SMALL, rng) for _ in range(12)])


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_special_values(grouping):
    rng = np.random.default_rng(3)
    groups = [random_group(SMALL, rng, grouping=grouping, pool=SPECIAL) for _ in range(8)]
    simulate(SMALL, groups)


@hypothesis.settings(max_examples=5, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(GROUPINGS),
    st.lists(st.sampled_from([1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 49, 50]), min_size=1, max_size=4),
    st.tuples(*[st.integers(0, 4)] * 6),
)
def test_any_lengths_and_stalls(seed, grouping, lengths, stalls):
    rng = np.random.default_rng(seed)
    groups = [
        random_group(SMALL, rng, grouping=grouping, occupied=length, pool=pool)
        for length in lengths
        for pool in (None, SPECIAL)
    ]
    simulate(SMALL, groups, stalls=stalls)


@pytest.mark.parametrize(
    "settings",
    [
        {"queries": 1, "adder_registers": 1},
        {"lanes": 4, "head_dim": 12, "max_slots": 41},
        {"lanes": 16, "head_dim": 4, "vectors_in_flight": 1, "steps_in_flight": 2},
        {"ways": 8, "head_dim": 24, "lanes": 32, "pipeline": ()},
    ],
    ids=str,
)
def test_sizes(settings):
    p = dataclasses.replace(SMALL, **settings)
    rng = np.random.default_rng(4)
    simulate(p, [random_group(p, rng, pool=pool) for pool in (None, SPECIAL) for _ in range(3)])


@pytest.mark.parametrize("length", [13, 16, 17, 24, 25])
@pytest.mark.parametrize("beats", [1, 2, 3, 4, 5])
def test_vector_of_any_length_is_filled_up_or_cut(beats, length):
    """What is offered behind a short vector is not taken for a part of it."""
    p = SMALL
    source = VectorSource(p, limit=32, copies=True)
    rng = np.random.default_rng(beats)
    sent = [rng.integers(1, 1 << 16, size=8 * n, dtype=np.uint16) for n in (beats, 4)]
    lengths = [length, 32]
    wanted = []
    for values, count in zip(sent, lengths, strict=True):
        whole = np.zeros(-(-count // 8) * 8, np.uint16)
        known = min(len(values), len(whole))
        whole[:known] = values[:known]
        wanted.append(whole)
    faults = []

    async def vectors(ctx):
        await sim.drive(ctx, source.i, (b for v in sent for b in wide(p, v, rng)))

    async def counts(ctx):
        await sim.drive(ctx, source.i_length, lengths)

    async def parts(ctx):
        for values, count, wrong in zip(wanted, lengths, (beats != -(-length // 8), 0),
                                        strict=True):  # fmt: skip
            found = await sim.collect(ctx, source.o, -(-count // 4))
            assert [v for part in found for v in part.values] == values[: len(found) * 4].tolist()
            assert bool(found[-1].error) == bool(wrong)

    async def copies(ctx):
        for values in wanted:
            found = await sim.collect(ctx, source.o_wide, len(values) // 8)
            assert [v for beat in found for v in beat.values] == values.tolist()
            assert [bool(b["last"]) for b in found] == [*[False] * (len(found) - 1), True]

    async def count_faults(ctx):
        for _ in range(100):
            _, _, fault = await ctx.tick().sample(source.fault)
            faults.append(fault)

    sim.run(source, vectors, counts, parts, copies, count_faults, timeout=400)
    assert sum(faults) == (beats != -(-length // 8))


@pytest.mark.parametrize("settings", [{}, {"adder_registers": 1}], ids=str)
def test_sums_of_one_row_follow_one_another(settings):
    """Every head is added to what the head before it left a few clocks ago."""
    p = dataclasses.replace(SMALL, head_dim=4, lanes=4, **settings)
    rng = np.random.default_rng(5)
    groups = [random_group(p, rng, grouping="per_group", occupied=n % 4 + 1) for n in range(12)]
    simulate(p, groups)


@pytest.mark.parametrize(
    "settings",
    [{}, {"lanes": 4}, {"adder_registers": 1, "pipeline": (1, 2, 3, 4, 5, 6), "index_lanes": 2}],
    ids=str,
)
def test_latency(settings):
    """Clocks between the handshakes; the context was empty."""
    p = dataclasses.replace(SMALL, cap_recent=4, cap_important=4, **settings)
    dut = HikvSelector(p)
    found = {}

    async def clocks(ctx, port):
        passed = 1
        while not ctx.get(port.valid):
            await ctx.tick()
            passed += 1
        await ctx.tick()
        return passed

    async def testbench(ctx):
        async def command(operation, *, query=0, first=0, last=0):
            await pause(ctx)
            payload = {"operation": operation, "context": 1, "query": query, "first": first,
                       "last": last, "tag": 0}  # fmt: skip
            await sim.put(ctx, dut.i_command, payload)
            return await clocks(ctx, dut.o_response)

        ctx.set(Cat(dut.o_response.ready, dut.o_k.ready, dut.o_v.ready), 0b111)
        await command(Operation.CLEAR)
        start = "i_command to o_response, "
        found[f"{start}out of order"] = await command(Operation.STEP, query=1)
        found[f"{start}first STEP"] = await command(Operation.STEP, first=1)
        found[f"{start}other STEP"] = await command(Operation.STEP, query=1, last=1)
        for _ in range(2):
            beats = wide(p, np.ones(p.head_dim, np.uint16), np.random.default_rng())
            await sim.drive(ctx, dut.i_q, beats)
        await pause(ctx)
        for _ in range(2):
            await sim.put(ctx, dut.i_p, {"values": [1] * p.lanes, "last": 1})
            path = "i_p to o_v, one group of slots, b_iiv = 0"
            found[path] = await clocks(ctx, dut.o_v)

    sim.run(dut, testbench)
    assert found == dut.latency


async def pause(ctx):
    for _ in range(60):
        await ctx.tick()


def test_error_in_the_clock_of_clear_is_the_first_one():
    dut = FirstError(SMALL, sources=1)

    async def testbench(ctx):
        for tag in (1, 2):
            # An error is looked at one clock after it came.
            ctx.set(dut.errors[0], {"valid": 1, "cause": Cause.BAD_QUERY, "context": 0, "tag": tag})
            await ctx.tick()
            ctx.set(dut.errors[0], {"valid": 0, "cause": 0, "context": 0, "tag": 0})
            ctx.set(dut.clear, tag == 2)
            await ctx.tick()
            capture = ctx.get(dut.capture)
            assert (capture.valid, capture.tag) == (1, tag)
            assert ctx.get(dut.status.bad_command)

    sim.run(dut, testbench)


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_command_waits_as_long_as_the_limit_says(limit):
    dut = CommandFront(SMALL)

    async def testbench(ctx):
        ctx.set(dut.release_limit, limit)
        ctx.set(dut.pending, 1)
        command = {"operation": Operation.CLEAR, "context": 0, "query": 0, "first": 0, "last": 0,
                   "tag": 0}  # fmt: skip
        await sim.put(ctx, dut.i_command, command)
        passed = 0
        while not ctx.get(dut.o_response.valid):
            await ctx.tick()
            passed += 1
        # One clock for the check, one to find that the limit is reached.
        assert passed == limit + 2
        assert ctx.get(dut.o_response.payload).cause == Cause.RELEASE_TIMEOUT

    sim.run(dut, testbench)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"head_dim": 18}, "Head dim must be a multiple of ways (4), not 18"),
        ({"ways": 16, "head_dim": 16}, "Lanes must be a multiple of ways (16), not 8"),
        ({"queries": 0}, "Queries must be an integer from 1 to 16, not 0"),
        ({"steps_in_flight": 1}, "Steps in flight must be an integer from 2 to 32, not 1"),
        (
            {"max_slots": 39},
            "Max slots must be at least cap recent + cap important (40), not 39",
        ),
    ],
)
def test_rejects_bad_parameters(settings, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(SMALL, **settings)


@pytest.mark.nightly
def test_thousand_steps_of_every_grouping(monkeypatch):
    """Emitted Verilog, random stalls."""
    monkeypatch.setenv("KVSMITH_LONG", "1")
    (case, *_) = cases(["hikv_selector"], "verilator")
    outcome = dataclasses.replace(case, tests="thousand_steps").run(DEFAULT_SEED)
    assert outcome.passed, outcome.report()
