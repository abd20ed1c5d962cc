# amaranth: UnusedElaboratable=no
"""A block that says it is idle may lose its clock: nothing is late, or lost, by that."""

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Shape, Value
from amaranth.lib import memory
from amaranth.sim import Simulator

import rtl.memory
from golden.parameters import HikvSelectorParameters, ScoreboardParameters
from golden.scoreboard import SavedContext, read_rows, row_count
from rtl.hikv.hikv_selector import HikvSelector
from rtl.hikv.interface import Cause, Grouping, Operation
from rtl.hikv.scoreboard import Scoreboard
from verif.gated import Gated, Streams
from verif.selector_steps import Workload

SELECTOR = HikvSelectorParameters(
    contexts=2, cap_recent=4, cap_important=12, max_slots=20, ways=4, lanes=4, head_dim=8,
    queries=2, tag_width=3, vectors_in_flight=2, steps_in_flight=2, index_lanes=1,
)  # fmt: skip
SCOREBOARD = ScoreboardParameters(
    contexts=2, cap_recent=4, cap_important=60, max_slots=64, ways=4, lanes=4, tag_width=3
)
NAN = 0x7E00
PIPELINED = {"adder_registers": 1, "pipeline": (1, 2, 3, 4, 5, 6)}


@pytest.fixture
def memories(monkeypatch):
    """Memories of what is elaborated."""
    found = []

    class Recorded(memory.Memory):
        def __init__(self, **settings):
            super().__init__(**settings)
            found.append(self)

    monkeypatch.setattr(rtl.memory.memory, "Memory", Recorded)
    return found


class Bench:
    """A gated block, its streams and what its memories hold."""

    def __init__(self, block, memories):
        self.dut = Gated(block)
        self.streams = Streams(self.dut)
        self.memories = memories

    def run(self, bench, timeout=40_000):
        """Simulate a bench to its end."""

        async def testbench(ctx):
            self.ctx = ctx
            await bench()

        async def watchdog(ctx):
            for _ in range(timeout):
                await ctx.tick()
            raise TimeoutError(f"Still running after {timeout} cycles")

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        for background in (*self.streams.benches(), watchdog):
            simulator.add_testbench(background, background=True)
        simulator.run()

    def send(self, name, rows):
        """Queue payloads."""
        self.streams.queues[f"i_{name}"].extend(
            {key: value.tolist() if isinstance(value, np.ndarray) else value
             for key, value in row.items()} for row in rows
        )  # fmt: skip

    async def take(self, name, count):
        """Wait for payloads."""
        return await self.streams.take(self.ctx, f"o_{name}", count)

    def _state(self):
        ports = self.dut.block.signature.members
        outputs = [name for name, member in ports.items()
                   if member.is_port and name in ("status", "capture")]  # fmt: skip
        rows = [
            self.ctx.get(Value.cast(one.data[number]))
            for one in self.memories for number in range(one.depth)
        ]  # fmt: skip
        return [*rows, *(self.ctx.get(getattr(self.dut, name).as_value()) for name in outputs)]

    async def settle(self):
        """Wait for the clock to stop; then more clocks must change nothing."""
        while self.ctx.get(self.dut.enable):
            await self.ctx.tick()
        before = self._state()
        self.ctx.set(self.dut.force, 1)
        for _ in range(80):
            await self.ctx.tick()
        self.ctx.set(self.dut.force, 0)
        assert self._state() == before
        assert not any(self.streams.queues.values())
        assert not any(self.streams.taken.values())


def spoilt(workload, number):
    """Step of one query head whose P is NaN in all recent slots."""
    context = workload.contexts[number]
    admission = context.admit()
    weights = np.full((1, context.occupied), 0x3400, np.uint16)
    weights[0, list(context.recent)] = NAN
    context.accumulate(weights)
    q = np.arange(workload.parameters.head_dim, dtype=np.uint16)[None]
    return workload.wrap(number, q, weights, admission)


async def initialise(bench, workload, number):
    bench.send("init", workload.initialise(number, 30))
    bench.send("command", [workload.command(Operation.INIT, number)])
    await bench.take("response", 1)


async def check_saved(bench, workload, number):
    context, p = workload.contexts[number], workload.parameters
    caps = context.cap_recent, context.cap_important
    bench.send("command", [workload.command(Operation.SAVE, number)])
    rows = await bench.take("save", row_count(p, *caps))
    assert [(await bench.take("response", 1))[0].cause] == [Cause.NONE]
    assert read_rows([row.data for row in rows], p, *caps) == SavedContext.of(context)


