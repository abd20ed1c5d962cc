# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.hikv.scoreboard.Scoreboard`, in the Amaranth simulator."""

import dataclasses
import re

import hypothesis
import numpy as np
import pytest
from amaranth.hdl import Shape, Value
from amaranth.lib import memory
from hypothesis import given
from hypothesis import strategies as st

import rtl.memory
from golden.hikv import Context
from golden.parameters import ScoreboardParameters
from golden.scoreboard import SavedContext, read_rows, row_count, saved_bytes, saved_rows
from rtl.catalogue import block
from rtl.hikv.interface import Cause, Operation
from rtl.hikv.scoreboard import Scoreboard
from rtl.hikv.scoreboard_layouts import budget_row_layout
from verif import sim
from verif.scoreboard_stimulus import beats_of, random_weights, tokens_of

SMALL = ScoreboardParameters(
    contexts=2, cap_recent=3, cap_important=5, max_slots=8, ways=4, lanes=4, tag_width=4
)


class Driver:
    """Commands one after the other, checked against golden contexts."""

    def __init__(self, p, dut, ctx, seed=0):
        self.p, self.dut, self.ctx = p, dut, ctx
        self.rng = np.random.default_rng(seed)
        self.contexts = {}

    async def command(self, operation, number):
        payload = {"operation": operation, "context": number, "tag": 5}
        await sim.put(self.ctx, self.dut.i_command, payload)

    async def response(self):
        got = await sim.get(self.ctx, self.dut.o_response)
        assert got.tag == 5
        return got

    async def cause(self, operation, number):
        await self.command(operation, number)
        return (await self.response()).cause

    async def feed(self, stream, columns):
        names = list(columns)
        for row in zip(*columns.values(), strict=True):
            values = [v.tolist() if isinstance(v, np.ndarray) else int(v) for v in row]
            await sim.put(self.ctx, stream, dict(zip(names, values, strict=True)))

    async def make(self, number, context):
        await self.command(Operation.INIT, number)
        await self.feed(self.dut.i_init, tokens_of(context, self.rng))
        self.contexts[number] = context
        return (await self.response()).cause

    async def step(self, number, weights=None):
        context = self.contexts[number]
        admission = context.admit()
        await self.command(Operation.STEP, number)
        got = await self.response()
        assert got.cause == Cause.NONE
        assert (got.slot, got.evicted, got.promoted, got.occupied) == (
            admission.slot, admission.evicted, admission.promoted, context.occupied
        )  # fmt: skip
        if weights is None:
            weights = random_weights(self.rng, 1, context.occupied)
        context.accumulate(weights)
        await self.feed(self.dut.i_p, beats_of(self.p, number, weights, self.rng))

    async def save(self, number):
        context = self.contexts[number]
        caps = context.cap_recent, context.cap_important
        await self.command(Operation.SAVE, number)
        beats = await sim.collect(self.ctx, self.dut.o_save, row_count(self.p, *caps))
        assert (await self.response()).cause == Cause.NONE
        return [beat.data for beat in beats]

    async def check(self, number):
        context = self.contexts[number]
        rows = await self.save(number)
        caps = context.cap_recent, context.cap_important
        assert read_rows(rows, self.p, *caps) == SavedContext.of(context)


def run(p, bench, *, seed=0, timeout=20_000):
    """Simulate a bench that is given a driver."""
    dut = Scoreboard(p)

    async def testbench(ctx):
        await bench(Driver(p, dut, ctx, seed))

    sim.run(dut, testbench, timeout=timeout)


def full_context(p, seed=1):
    context = Context(p.cap_recent, p.cap_important, p.score_format)
    scores = (np.random.default_rng(seed).random(3 * context.slots) * 4).astype(np.float16)
    context.initialise(scores.view(np.uint16), p.lanes)
    return context


def test_slots_must_hold_both_banks():
    message = "Max slots must be at least cap recent + cap important (12), not 11"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ScoreboardParameters(cap_recent=7, cap_important=5, max_slots=11)


def test_recent_bank_must_not_be_empty():
    message = "Cap recent must be an integer from 1 to 16384, not 0"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ScoreboardParameters(cap_recent=0)


