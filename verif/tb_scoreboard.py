"""cocotb bench of :class:`rtl.hikv.scoreboard.Scoreboard`."""

import itertools

import cocotb
import numpy as np

from golden.hikv import Context
from golden.hikv_head import Head
from golden.parameters import HikvParameters, ScoreboardParameters
from golden.scoreboard import SavedContext, read_rows, row_count, saved_rows
from rtl.hikv.interface import Cause, Operation
from verif.environment import Environment, beats, parameters_under_test, trace_under_test
from verif.scoreboard_stimulus import (
    BAD_INITS,
    BAD_LOADS,
    Order,
    bad_init,
    bad_load,
    beats_of,
    cause_of,
    copied,
    full_context,
    load_payload,
    possible,
    random_context,
    random_orders,
    random_weights,
    rows_of,
    tokens_of,
)

P = parameters_under_test(ScoreboardParameters)
CAPS = (P.cap_recent, P.cap_important)
SMALL = P.max_slots <= 64
ROW = P.lanes * P.score_width


def full():
    """Context with both banks full."""
    return full_context(CAPS, P.score_format)


class Bench:
    """Streams of the scoreboard, and the golden contexts beside it."""

    def __init__(self, env, i_stall="never", o_stall="never"):
        self.env, self.rng = env, env.rng
        self.command = env.source("i_command", i_stall)
        self.p = env.source("i_p", i_stall)
        self.tokens = env.source("i_init", i_stall)
        self.rows = env.source("i_load", i_stall)
        self.budget = env.source("i_budget", i_stall)
        self.response = env.sink("o_response", o_stall)
        self.saved = env.sink("o_save", o_stall)
        self.caps = dict.fromkeys(range(P.contexts), CAPS)
        self.contexts: dict[int, Context] = {}
        self.tag = 0
        self.bad = False

    def order(self, operation, number):
        """Queue a command."""
        self.command.send({
            "operation": np.array([getattr(operation, "value", operation)]),
            "context": np.array([number]),
            "tag": np.array([self.tag % (1 << P.tag_width)]),
        })
        self.tag += 1

    async def answer(self, operation, number, cause=Cause.NONE, **expected):
        """Take a response, and compare it."""
        got = {name: int(v[0]) for name, v in (await self.response.take(1)).items()}
        got.pop("tag")
        values = {"slot": 0, "evicted": 0, "promoted": 0, "occupied": 0} | expected
        operation = getattr(operation, "value", operation)
        wanted = {"operation": operation, "context": number, "cause": cause.value, **values}
        assert got == wanted, f"answer {self.tag}: expected {wanted}, got {got}"

    async def step(self, number, *, weights=None, sends=True):
        """Take the answer to a STEP; send P, and add it to the golden scores."""
        context = self.contexts[number]
        admission = context.admit()
        await self.answer(
            Operation.STEP, number, slot=admission.slot, evicted=admission.evicted,
            promoted=admission.promoted, occupied=context.occupied,
        )  # fmt: skip
        if weights is None:
            bad = bool(self.rng.random() < 0.1)
            weights = random_weights(
                self.rng, int(self.rng.integers(1, 4)), context.occupied, bad
            )
        if sends:
            self.bad |= context.accumulate(weights)
            self.p.send(beats_of(P, number, weights, self.rng))

    async def save(self, number):
        """Take the rows and the answer of a SAVE, and compare them."""
        context = self.contexts[number]
        caps = context.cap_recent, context.cap_important
        taken = await self.saved.take(row_count(P, *caps))
        rows = rows_of(taken["data"])
        assert taken["last"].tolist() == [0] * (len(rows) - 1) + [1]
        await self.answer(Operation.SAVE, number, occupied=context.occupied)
        assert read_rows(rows, P, *caps) == SavedContext.of(context), f"context {number}"
        return rows

    async def make(self, number, context=None):
        """Have a context made, by CLEAR if none is given."""
        self.contexts[number] = Context(*self.caps[number], P.score_format)
        if context is None:
            self.order(Operation.CLEAR, number)
            await self.answer(Operation.CLEAR, number)
        else:
            self.order(Operation.INIT, number)
            await self.initialise(number, context)

    async def initialise(self, number, context):
        """Send the tokens of an INIT, and take its answer."""
        self.tokens.send(tokens_of(context, self.rng))
        await self.answer(Operation.INIT, number, occupied=context.occupied)
        self.contexts[number] = copied(context)

    async def check_all(self):
        """Save all contexts that there are, and compare them."""
        for number in sorted(self.contexts):
            self.order(Operation.SAVE, number)
            await self.save(number)

    async def run(self, orders):
        """Run commands, all queued at once but for those that an abort separates."""
        saved = {}
        start = 0
        while start < len(orders):
            end = start + 1
            while end < len(orders) and orders[end].fault != "abort":
                end += 1
            if orders[start].fault == "abort":
                await self.abort(orders[start].number)
            for order in orders[start:end]:
                operation = 5 if order.fault == "operation" else order.operation
                self.order(operation, order.number)
            for place, order in enumerate(orders[start:end], start):
                await self.follow(place, order, saved)
            start = end
        await self.p.sent()

    async def follow(self, place, order, saved):
        """Send what a command needs, and take what it gives."""
        if order.fault is not None:
            await self.fail(order)
        elif order.operation == Operation.STEP:
            await self.step(order.number)
        elif order.operation == Operation.INIT:
            await self.initialise(order.number, order.context)
        elif order.operation == Operation.CLEAR:
            self.contexts[order.number] = Context(*self.caps[order.number], P.score_format)
            await self.answer(Operation.CLEAR, order.number)
        elif order.operation == Operation.SAVE:
            saved[place] = await self.save(order.number), copied(self.contexts[order.number])
        else:
            rows, context = saved[order.source]
            self.rows.send(load_payload(rows, ROW))
            await self.answer(Operation.LOAD, order.number, occupied=context.occupied)
            self.contexts[order.number] = copied(context)

    async def fail(self, order):
        """Send what a faulty command brings, and take its answer."""
        if order.operation == Operation.INIT:
            self.tokens.send(bad_init(order.fault, P, order.context, self.rng))
        elif order.operation == Operation.LOAD:
            self.rows.send(bad_load(order.fault, P, order.context))
        operation = 5 if order.fault == "operation" else order.operation
        await self.answer(operation, order.number, cause_of(order))
        if order.fault not in ("operation", "context"):
            self.contexts.pop(order.number, None)

    async def abort(self, number):
        """Lose a context; its P that is still under way goes nowhere."""
        self.env.set("abort_context", number)
        self.env.set("abort", 1)
        await self.env.clocks(1)
        self.env.set("abort", 0)
        await self.p.sent()