@pytest.mark.parametrize("b_ii", [(6, 6), (0, 0)], ids=str)
@pytest.mark.parametrize("settings", [{}, PIPELINED], ids=["combinational", "pipelined"])
def test_selector_is_idle_only_when_nothing_is_under_way(memories, settings, b_ii):
    p = dataclasses.replace(SELECTOR, **settings)
    bench = Bench(HikvSelector(p), memories)
    dut = bench.dut
    workload = Workload(
        p, np.random.default_rng(5), grouping="union", b_iik=b_ii[0], b_iiv=b_ii[1]
    )

    async def play(step):
        for name in ("commands", "q", "p"):
            bench.send(name.removesuffix("s"), getattr(step, name))
        got = await bench.take("response", len(step.responses))
        assert [r.slot for r in got] == [r["slot"] for r in step.responses]
        for name in ("k", "v"):
            wanted = getattr(step, name)
            for beat, one in zip(await bench.take(name, len(wanted)), wanted, strict=True):
                assert beat.mask == sum(int(bit) << n for n, bit in enumerate(one["mask"]))
            for one in wanted:
                beats = max(1, -(-int(one["count"]) // p.index_lanes))
                listed = await bench.take(f"{name}_index", beats)
                indices = [i for b in listed for i in list(b.indices)[: b["count"]]]
                assert indices == np.flatnonzero(one["mask"]).tolist()
        await bench.settle()
        bench.send("release", [step.release])
        while bench.streams.queues["i_release"]:
            await bench.ctx.tick()
        await bench.settle()

    async def everything():
        for name, value in (("b_iik", b_ii[0]), ("b_iiv", b_ii[1]), ("index_enable", 1)):
            bench.ctx.set(getattr(dut, name), value)
        bench.ctx.set(dut.grouping, Grouping.UNION)
        await bench.settle()
        for context in workload.contexts:
            context.__init__(p.cap_recent, p.cap_important, p.score_format)
        for number in range(p.contexts):
            await initialise(bench, workload, number)
            await bench.settle()
        for number in (0, 1, 1, 0):
            await play(workload.step(number))
        assert bench.ctx.get(dut.status.as_value()) == 0
        await play(spoilt(workload, 1))
        assert bench.ctx.get(dut.status.bad_p) and bench.ctx.get(dut.status.nan)
        for number in range(p.contexts):
            await check_saved(bench, workload, number)
            await bench.settle()

    bench.run(everything)


@pytest.mark.parametrize("settings", [{}, {"adder_registers": 1}, {"parity": True}], ids=str)
def test_scoreboard_is_idle_only_when_nothing_is_under_way(memories, settings):
    """P may come at any time after the response, and nothing follows it."""
    p = dataclasses.replace(SCOREBOARD, **settings)
    bench = Bench(Scoreboard(p), memories)
    rng = np.random.default_rng(6)
    names = [f.name for f in dataclasses.fields(ScoreboardParameters)]
    wide = dataclasses.replace(SELECTOR, **{name: getattr(p, name) for name in names})
    workload = Workload(wide, rng, grouping="union", b_iik=0, b_iiv=0)

    def command(operation, number):
        keys = ("operation", "context", "tag")
        return {key: workload.command(operation, number)[key] for key in keys}

    async def everything():
        await bench.settle()
        for number, context in enumerate(workload.contexts):
            context.__init__(p.cap_recent, p.cap_important, p.score_format)
            bench.send("init", workload.initialise(number, 100))
            bench.send("command", [command(Operation.INIT, number)])
            await bench.take("response", 1)
            await bench.settle()
        for number in (0, 1) * 5:
            step = workload.step(number, queries=1)
            bench.send("command", [command(Operation.STEP, number)])
            await bench.take("response", 1)
            await bench.settle()
            bench.send("p", [row | {"context": number, "final": row["last"]} for row in step.p])
            while bench.streams.queues["i_p"]:
                await bench.ctx.tick()
            await bench.settle()
        for number, context in enumerate(workload.contexts):
            caps = context.cap_recent, context.cap_important
            bench.send("command", [command(Operation.SAVE, number)])
            rows = await bench.take("save", row_count(p, *caps))
            await bench.take("response", 1)
            assert read_rows([r.data for r in rows], p, *caps) == SavedContext.of(context)

    bench.run(everything)


#: Depth and width of the memories with parity, of which context 0 has the first rows.
BROKEN = {"scores": (4, 4 * 17), "heap": (6, 4 * (16 + 5) + 1)}


@pytest.mark.parametrize("kind", BROKEN)
def test_parity_error_loses_its_context_and_is_captured(memories, kind):
    """Turn stored bits over; the other context goes on as in golden."""
    p = dataclasses.replace(SELECTOR, parity=True)
    bench = Bench(HikvSelector(p), memories)
    dut = bench.dut
    workload = Workload(p, np.random.default_rng(7), grouping="union", b_iik=0, b_iiv=0)

    async def step(number):
        """Cause of a STEP that promotes, with its Q and P."""
        wanted = workload.step(number, queries=1)
        bench.send("command", wanted.commands)
        (response,) = await bench.take("response", 1)
        if response.cause == Cause.NONE:
            bench.send("q", wanted.q)
            bench.send("p", wanted.p)
            await bench.take("k", 1)
            await bench.take("v", len(wanted.v))
            bench.send("release", [wanted.release])
        return response.cause

    async def everything():
        bench.ctx.set(dut.grouping, Grouping.UNION)
        for number, context in enumerate(workload.contexts):
            context.__init__(p.cap_recent, p.cap_important, p.score_format)
            await initialise(bench, workload, number)
        await bench.settle()
        shape = BROKEN[kind]
        broken = [m for m in memories if (m.depth, Shape.cast(m.shape).width) == shape]
        for one in broken:
            stored = Value.cast(one.data[0])
            bench.ctx.set(stored, bench.ctx.get(stored) ^ 1)
        causes = [await step(0) for _ in range(8)]
        await bench.settle()
        assert set(causes) <= {Cause.NONE, Cause.PARITY} and causes[-1] == Cause.PARITY
        assert bench.ctx.get(dut.status.parity)
        capture = bench.ctx.get(dut.capture)
        assert (capture.valid, capture.cause, capture.context) == (1, Cause.PARITY, 0)
        for _ in range(3):
            assert await step(1) == Cause.NONE
        await check_saved(bench, workload, 1)

    bench.run(everything)