def test_header_must_fit_in_a_row():
    message = (
        "Lanes must be such that five counts of slots fit in a row of scores, at least 8 above"
        " 4095 slots, not 4"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ScoreboardParameters(lanes=4, max_slots=4096)


@pytest.mark.parametrize("score_format", ["fp16", "fp32", "ufix"])
def test_saved_rows_say_what_the_context_holds(score_format):
    p = dataclasses.replace(SMALL, score_format=score_format)
    context = Context(3, 5, score_format)
    for _ in range(20):
        context.admit()
        context.accumulate(np.full((2, context.occupied), 0x3400, np.uint16))
        rows = saved_rows(context, p)
        assert len(rows) == row_count(p, 3, 5)
        assert read_rows(rows, p, 3, 5) == SavedContext.of(context)


def test_moving_512_and_512_slots_takes_81_rows():
    p = ScoreboardParameters()
    assert row_count(p, 512, 512) == 1 + 16 + 32 + 32
    assert saved_bytes(p, 512, 512) == 81 * 64


@given(st.data())
@hypothesis.settings(deadline=None, max_examples=4)
def test_any_steps_match_golden(data):
    """Weights of few levels, so that equal scores are common; NaN, negative and infinite too."""
    kinds = st.sampled_from([0x0000, 0x3800, 0x3C00, 0x7C00, 0x7E00, 0xBC00, 0x8000, 0x0001])

    async def bench(driver):
        driver.contexts = {0: Context(3, 5), 1: Context(3, 5)}
        for number in range(2):
            assert await driver.cause(Operation.CLEAR, number) == Cause.NONE
        for _ in range(data.draw(st.integers(8, 40))):
            number = data.draw(st.integers(0, 1))
            occupied = min(8, driver.contexts[number].occupied + 1)
            drawn = data.draw(st.lists(kinds, min_size=occupied, max_size=occupied))
            await driver.step(number, np.array([drawn], np.uint16))
        for number in range(2):
            await driver.check(number)

    run(SMALL, bench)


def test_is_of_2048_does_not_grow():
    """Grow to where an fp16 score of 2048 swallows a weight of 1, and infinity beyond it."""

    async def bench(driver):
        context = full_context(SMALL)
        context.scores[list(context.recent)] = [0x67FF, 0x6800, 0x7BFF]
        assert await driver.make(0, context) == Cause.NONE
        await driver.step(0, np.full((3, 8), 0x3C00, np.uint16))
        await driver.step(0, np.full((1, 8), 0x7C00, np.uint16))
        await driver.check(0)

    run(SMALL, bench)


def test_of_equal_scores_the_lower_slot_stays():
    async def bench(driver):
        context = Context(3, 5)
        context.initialise(np.full(16, 0x3C00, np.uint16), 4)
        assert min(context.recent) < max(context.important)
        assert await driver.make(0, context) == Cause.NONE
        for _ in range(8):
            await driver.step(0, np.zeros((1, 8), np.uint16))
        await driver.check(0)

    run(SMALL, bench)


def test_load_takes_what_save_gave_into_another_context():
    async def bench(driver):
        assert await driver.make(0, full_context(SMALL)) == Cause.NONE
        for _ in range(5):
            await driver.step(0)
        rows = await driver.save(0)
        await driver.command(Operation.LOAD, 1)
        last = [place == len(rows) - 1 for place in range(len(rows))]
        for row, ends in zip(rows, last, strict=True):
            await sim.put(driver.ctx, driver.dut.i_load, {"data": row, "last": ends})
        assert (await driver.response()).cause == Cause.NONE
        driver.contexts[1] = driver.contexts.pop(0)
        for _ in range(10):
            await driver.step(1)
        await driver.check(1)

    run(SMALL, bench)


PARITY = dataclasses.replace(SMALL, parity=True)
#: Rows of context 0 in the memories of a shape: (depth, width of a row), numbers.
STORED = {
    "scores": ((2, 4 * 17), (0,)),
    "state": ((2, 4 + 4 + 3 + 3 + 1), (0,)),
    "minimum": ((2, 16 + 3 + 1), (0,)),
    "ring": ((2, 4 * 4), (0,)),
    "budget": ((2, budget_row_layout(PARITY).size + 1), (0,)),
    "heap": ((4, 4 * 19 + 1), (0, 1)),
}


def test_parity_error_loses_its_context_and_no_other(monkeypatch):
    """Turn stored bits over; a response soon says so, and the other context goes on."""
    found = []

    class Recorded(memory.Memory):
        def __init__(self, **settings):
            super().__init__(**settings)
            found.append(self)

    monkeypatch.setattr(rtl.memory.memory, "Memory", Recorded)

    async def bench(driver):
        for shape, numbers in STORED.values():
            for number in range(2):
                assert await driver.make(number, full_context(PARITY, number)) == Cause.NONE
                await driver.step(number)
            for row in found:
                if (row.depth, Shape.cast(row.shape).width) == shape:
                    for number in numbers:
                        stored = Value.cast(row.data[number])
                        driver.ctx.set(stored, driver.ctx.get(stored) ^ 1)
            assert await until_lost(driver, 0) == Cause.PARITY, shape
            await driver.step(1)
            await driver.check(1)
            for row in found:
                # A budget stays wrong, but for the turning back of its bit.
                if shape == STORED["budget"][0] == (row.depth, Shape.cast(row.shape).width):
                    stored = Value.cast(row.data[0])
                    driver.ctx.set(stored, driver.ctx.get(stored) ^ 1)

    run(PARITY, bench)


async def until_lost(driver, number):
    """Cause of the first STEP that fails, of six that promote."""
    cause = Cause.NONE
    for _ in range(6):
        await driver.command(Operation.STEP, number)
        got = await driver.response()
        cause = got.cause
        if cause != Cause.NONE:
            break
        weights = np.full((1, got.occupied), 0x4400, np.uint16)
        await driver.feed(driver.dut.i_p, beats_of(driver.p, number, weights, driver.rng))
        for _ in range(40):
            await driver.ctx.tick()
    return cause


def test_every_port_has_a_meaning():
    component = block("scoreboard").make(SMALL)
    assert set(component.meanings) == set(component.signature.members)
