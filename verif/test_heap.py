# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.hikv.heap.Heap` with a sorter attached, in the Amaranth simulator."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from golden.heap import build, nodes_of, replace
from golden.parameters import ScoreboardParameters
from golden.ris import Entries
from rtl.hikv.heap import Heap
from rtl.hikv.heap_with_ris import HeapWithRis
from rtl.memory import random_contents
from rtl.sorting.ris import Ris
from verif import sim
from verif.heap_stimulus import Case, make_cases, normal

SMALL = ScoreboardParameters(
    contexts=4, cap_recent=1, cap_important=32, max_slots=256, ways=4, lanes=4
)


class Probe(wiring.Component):
    """Heap and sorter, whose streams between them can be held up."""

    def __init__(self, p):
        self.heap = Heap(p)
        self.ris = Ris(self.heap.ris)
        super().__init__({"hold": In(3)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.heap = heap = self.heap
        m.submodules.ris = ris = self.ris
        m.d.comb += ris.o_sort.ready.eq(1)
        for n, (source, sink) in enumerate((
            (heap.o_ris_sort, ris.i_sort),
            (heap.o_ris_pick, ris.i_pick),
            (ris.o_pick, heap.i_ris_pick),
        )):  # fmt: skip
            m.d.comb += [
                sink.valid.eq(source.valid & ~self.hold[n]),
                source.ready.eq(sink.ready & ~self.hold[n]),
                sink.payload.eq(source.payload),
            ]
        return m


def group(keys, indices):
    return [{"key": int(k), "index": int(i)} for k, i in zip(keys, indices, strict=True)]


def build_payloads(case):
    count = len(case.nodes.keys)
    return [
        {"region": case.region, "entries": group(*node), "last": n == count - 1}
        for n, node in enumerate(zip(*case.nodes, strict=True))
    ]


def access(case, node, data=None):
    """Payload of a raw access; a read without ``data``."""
    blank = [{"key": 0, "index": 0}] * case.nodes.keys.shape[1]
    return {"region": case.region, "write": data is not None, "node": node, "data": data or blank}


def replacement(case, entry):
    return {"region": case.region, "key": entry[0], "slot": entry[1]}


def gathered(rows):
    """Rows as the simulator gives them, as one heap."""
    keys = np.array([[entry.key for entry in row] for row in rows])
    return Entries(keys, np.array([[entry.index for entry in row] for row in rows]))


async def read_rows(ctx, heap, case):
    rows = []
    for node in range(len(case.nodes.keys)):
        await sim.put(ctx, heap.i_row, access(case, node))
        rows.append(await sim.get(ctx, heap.o_row))
    return gathered(rows)


async def settle(ctx, heap):
    await ctx.tick().until(heap.idle)


def interleaved(rng, cases):
    """Mix replacements of all cases in a random order that keeps each case's own."""
    turns = rng.permutation([n for n, case in enumerate(cases) for _ in case.replacements])
    waiting = [iter(case.replacements) for case in cases]
    return [(n, next(waiting[n])) for n in turns.tolist()]


def check(p, cases, *, seed=0, busy=1.0, o_gap=0, build_all_first=True):
    """Build all heaps, replace in all of them, compare every answer and every row.

    Without ``build_all_first`` only the first case is replaced in while the others are built.
    """
    probe = Probe(p)
    heap = probe.heap
    rng = np.random.default_rng(seed)
    order, answers = [], []
    minima = [iter(case.minima) for case in cases]
    total = sum(len(case.minima) for case in cases)
    built = Signal()
    rows = []

    async def builds(ctx):
        for n, case in enumerate(cases):
            for payload in build_payloads(case):
                await sim.put(ctx, heap.i_build, payload)
            if not (n and build_all_first):
                ctx.set(built, not build_all_first or len(cases) == 1)
        ctx.set(built, 1)

    async def replaces(ctx):
        await ctx.tick().until(built)
        for n, entry in interleaved(rng, cases if build_all_first else cases[:1]):
            await sim.put(ctx, heap.i_replace, replacement(cases[n], entry))
        while len(answers) < expected:
            await ctx.tick()
        await settle(ctx, heap)
        for case in cases:
            rows.append(await read_rows(ctx, heap, case))

    expected = total
    if not build_all_first:
        expected = len(cases[0].minima) + len(cases) - 1

    async def watch(ctx):
        bases = [case.base for case in cases]
        while True:
            _, _, replaced, at, node, built_in = await ctx.tick().sample(
                heap.i_replace.valid & heap.i_replace.ready,
                heap.i_replace.payload.region.base,
                heap.i_build.valid & heap.i_build.ready & heap.i_build.payload.last,
                heap.i_build.payload.region.base,
            )
            assert not (replaced and node)
            if replaced or node:
                order.append(next(minima[bases.index(at if replaced else built_in)]))

    async def hold_up(ctx):
        stalls = np.random.default_rng(seed + 1)
        while True:
            ctx.set(probe.hold, int((stalls.random(3) >= busy) @ [1, 2, 4]))
            await ctx.tick()

    async def collect(ctx):
        idle = sim.gaps(seed, o_gap)
        for _ in range(expected):
            for answer in await sim.collect(ctx, heap.o_minimum, 1, idle):
                answers.append((answer.key, answer.slot))

    simulate(probe, [builds, replaces, collect], [watch, hold_up])
    assert answers == order
    assert [normal(row) for row in rows] == [
        normal(case.heap if build_all_first or not n else build(case.nodes).heap)
        for n, case in enumerate(cases)
    ]


def simulate(dut, testbenches, background, timeout=60_000):
    """As `sim.run`, with testbenches that may run for ever."""
    async def watchdog(ctx):
        for _ in range(timeout):
            await ctx.tick()
        raise TimeoutError(f"Testbenches still running after {timeout} cycles")

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(testbench)
    for testbench in [*background, watchdog]:
        simulator.add_testbench(testbench, background=True)
    simulator.run()


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_several_contexts_match_golden(levels):
    rng = np.random.default_rng(levels)
    check(SMALL, make_cases(rng, SMALL, [32, 17, 4, 30, 1], newcomers=20, levels=levels))


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
def test_blocked_places_at_every_position_of_the_last_node(nodes):
    """All remainders of the capacity by the ways, empty at first, so that replacing fills."""
    p = dataclasses.replace(SMALL, contexts=1, cap_important=32 * SMALL.ways)
    rng = np.random.default_rng(nodes)
    capacities = [nodes * p.ways - blocked for blocked in range(p.ways)]
    check(p, make_cases(rng, p, capacities, newcomers=nodes * p.ways + 6, levels=3, fill=0.0))


@pytest.mark.parametrize(
    "settings, capacities",
    [
        ({"ways": 4, "cap_important": 128}, [127, 121]),
        ({"ways": 8, "cap_important": 62, "max_slots": 200}, [62, 57, 3]),
        ({"ways": 16, "cap_important": 32, "max_slots": 1024}, [64, 50]),
        ({"score_format": "fp32"}, [32, 30, 7]),
        ({"pipeline": ()}, [32, 30, 7]),
        ({"pipeline": (1, 2, 3, 4, 5, 6)}, [32, 30, 7]),
        ({"parity": True, "storage": "registers"}, [32, 5]),
    ],
)
def test_sizes_formats_and_pipelines_match_golden(settings, capacities):
    p = dataclasses.replace(SMALL, **settings)
    rng = np.random.default_rng(len(capacities))
    check(p, make_cases(rng, p, capacities, newcomers=16, levels=0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pipeline", [None, ()])
def test_stalls_on_the_sorter_and_on_the_answers(seed, pipeline):
    p = dataclasses.replace(SMALL, pipeline=pipeline)
    rng = np.random.default_rng(seed)
    cases = make_cases(rng, p, [32, 15, 4, 29], newcomers=16, levels=3)
    check(p, cases, seed=seed, busy=(0.5, 0.2, 0.8)[seed], o_gap=(3, 0, 12)[seed])


def test_replacements_overlap_with_constructions_elsewhere():
    rng = np.random.default_rng(5)
    cases = make_cases(rng, SMALL, [32, 32, 31, 18], newcomers=60)
    check(SMALL, cases, busy=0.8, build_all_first=False)


def test_every_order_of_the_entries_of_a_tiny_heap_builds():
    """All arrivals of six tokens, three-valued keys, in three nodes of which half is blocked."""
    keys = np.array([9, 9, 7, 7, 8, 7], np.uint16)
    p = dataclasses.replace(SMALL, contexts=1, cap_important=12)
    orders = list(itertools.permutations(range(6)))
    cases = []
    for order in orders[:: len(orders) // 24]:
        nodes = nodes_of(keys[list(order)], np.array(order), capacity=6, ways=4, index_width=8)
        spread = Entries(*(np.roll(part.ravel(), 3).reshape(2, 4) for part in nodes))
        heap = build(spread).heap
        key, slot = int(heap.keys[0, 0]), int(heap.indices[0, 0])
        cases.append(Case(0, spread, [], [(key, slot)], heap))
    for order in orders:
        nodes = nodes_of(keys[list(order)], np.array(order), capacity=6, ways=4, index_width=8)
        heap = build(nodes).heap
        wanted = sorted(zip(keys.tolist(), (-np.arange(6)).tolist(), strict=True))
        found = []
        for newcomer in range(6):
            found.append((int(heap.keys[0, 0]), -int(heap.indices[0, 0])))
            heap = replace(heap, 100 + newcomer, 10 + newcomer).heap
        assert found == wanted
    dut = Probe(p)
    results = []

    async def bench(ctx):
        for case in cases:
            for payload in build_payloads(case):
                await sim.put(ctx, dut.heap.i_build, payload)
            answer = await sim.get(ctx, dut.heap.o_minimum)
            rows = normal(await read_rows(ctx, dut.heap, case))
            results.append(((answer.key, answer.slot), rows))

    sim.run(dut, bench, timeout=60_000)
    assert results == [(case.minima[0], normal(case.heap)) for case in cases]


def entries(*texts):
    """Nodes from the paper's notation, value_index."""
    pairs = [[tuple(map(int, entry.split("_"))) for entry in text.split()] for text in texts]
    numbers = np.array(pairs)
    return Entries(numbers[..., 0].astype(np.uint16), numbers[..., 1])


def paper_case(initial, replacements):
    """Case from nodes in raw rows, with golden answers."""
    heap, minima = initial, []
    for key, slot in replacements:
        heap = replace(heap, key, slot).heap
        minima.append((int(heap.keys[0, 0]), int(heap.indices[0, 0])))
    return Case(0, initial, replacements, minima, heap)


def test_golden_gives_the_vectors_of_the_paper():
    built = build(entries("5_0 3_1 8_2 7_3", "10_4 2_5 5_6 8_7"))
    low, high = entries("2_5 3_1 5_6 5_0"), entries("7_3 8_7 8_2 10_4")
    assert built.invocations == 2
    assert normal(built.heap) == normal(entries("2_5 3_1 5_6 5_0", "7_3 8_7 8_2 10_4"))
    assert normal(built.heap) == [*normal(low), *normal(high)]

    before = entries("0_8 3_1 2_5 4_10", "7_3 8_7 8_2 10_4", "5_6 5_0 9_11 11_9")
    replaced = replace(before, 9, 12)
    assert replaced.path == [0, 2]
    after = entries("2_5 3_1 4_10 5_6", "7_3 8_7 8_2 10_4", "5_0 9_11 9_12 11_9")
    assert normal(replaced.heap) == normal(after)


def test_hardware_gives_the_vectors_of_the_paper():
    """Fig. 11: construction of two nodes, and a replacement in three rows that are loaded."""
    merged = entries("5_0 3_1 8_2 7_3", "10_4 2_5 5_6 8_7")
    loaded = entries("0_8 3_1 2_5 4_10", "7_3 8_7 8_2 10_4", "5_6 5_0 9_11 11_9")
    cases = [
        Case(0, merged, [], [(2, 5)], entries("2_5 3_1 5_6 5_0", "7_3 8_7 8_2 10_4")),
        Case(2, loaded, [(9, 12)], [(2, 5)],
             entries("2_5 3_1 4_10 5_6", "7_3 8_7 8_2 10_4", "5_0 9_11 9_12 11_9")),
    ]  # fmt: skip
    dut = Probe(SMALL)
    answers, rows = [], []

    async def bench(ctx):
        heap = dut.heap
        for payload in build_payloads(cases[0]):
            await sim.put(ctx, heap.i_build, payload)
        answers.append(await sim.get(ctx, heap.o_minimum))
        for node in (2, 0, 1):
            data = group(loaded.keys[node], loaded.indices[node])
            await sim.put(ctx, heap.i_row, access(cases[1], node, data))
        await sim.put(ctx, heap.i_replace, replacement(cases[1], (9, 12)))
        answers.append(await sim.get(ctx, heap.o_minimum))
        await settle(ctx, heap)
        for case in cases:
            rows.append(await read_rows(ctx, heap, case))

    sim.run(dut, bench)
    assert [(answer.key, answer.slot) for answer in answers] == [(2, 5), (2, 5)]
    assert [normal(row) for row in rows] == [normal(case.heap) for case in cases]


@pytest.mark.parametrize("pipeline", [(), (2,), None, (1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("nodes", [1, 3, 7, 15])
def test_insertion_takes_two_clocks_per_level_and_the_picker(nodes, pipeline):
    """The longest path: 2 L clocks and the picker's registers and 3, to the last row written."""
    p = dataclasses.replace(SMALL, pipeline=pipeline)
    keys = np.full(nodes * p.ways, 5, np.uint16)
    start = build(nodes_of(keys, np.arange(len(keys)), capacity=len(keys), ways=p.ways,
                           index_width=p.slot_width)).heap  # fmt: skip
    case = paper_case(start, [(9, 200)])
    dut = HeapWithRis(p)
    clocks = []

    async def bench(ctx):
        for node in range(nodes):
            data = group(start.keys[node], start.indices[node])
            await sim.put(ctx, dut.i_row, access(case, node, data))
        await settle(ctx, dut)
        ctx.set(dut.o_minimum.ready, 1)
        await sim.put(ctx, dut.i_replace, replacement(case, case.replacements[0]))
        clock = 0
        while True:
            clock += 1
            _, _, answered, idle = await ctx.tick().sample(dut.o_minimum.valid, dut.idle)
            if answered:
                clocks.append(clock)
            if idle:
                # Nothing is in flight any more: the last row was written in the clock before.
                clocks.append(clock - 1)
                break
        assert normal(await read_rows(ctx, dut, case)) == normal(case.heap)

    sim.run(dut, bench)
    levels = (nodes + 1).bit_length() - 1
    picker = dut.ris.latency["i_pick to o_pick"]
    # The answer is written a clock later if the path reads another node just then.
    meets = picker % 2 == 0 and levels > picker // 2 + 1
    assert clocks[0] == 4 + picker + meets
    assert clocks[0] <= dut.latency["i_replace to o_minimum"]
    last_row = dut.latency["i_replace to its last row written, less 2 per node of the path"]
    if nodes > 1:  # else the answer, a clock later, is what comes last
        assert last_row + 2 * levels <= clocks[1] <= 2 * levels + picker + 3


@pytest.mark.parametrize(
    "kind, wanted", [("ascending", 32), ("descending", 104), ("random", 92), ("equal", 104)]
)
def test_construction_of_32_nodes_takes_at_most_104_invocations(kind, wanted):
    """At 16 ways in golden, at 4 ways counted in hardware too."""
    counts = []
    for ways in (16, 4):
        count = 32 * ways
        keys = {
            "ascending": np.arange(2, 2 + count),
            "descending": np.arange(2 + count, 2, -1),
            "random": np.random.default_rng(0).permutation(count) + 2,
            "equal": np.full(count, 7),
        }[kind].astype(np.uint16)
        nodes = nodes_of(keys, np.arange(count), capacity=count, ways=ways, index_width=10)
        counts.append(build(nodes).invocations)
    assert counts[0] == wanted
    assert counts[1] <= 104
    p = dataclasses.replace(SMALL, contexts=1, cap_important=128)
    case = Case(0, nodes, [], [], nodes)
    dut = Probe(p)
    seen = []

    async def watch(ctx):
        while True:
            _, _, sort, pick = await ctx.tick().sample(
                dut.ris.i_sort.valid & dut.ris.i_sort.ready,
                dut.ris.i_pick.valid & dut.ris.i_pick.ready,
            )
            seen.append(sort + pick)

    async def bench(ctx):
        for payload in build_payloads(case):
            await sim.put(ctx, dut.heap.i_build, payload)
        await sim.get(ctx, dut.heap.o_minimum)

    simulate(dut, [bench], [watch])
    assert sum(seen) == counts[1]


def test_parity_error_names_the_context():
    """One context is built, the rows of the other hold what they did at power-up."""
    p = dataclasses.replace(SMALL, parity=True)
    rng = np.random.default_rng(3)
    cases = make_cases(rng, p, [32, 32], newcomers=0, fill=1.0)
    dut = Probe(p)
    width = p.ways * (p.score_width + p.slot_width) + 1
    power_up = random.Random(11)
    contents = [power_up.getrandbits(width) for _ in range(p.heap_rows)]
    wrong = sum(row.bit_count() % 2 for row in contents[8:16])
    reports = []

    async def watch(ctx):
        while True:
            _, _, error, base = await ctx.tick().sample(
                dut.heap.parity_error, dut.heap.parity_base
            )
            if error:
                reports.append(base)

    async def bench(ctx):
        for payload in build_payloads(cases[0]):
            await sim.put(ctx, dut.heap.i_build, payload)
        await sim.get(ctx, dut.heap.o_minimum)
        for case in cases:
            await read_rows(ctx, dut.heap, case)
        for _ in range(3):
            await ctx.tick()

    with random_contents(11):
        simulate(dut, [bench], [watch])
    assert wrong
    assert reports == [8] * wrong


def test_rejects_more_entries_than_places():
    keys = np.arange(2, 9, dtype=np.uint16)
    with pytest.raises(ValueError, match=r"^Entries must be at most the capacity \(6\), not 7$"):
        nodes_of(keys, np.arange(7), capacity=6, ways=4, index_width=8)