async def start(dut, **stalls):
    """Environment and bench."""
    env = await Environment.start(dut, timeout=400_000)
    return env, Bench(env, **stalls)


@cocotb.test()
@cocotb.parametrize(stalls=[("never", "never"), ("random", "random"), ("bursts", "late"),
                            ("never", "sparse")])  # fmt: skip
async def matches_golden(dut, stalls):
    """Run all commands on all contexts at random, faulty ones too; the others stay as they are."""
    env, bench = await start(dut, i_stall=stalls[0], o_stall=stalls[1])
    bad = env.record("bad_p")
    count = beats(verilator=400, icarus=60) if SMALL else 120
    orders = random_orders(P, env.rng, count, bench.caps, faults=True)
    await bench.run(orders)
    await bench.check_all()
    assert any(bad) == bench.bad


@cocotb.test(skip=not SMALL)
async def no_slot_is_lost_or_doubled(dut):
    """Save every context that a command has touched: slots, scores and heap after each of them."""
    _, bench = await start(dut, o_stall="random")
    await bench.make(0, random_context(bench.rng, CAPS, P.score_format))
    await bench.make(P.contexts - 1)
    for step in range(beats(verilator=60, icarus=12)):
        number = (0, P.contexts - 1)[step % 2]
        bench.order(Operation.STEP, number)
        bench.order(Operation.SAVE, number)
        await bench.step(number)
        await bench.save(number)


@cocotb.test()
async def contexts_are_swapped_in_and_out(dut):
    """Keep more contexts than places: each step may come anywhere after a LOAD of its rows."""
    _, bench = await start(dut, i_stall="random", o_stall="random")
    away = []
    for _ in range(2 * P.contexts):
        await bench.make(0, random_context(bench.rng, CAPS, P.score_format))
        context = bench.contexts.pop(0)
        away.append((saved_rows(context, P), context))
    for _ in range(beats(verilator=60, icarus=10) if SMALL else 8):
        number = int(bench.rng.integers(P.contexts))
        rows, context = away.pop(int(bench.rng.integers(len(away))))
        bench.order(Operation.LOAD, number)
        bench.rows.send(load_payload(rows, ROW))
        bench.contexts[number] = context
        await bench.answer(Operation.LOAD, number, occupied=context.occupied)
        for _ in range(int(bench.rng.integers(4))):
            bench.order(Operation.STEP, number)
            await bench.step(number)
        bench.order(Operation.SAVE, number)
        away.append((await bench.save(number), copied(bench.contexts.pop(number))))


@cocotb.test()
async def freed_slot_known_2_clocks_after_score_read_4_after_command(dut):
    """Answer STEP four clocks after the command, while P of another context streams in."""
    _, bench = await start(dut)
    for number in range(min(2, P.contexts)):
        await bench.make(number, full())
    heads = 6
    for turn in range(beats(verilator=12, icarus=4)):
        number = turn % min(2, P.contexts)
        bench.order(Operation.STEP, number)
        context = bench.contexts[number]
        await bench.step(number, weights=random_weights(bench.rng, heads, context.occupied))
        clocks = bench.response.cycles[-1] - bench.command.cycles[-1]
        assert clocks == 4, f"answer after {clocks} clocks"
    await bench.check_all()


@cocotb.test(skip=-(-(P.cap_recent + P.cap_important) // P.lanes) < 4)
async def one_beat_of_p_per_clock(dut):
    """Accumulate the query heads of a step without a gap between beats of one head."""
    env, bench = await start(dut)
    await bench.make(0, full())
    added = env.record("accumulated")
    bench.order(Operation.STEP, 0)
    heads = 4
    await bench.step(0, weights=random_weights(bench.rng, heads, bench.contexts[0].occupied))
    await bench.p.sent()
    await bench.check_all()
    clocks = np.flatnonzero(added)
    rows = len(clocks) // heads
    gaps = np.diff(clocks).reshape(-1)
    inside = [gap for place, gap in enumerate(gaps.tolist()) if (place + 1) % rows]
    assert len(clocks) == heads * rows and set(inside) == {1}, f"beats in clocks {clocks}"
    assert (gaps <= 2).all() or rows < 5, f"beats in clocks {clocks}"


@cocotb.test()
async def resets_in_mid_operation(dut):
    """Reset at any time: all contexts are uninitialised, and nothing is left behind."""
    env, bench = await start(dut, i_stall="random", o_stall="random")
    for clocks in env.rng.integers(1, 300, size=beats(verilator=8, icarus=3)).tolist():
        orders = random_orders(P, env.rng, 20, bench.caps)
        task = cocotb.start_soon(bench.run(orders))
        await env.clocks(clocks)
        task.cancel()
        await env.reset()
        bench = Bench(env, "random", "random")
    number = P.contexts - 1
    bench.order(Operation.STEP, number)
    await bench.answer(Operation.STEP, number, Cause.UNINITIALISED)
    await bench.run(random_orders(P, env.rng, 30, bench.caps, faults=True))
    await bench.check_all()


@cocotb.test(skip=P.contexts < 2)
async def p_of_wrong_length_loses_its_context_only(dut):
    """Send P too short, too long, after its end, and without a step."""
    env, bench = await start(dut, i_stall="random")
    lost, dropped = env.record("p_length"), env.record("unexpected_p")
    await bench.make(1, random_context(bench.rng, CAPS, P.score_format))
    beats_there = -(-(P.cap_recent + P.cap_important) // P.lanes)
    for extra in (-1, 1, 5) if beats_there > 1 else (1, 5):
        await bench.make(0, full())
        bench.order(Operation.STEP, 0)
        await bench.step(0, sends=False)
        lanes = bench.contexts[0].occupied + extra * P.lanes
        seen = sum(lost)
        bench.p.send(beats_of(P, 0, random_weights(bench.rng, 2, lanes), bench.rng))
        await bench.p.sent()
        await env.clocks(4)
        assert sum(lost) == seen + 1
        for operation in (Operation.STEP, Operation.SAVE):
            bench.order(operation, 0)
            await bench.answer(operation, 0, Cause.P_LENGTH)
    del bench.contexts[0]
    bench.order(Operation.STEP, 1)
    await bench.step(1)
    bench.p.send(beats_of(P, 1, random_weights(bench.rng, 2, P.lanes), bench.rng))
    seen = sum(dropped)
    await bench.p.sent()
    await env.clocks(4)
    assert sum(dropped) == seen + 2
    await bench.check_all()


@cocotb.test()
async def faulty_tokens_and_rows_are_refused(dut):
    """Try every fault of INIT and LOAD, for all others to stay as they are."""
    _, bench = await start(dut, i_stall="random")
    for number in range(1, min(P.contexts, 3)):
        await bench.make(number, random_context(bench.rng, CAPS, P.score_format))
    for operation, faults in ((Operation.INIT, BAD_INITS), (Operation.LOAD, BAD_LOADS)):
        for fault in faults:
            if possible(fault, CAPS, P):
                await bench.make(0, full())
                bench.order(operation, 0)
                await bench.fail(Order(operation, 0, full(), fault=fault))
                bench.order(Operation.STEP, 0)
                await bench.answer(Operation.STEP, 0, Cause.UNINITIALISED)
    await bench.make(0, full())
    await bench.check_all()


@cocotb.test()
async def commands_that_cannot_be_done_are_answered(dut):
    """Answer unknown operations and contexts; streams of INIT and LOAD are taken all the same."""
    _, bench = await start(dut)
    bench.order(7, 0)
    await bench.answer(7, 0, Cause.BAD_OPERATION)
    for operation in (Operation.STEP, Operation.SAVE):
        bench.order(operation, 0)
        await bench.answer(operation, 0, Cause.UNINITIALISED)
    if P.contexts & (P.contexts - 1):
        for operation in Operation:
            bench.order(operation, P.contexts)
            if operation == Operation.INIT:
                bench.tokens.send(tokens_of(full(), bench.rng))
            if operation == Operation.LOAD:
                bench.rows.send(load_payload(saved_rows(full(), P), ROW))
            await bench.answer(operation, P.contexts, Cause.BAD_CONTEXT)
    await bench.make(0, full())
    await bench.check_all()


@cocotb.test()
async def abort_drops_what_is_under_way(dut):
    """Abort between beats of P, and before a command; what is made anew afterwards is right."""
    env, bench = await start(dut)
    for clocks in range(beats(verilator=24, icarus=6)):
        await bench.make(0, full())
        bench.order(Operation.STEP, 0)
        await bench.step(0, weights=random_weights(bench.rng, 3, bench.contexts[0].occupied))
        await env.clocks(clocks)
        await bench.abort(0)
        bench.order(Operation.STEP, 0)
        await bench.answer(Operation.STEP, 0, Cause.ABORTED)
        del bench.contexts[0]
        await bench.make(0, full())
        await bench.check_all()


async def lay_out(bench, entries):
    """Send a head budget table; all contexts are then uninitialised."""
    contexts, caps = zip(*entries, strict=True)
    bench.budget.send({
        "context": np.array(contexts),
        "cap_recent": np.array([recent for recent, _ in caps]),
        "cap_important": np.array([important for _, important in caps]),
        "last": np.arange(len(entries)) == len(entries) - 1,
    })
    await bench.budget.sent()
    bench.contexts.clear()
    bench.caps = {}
    await bench.env.clocks(4 * P.contexts + 4)


@cocotb.test(skip=P.contexts < 3)
async def budgets_differ_by_context(dut):
    """Share the memories out unequally; contexts without a budget can do nothing."""
    env, bench = await start(dut, i_stall="random")
    most = P.max_slots
    recent = most - P.cap_important
    tables = [
        [(0, (1, 0)), (1, (recent, P.cap_important)), (2, (2, 1))],
        [(2, (1, P.cap_important)), (1, (P.cap_recent, 0))],
        [(1, (9, 9)), (0, (P.cap_recent, 1)), (1, (3, 2))],
    ]
    if most >= 64:
        tables.append([(0, (17, 16)), (1, (16, 17)), (2, (2, 2))])
    for table in tables:
        await lay_out(bench, table)
        assert env.get("budget_ok") and not env.get("budget_refused")
        bench.caps = dict(table)
        for number in range(P.contexts):
            cause = Cause.UNINITIALISED if number in bench.caps else Cause.NO_BUDGET
            bench.order(Operation.STEP, number)
            await bench.answer(Operation.STEP, number, cause)
        await bench.run(random_orders(P, env.rng, beats(verilator=80, icarus=15), bench.caps))
        await bench.check_all()


@cocotb.test(skip=P.contexts < 3)
async def budgets_that_do_not_fit_are_refused_as_a_whole(dut):
    """Refuse an empty recent bank, too many slots, too many rows, and a context that is none."""
    env, bench = await start(dut)
    whole = P.max_slots
    tables = [
        [(0, (0, 4)), (1, (1, 1))],
        [(0, (whole, 1))],
        [(number, (whole, 0)) for number in range(P.contexts)],
        [(number, (1, whole - 1)) for number in range(P.contexts)],
    ]
    if P.contexts & (P.contexts - 1):
        tables.append([(P.contexts, (1, 1))])
    for table in tables:
        await lay_out(bench, table)
        assert env.get("budget_refused") and not env.get("budget_ok"), table
        bench.order(Operation.CLEAR, 1)
        await bench.answer(Operation.CLEAR, 1, Cause.NO_BUDGET)
    await lay_out(bench, [(1, (1, 1))])
    assert env.get("budget_ok") and not env.get("budget_refused")


@cocotb.test(skip=P.max_slots < 32 or P.score_format != "fp16")
async def real_trace_is_kept_as_golden(dut):
    """Decode 64 steps of several heads of a real model, side by side, from its own prompt."""
    _, bench = await start(dut)
    trace = trace_under_test()
    shape = HikvParameters(head_dim=trace.head_dim, cap_recent=P.cap_recent,
                           cap_important=P.cap_important, b_iik=min(19, trace.head_dim),
                           b_iiv=min(19, trace.head_dim))  # fmt: skip
    places = itertools.product(*map(range, trace.q.shape[:2]))
    heads = {n: (Head(shape), place) for n, place in enumerate(places) if n < P.contexts}
    scores = trace.initial_scores(P.cap_recent)
    keys, values = trace.k.view(np.float16), trace.v.view(np.float16)
    for number, (head, place) in heads.items():
        prompt = slice(trace.prompt)
        head.initialise(scores[place], keys[place][prompt], values[place][prompt])
        await bench.make(number, head.context)
    for step in range(trace.steps):
        token = trace.prompt + step
        for number, (head, place) in heads.items():
            taken = head.step(
                trace.q[place][:, step].view(np.float16), keys[place][token], values[place][token]
            )
            bench.order(Operation.STEP, number)
            await bench.step(number, weights=taken.p)
            assert SavedContext.of(bench.contexts[number]) == SavedContext.of(head.context)
    await bench.check_all()
