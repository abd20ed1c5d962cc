"""cocotb bench of :class:`rtl.hikv.hikv_selector.HikvSelector`."""

import copy
import os
import time

import cocotb
import numpy as np

from golden.hikv import Context
from golden.parameters import GROUPINGS, HikvSelectorParameters
from golden.scoreboard import SavedContext, read_rows, row_count, saved_rows
from rtl.hikv.interface import Cause, Grouping, Operation
from verif.environment import STALLS, Environment, beats, parameters_under_test, trace_under_test
from verif.scoreboard_stimulus import (
    BAD_INITS,
    BAD_LOADS,
    bad_init,
    bad_load,
    full_context,
    load_payload,
    rows_of,
)
from verif.selector_replay import bounds, replay
from verif.selector_steps import Workload, gather

P = parameters_under_test(HikvSelectorParameters)
SMALL = P.head_dim < 64
TRACE = trace_under_test()
REPLAYS = (P.head_dim, P.contexts) == (TRACE.head_dim, TRACE.q.shape[0] * TRACE.q.shape[1])
TAGS = 1 << P.tag_width
ROW = P.lanes * P.score_width


def payloads(rows):
    """Payloads of a stream; masks as the environment gives them."""
    columns = gather(rows)
    if "mask" in columns and P.head_dim <= 64:
        weights = np.uint64(1) << np.arange(P.head_dim, dtype=np.uint64)
        columns["mask"] = (columns["mask"] * weights).sum(axis=1, dtype=np.uint64)
    return columns


def listing(selection):
    """Beats of the index stream for one selection."""
    lanes = P.index_lanes
    places = np.flatnonzero(selection["mask"])
    shared = {name: value for name, value in selection.items() if name not in ("mask", "count")}
    rows = []
    for start in range(0, max(1, len(places)), lanes):
        found = places[start : start + lanes]
        end = start + lanes >= len(places)
        indices = np.pad(found, (0, lanes - len(found)))
        rows.append(shared | {"indices": indices, "count": len(found), "end": end})
    return rows


class Bench:
    """Selector with budgets, settings and all its streams."""

    def __init__(self, env, i_stall="never", o_stall="never", *, lists=False):
        self.env = env
        self.lists = lists and P.index_lanes > 0
        inputs = ("command", "q", "p", "release", "init", "load", "budget")
        self.sources = {name: env.source(f"i_{name}", i_stall) for name in inputs}
        outputs = ("response", "k", "v", "save")
        outputs += ("k_index", "v_index") if self.lists else ()
        self.sinks = {name: env.sink(f"o_{name}", o_stall) for name in outputs}

    def send(self, name, rows):
        """Queue beats of an input stream."""
        if rows:
            self.sources[name].send(payloads(rows))

    async def setup(self, workload, *, grouping, b_iik, b_iiv):
        """Set the registers, the head budget table, and wait until it is in force."""
        env = self.env
        env.set("grouping", Grouping[grouping.upper()].value)
        env.set("b_iik", b_iik)
        env.set("b_iiv", b_iiv)
        if P.index_lanes:
            env.set("index_enable", self.lists)
        await self.budget([
            {"context": n, "cap_recent": c.cap_recent, "cap_important": c.cap_important}
            for n, c in enumerate(workload.contexts)
        ])  # fmt: skip

    async def budget(self, rows):
        """Send a head budget table, and wait until it is taken."""
        self.send("budget", [row | {"last": n == len(rows) - 1} for n, row in enumerate(rows)])
        await self.sources["budget"].sent()
        await self.env.clocks(4)

    async def answers(self, commands, causes=None):
        """Send commands, and compare the causes of their responses."""
        self.send("command", commands)
        got = await self.sinks["response"].take(len(commands))
        wanted = [cause.value for cause in causes or [Cause.NONE] * len(commands)]
        assert got["tag"].tolist() == [c["tag"] for c in commands]
        assert got["cause"].tolist() == wanted

    async def initialise(self, workload, number, tokens):
        """Fill a context by INIT, or empty it by CLEAR."""
        rows = workload.initialise(number, tokens)
        self.send("init", rows)
        await self.answers([workload.command(
            Operation.INIT if rows else Operation.CLEAR, number)])

    async def play(self, steps):
        """Send steps back to back; release each when its V selections are there; compare."""
        for name in ("commands", "q", "p"):
            rows = [row for step in steps for row in getattr(step, name)]
            self.send(name.removesuffix("s"), rows)
        taken = len(self.sinks["v"].accepted)
        cocotb.start_soon(self._release(steps, taken))
        for name in ("response", "k", "v"):
            field = "responses" if name == "response" else name
            wanted = [row for step in steps for row in getattr(step, field)]
            got = await self.sinks[name].take(len(wanted))
            self.env.compare(f"o_{name}", got, payloads(wanted))
            if name in ("k", "v") and self.lists:
                wanted = [row for one in wanted for row in listing(one)]
                got = await self.sinks[f"{name}_index"].take(len(wanted))
                self.env.compare(f"o_{name}_index", got, gather(wanted))
        await self.sources["release"].sent()

    async def saved(self, workload, number):
        """SAVE a context, and compare with golden; the rows as they came."""
        context = workload.contexts[number]
        caps = context.cap_recent, context.cap_important
        self.send("command", [workload.command(Operation.SAVE, number)])
        got = (await self.sinks["save"].take(row_count(P, *caps)))["data"]
        response = await self.sinks["response"].take(1)
        assert response["cause"].tolist() == [Cause.NONE.value]
        assert read_rows(rows_of(got), P, *caps) == SavedContext.of(context)
        return got

    def load(self, rows):
        """Queue the rows of a LOAD."""
        ends = np.arange(len(rows)) == len(rows) - 1
        self.sources["load"].send({"data": rows, "last": ends})

    async def flags(self):
        """Names of the flags that are set."""
        await self.env.clocks(4)
        names = [name for name, _ in self.env.component.status.shape()]
        return {name for n, name in enumerate(names) if self.env.get("status") >> n & 1}

    def captured(self):
        """First error."""
        return self.env.component.capture.shape().from_bits(self.env.get("capture"))

    async def clear(self):
        """Take flags and first error back, those on their way too."""
        await self.env.clocks(4)
        self.env.set("clear", 1)
        await self.env.clocks(1)
        self.env.set("clear", 0)
        assert await self.flags() == set()
        assert not self.captured().valid

    async def _release(self, steps, count):
        sink = self.sinks["v"]
        for step in steps:
            count += len(step.v)
            wanted = count
            await self.env.until(lambda wanted=wanted: len(sink.accepted) >= wanted)
            self.send("release", [step.release])


async def start(dut, *, grouping, b_iik=None, b_iiv=None, i_stall="never", o_stall="never",
                timeout=400_000, lists=False, caps: tuple[int, int] | None = None):  # fmt: skip
    """Bench after reset, with contexts that have random budgets, or all the same."""
    env = await Environment.start(dut, timeout=timeout)
    bounds = {
        "b_iik": int(env.rng.integers(P.head_dim + 1)) if b_iik is None else b_iik,
        "b_iiv": int(env.rng.integers(P.head_dim + 1)) if b_iiv is None else b_iiv,
    }
    workload = Workload(P, env.rng, grouping=grouping, **bounds)
    if caps is not None:
        workload.contexts = [Context(*caps, P.score_format) for _ in workload.contexts]
    bench = Bench(env, i_stall, o_stall, lists=lists)
    await bench.setup(workload, grouping=grouping, **bounds)
    return env, bench, workload


async def prepare(bench, workload):
    """Prompts longer and shorter than the slots, and none."""
    for number, context in enumerate(workload.contexts):
        tokens = int(workload.rng.integers(2 * context.slots + 1)) if number % 3 else 0
        await bench.initialise(workload, number, tokens)


@cocotb.test()
@cocotb.parametrize(
    ("grouping", GROUPINGS),
    (("i_stall", "o_stall"), (*zip(STALLS, STALLS, strict=True), ("random", "late"))),
)
async def matches_golden(dut, grouping, i_stall, o_stall):
    """Random steps of all contexts, in any order, under every kind of stall."""
    _, bench, workload = await start(
        dut, grouping=grouping, i_stall=i_stall, o_stall=o_stall, lists=True
    )
    await prepare(bench, workload)
    order = workload.rng.integers(P.contexts, size=beats(verilator=12, icarus=5)).tolist()
    await bench.play([workload.step(number) for number in order])
    assert bench.env.get("status") == 0


@cocotb.test(skip=not os.environ.get("KVSMITH_LONG"))
@cocotb.parametrize(grouping=GROUPINGS)
async def thousand_steps(dut, grouping):
    """Long run: 1,000 steps of all contexts, with random stalls."""
    _, bench, workload = await start(
        dut, grouping=grouping, i_stall="bursts", o_stall="random", timeout=4_000_000, lists=True
    )
    await prepare(bench, workload)
    order = workload.rng.integers(P.contexts, size=1000).tolist()
    await bench.play([workload.step(number) for number in order])


@cocotb.test()
async def resets_in_mid_operation(dut):
    """Reset at any time: nothing is left behind."""
    env, bench, workload = await start(dut, grouping="union")
    for clocks in env.rng.integers(20, 600, size=beats(verilator=8, icarus=3)).tolist():
        await prepare(bench, workload)
        step = [workload.step(n % P.contexts) for n in range(6)]
        for name in ("commands", "q", "p"):
            bench.send(name.removesuffix("s"), [row for s in step for row in getattr(s, name)])
        await env.clocks(clocks)
        await env.reset()
        assert env.get("status") == 0
        await bench.setup(workload, grouping="union", **workload.bounds)
    await prepare(bench, workload)
    await bench.play([workload.step(n % P.contexts) for n in range(6)])


async def fresh(dut, grouping="union"):
    """Two contexts, one token each, and what a step of either sends."""
    env, bench, workload = await start(dut, grouping=grouping)
    for number in range(P.contexts):
        await bench.initialise(workload, number, 1)
    return env, bench, workload


async def check_capture(bench, cause, flag):
    """Compare the first error and the flags."""
    assert flag in await bench.flags()
    capture = bench.captured()
    assert capture.valid and capture.cause == cause


@cocotb.test(skip=not SMALL)
@cocotb.parametrize(vector=("q", "p"), change=("short", "long"))
async def vector_of_wrong_length_spoils_its_step_only(dut, vector, change):
    """Mark selections, lose the context of a P; other contexts go on as in golden."""
    env, bench, workload = await fresh(dut)
    while workload.contexts[0].occupied <= P.lanes + 1:
        if len(workload.contexts[0].recent) == workload.contexts[0].cap_recent:
            await bench.initialise(workload, 0, workload.contexts[0].slots)
            break
        await bench.play([workload.step(0)])
    bad, good = workload.step(0, P.queries), workload.step(1)
    rows = getattr(bad, vector)
    if change == "short" and len(rows) > 1 and not rows[0]["last"]:
        rows[0]["last"] = True
        end = next(n for n, row in enumerate(rows) if n and row["last"])
        del rows[1 : end + 1]
    else:
        rows[-1]["last"] = False
        rows.append({"values": rows[-1]["values"], "last": True})
        change = "long"
    for name in ("commands", "q", "p"):
        bench.send(name.removesuffix("s"), getattr(bad, name) + getattr(good, name))
    responses = await bench.sinks["response"].take(len(bad.responses) + len(good.responses))
    env.compare("o_response", responses, payloads(bad.responses + good.responses))
    for name in ("k", "v"):
        broken, whole = getattr(bad, name), getattr(good, name)
        got = await bench.sinks[name].take(len(broken) + len(whole))
        assert got["error"][len(broken) - 1] == ((name == "k") == (vector == "q"))
        part = {key: values[len(broken) :] for key, values in got.items()}
        env.compare(f"o_{name}", part, payloads(whole))
    cause = Cause.P_LENGTH if vector == "p" else Cause.Q_LENGTH
    await check_capture(bench, cause, cause.name.lower())
    bench.send("release", [good.release] + ([bad.release] if vector == "q" else []))
    await bench.play([workload.step(1)])
    if vector == "p":
        command = workload.command(Operation.STEP, 0, first=1, last=1)
        await bench.answers([command], [Cause.ABORTED])
        await bench.initialise(workload, 0, 3)
    await bench.play([workload.step(0), workload.step(1)])


@cocotb.test(skip=not SMALL or P.queries == 1)
async def commands_out_of_order_fail_and_do_nothing(dut):
    env, bench, workload = await fresh(dut)
    step = workload.step(0)
    while len(step.commands) < 2:
        await bench.play([step])
        step = workload.step(0)
    first, *rest = step.commands
    wrong = [
        (Operation.STEP, 0, {"query": 1}, Cause.BAD_QUERY),
        (Operation.STEP, 0, {"query": 1, "first": 1}, Cause.BAD_QUERY),
    ]
    inside = [
        (Operation.STEP, 1, {"first": 1, "last": 1}, Cause.BAD_QUERY),
        (Operation.STEP, 0, {"first": 1}, Cause.BAD_QUERY),
        (Operation.STEP, 0, {"query": 0}, Cause.BAD_QUERY),
        (Operation.CLEAR, 0, {}, Cause.BAD_QUERY),
    ]
    for before, cases in (([], wrong), ([first], inside)):
        commands = [*before, *(workload.command(op, n, **f) for op, n, f, _ in cases)]
        causes = [Cause.NONE] * len(before) + [cause for *_, cause in cases]
        await bench.answers(commands, causes)
    await bench.answers(rest)
    bench.send("q", step.q)
    bench.send("p", step.p)
    for name in ("k", "v"):
        wanted = getattr(step, name)
        env.compare(f"o_{name}", await bench.sinks[name].take(len(wanted)), payloads(wanted))
    bench.send("release", [step.release])
    await bench.play([workload.step(1), workload.step(0)])
    await check_capture(bench, Cause.BAD_QUERY, "bad_command")


@cocotb.test(skip=not SMALL)
async def release_that_does_not_come_fails_the_next_step(dut):
    """Nothing is changed by it; a release of the wrong tag is none."""
    env, bench, workload = await fresh(dut)
    step = workload.step(0)
    for name in ("commands", "q", "p"):
        bench.send(name.removesuffix("s"), getattr(step, name))
    await bench.sinks["v"].take(len(step.v))
    await bench.sinks["response"].take(len(step.responses))
    await bench.sinks["k"].take(len(step.k))
    env.set("release_limit", 50)
    await env.clocks(2)
    command = workload.command(Operation.STEP, 0, first=1, last=1)
    began = env.cycle
    await bench.answers([command], [Cause.RELEASE_TIMEOUT])
    assert 50 <= env.cycle - began <= 70
    await check_capture(bench, Cause.RELEASE_TIMEOUT, "release_timeout")
    bench.send("release", [step.release | {"tag": (step.release["tag"] + 1) % TAGS}])
    await bench.answers([workload.command(Operation.STEP, 0, first=1, last=1)],
                        [Cause.RELEASE_TIMEOUT])
    assert "stray_release" in await bench.flags()
    bench.send("release", [step.release])
    await bench.play([workload.step(0)])


@cocotb.test(skip=not SMALL)
@cocotb.parametrize(clocks=(0, 3, 8, 20, 60, 150))
async def aborted_context_drains_and_others_go_on(dut, clocks):
    """Abort at any time: every answered STEP takes its Q and P; the other context is as golden."""
    env, bench, workload = await fresh(dut)
    lost, kept = [workload.step(0)], [workload.step(1)]
    steps = [*lost, *kept]
    for name in ("commands", "q", "p"):
        bench.send(name.removesuffix("s"), [row for s in steps for row in getattr(s, name)])
    await env.clocks(clocks)
    env.set("abort_context", 0)
    env.set("abort", 1)
    await env.clocks(1)
    env.set("abort", 0)
    got = await bench.sinks["response"].take(sum(len(s.responses) for s in steps))
    accepted = got["cause"] == 0
    # Heads that failed expect no Q and no P, so these went to the wrong step: reset is fair then.
    if accepted.all():
        for name in ("k", "v"):
            broken, whole = getattr(lost[0], name), getattr(kept[0], name)
            beats_in = await bench.sinks[name].take(len(broken) + len(whole))
            part = {key: values[len(broken) :] for key, values in beats_in.items()}
            env.compare(f"o_{name}", part, payloads(whole))
        bench.send("release", [kept[0].release])
        await bench.answers([workload.command(Operation.STEP, 0, first=1, last=1)],
                            [Cause.ABORTED])
        await bench.initialise(workload, 0, 5)
        await bench.play([workload.step(0), workload.step(1)])
    else:
        assert set(got["cause"][~accepted].tolist()) <= {
            cause.value for cause in (Cause.ABORTED, Cause.BAD_QUERY)}


async def check_others(bench, workload, *, lost=()):
    """Every context but the lost ones goes on, and is then as golden's."""
    kept = [n for n in range(P.contexts) if n not in lost]
    await bench.play([workload.step(n) for n in kept])
    for number in kept:
        await bench.saved(workload, number)


@cocotb.test(skip=not SMALL)
@cocotb.parametrize(stall=("never", "random"))
async def saved_context_goes_on_in_another_place(dut, stall):
    """LOAD what SAVE gave, and what golden makes of the same context."""
    caps = (P.cap_recent, P.cap_important)
    _, bench, workload = await start(
        dut, grouping="per_group", i_stall=stall, o_stall=stall, caps=caps
    )
    for number in range(P.contexts):
        await bench.initialise(workload, number, 2 * sum(caps))
    await bench.play([workload.step(n) for n in (0, 1, 0, 2)])
    rows = await bench.saved(workload, 0)
    bench.load(rows)
    await bench.answers([workload.command(Operation.LOAD, 1)])
    workload.contexts[1] = copy.deepcopy(workload.contexts[0])
    bench.sources["load"].send(load_payload(saved_rows(workload.contexts[2], P), ROW))
    await bench.answers([workload.command(Operation.LOAD, 0)])
    workload.contexts[0] = copy.deepcopy(workload.contexts[2])
    await bench.play([workload.step(n) for n in (1, 0, 2, 0, 1)])
    await check_others(bench, workload)


@cocotb.test(skip=not SMALL)
async def refused_budgets_leave_no_context(dut):
    """Until a table is good again; the flag stands as long as it is not."""
    _, bench, workload = await fresh(dut)
    whole = P.max_slots
    tables = {
        "no recent bank": [{"context": 0, "cap_recent": 0, "cap_important": 1}],
        "too many slots": [{"context": 1, "cap_recent": whole, "cap_important": 1}],
        "too many rows": [
            {"context": n, "cap_recent": whole, "cap_important": 0} for n in range(P.contexts)
        ],
        "no such context": [{"context": P.contexts, "cap_recent": 1, "cap_important": 1}],
    }
    for rows in tables.values():
        await bench.budget(rows)
        step = workload.command(Operation.STEP, 0, first=1, last=1)
        await bench.answers([step], [Cause.NO_BUDGET])
        assert await bench.flags() >= {"budget_error", "bad_command"}
        assert bench.captured().cause == Cause.NO_BUDGET
        bench.send("init", workload.initialise(1, 2))
        await bench.answers([workload.command(Operation.INIT, 1)], [Cause.NO_BUDGET])
    await bench.setup(workload, grouping="union", **workload.bounds)
    step = workload.command(Operation.STEP, 0, first=1, last=1)
    await bench.answers([step], [Cause.UNINITIALISED])
    await bench.clear()
    for number in range(P.contexts):
        await bench.initialise(workload, number, 5)
    await check_others(bench, workload)


@cocotb.test(skip=not SMALL)
async def bad_commands_are_answered_and_change_nothing(dut):
    """Find what a command says, or what comes with it, wrong; capture the first error."""
    _, bench, workload = await start(
        dut, grouping="union", caps=(P.cap_recent, P.cap_important)
    )
    unknown = {"first": 1, "last": 1, "context": P.contexts}
    wrong = [(Operation.STEP, 0, {"first": 1, "last": 1}, Cause.UNINITIALISED)]
    wrong += [(Operation.SAVE, 1, {}, Cause.UNINITIALISED)]
    wrong += [(op, 0, {"context": P.contexts}, Cause.BAD_CONTEXT) for op in list(Operation)[1:]]
    wrong += [(Operation.STEP, 0, unknown, Cause.BAD_CONTEXT)]
    wrong += [(Operation.CLEAR, 0, {"operation": n}, Cause.BAD_OPERATION) for n in (5, 6, 7)]
    for operation, context, fields, cause in wrong:
        command = workload.command(operation, context) | fields
        await bench.answers([command], [cause])
        assert await bench.flags() == {"bad_command"}
        capture = bench.captured()
        assert (capture.cause, capture.tag) == (cause, command["tag"])
        assert capture.context == command["context"]
        await bench.clear()
    for number in range(P.contexts):
        await bench.initialise(workload, number, 40)
    for fault in BAD_INITS:
        context = full_context((P.cap_recent, P.cap_important), P.score_format)
        bench.sources["init"].send(bad_init(fault, P, context, workload.rng))
        await bench.answers([workload.command(Operation.INIT, 0)], [Cause.BAD_INIT])
        step = workload.command(Operation.STEP, 0, first=1, last=1)
        await bench.answers([step], [Cause.UNINITIALISED])
        await check_capture(bench, Cause.BAD_INIT, "bad_command")
        await bench.clear()
    for fault in BAD_LOADS:
        context = full_context((P.cap_recent, P.cap_important), P.score_format)
        bench.sources["load"].send(bad_load(fault, P, context))
        await bench.answers([workload.command(Operation.LOAD, 0)], [Cause.BAD_LOAD])
        await check_capture(bench, Cause.BAD_LOAD, "bad_command")
        await bench.clear()
    await check_others(bench, workload, lost=(0,))
    await bench.initialise(workload, 0, 9)
    await check_others(bench, workload)


@cocotb.test(skip=not SMALL)
async def tokens_of_a_command_that_was_not_begun_serve_the_next(dut):
    """Repeat an INIT that named no context, or one inside its group."""
    _, bench, workload = await fresh(dut)
    step = workload.step(0, queries=min(2, P.queries))
    first, *rest = step.commands
    bench.send("init", workload.initialise(1, 7))
    wrong = [workload.command(Operation.INIT, 1) | {"context": P.contexts}]
    causes = [Cause.BAD_CONTEXT]
    if rest:
        wrong += [first, workload.command(Operation.INIT, 0), *rest]
        causes += [Cause.NONE, Cause.BAD_QUERY, Cause.NONE]
    else:
        wrong += [first]
        causes += [Cause.NONE]
    await bench.answers([*wrong, workload.command(Operation.INIT, 1)], [*causes, Cause.NONE])
    bench.send("q", step.q)
    bench.send("p", step.p)
    for name in ("k", "v"):
        await bench.sinks[name].take(len(getattr(step, name)))
    bench.send("release", [step.release])
    await check_others(bench, workload)


@cocotb.test(skip=not SMALL)
async def what_happens_while_clear_is_high_is_seen_for_one_clock(dut):
    env, bench, workload = await fresh(dut)
    names = [name for name, _ in env.component.status.shape()]
    stray = 1 << names.index("stray_release")
    bad = 1 << names.index("bad_command")
    env.set("clear", 1)
    await env.clocks(2)
    status, capture = env.record("status"), env.record("capture")
    bench.send("release", [{"context": 1, "tag": 3}])
    command = workload.command(Operation.CLEAR, 0) | {"operation": 6}
    await bench.answers([command], [Cause.BAD_OPERATION])
    await env.clocks(6)
    assert sorted(flags for flags in status if flags) in ([stray, bad], [bad, stray])
    shape = env.component.capture.shape()
    errors = [error for bits in capture if (error := shape.from_bits(bits)).valid]
    assert [(e.cause, e.tag) for e in errors] == [(Cause.BAD_OPERATION, command["tag"])]
    env.set("clear", 0)
    for fields, cause in (({"operation": 7}, Cause.BAD_OPERATION),
                          ({"context": P.contexts}, Cause.BAD_CONTEXT)):  # fmt: skip
        await bench.answers([workload.command(Operation.LOAD, 0) | fields], [cause])
        await check_capture(bench, Cause.BAD_OPERATION, "bad_command")
    assert await bench.flags() == {"bad_command"}
    await bench.clear()


def altered(workload, number, *, q=None, recent=None, important=None):
    """Step of one query head with these fp16 bits in Q, or in P of a bank."""
    context = workload.contexts[number]
    admission = context.admit()
    values = workload.rng.integers(0x3C00, size=(1, P.head_dim)).astype(np.uint16)
    weights = workload.rng.integers(1, 0x3C00, size=(1, context.occupied)).astype(np.uint16)
    if q is not None:
        values[0, -1] = q
    if recent is not None:
        weights[0, context.recent[-1]] = recent
    if important is not None:
        weights[0, min(context.important)] = important
    context.accumulate(weights)
    return workload.wrap(number, values, weights, admission)


@cocotb.test(skip=not SMALL)
@cocotb.parametrize(
    (("values", "flags"), (
        ({"q": 0x7E00}, {"nan"}),
        ({"q": 0xFC00}, set()),
        ({"recent": 0x7E00}, {"nan", "bad_p"}),
        ({"recent": 0xBC00}, {"bad_p"}),
        ({"recent": 0x8000}, set()),
        ({"important": 0x7E00}, {"nan"}),
        ({"important": 0xBC00}, set()),
        ({"recent": 0x7C00}, set()),
    )),
)  # fmt: skip
async def odd_values_raise_their_flags(dut, values, flags):
    """NaN anywhere, weights that are not added; nothing is captured, no context is lost."""
    _, bench, workload = await start(
        dut, grouping="union", caps=(P.cap_recent, P.cap_important)
    )
    for number in range(P.contexts):
        await bench.initialise(workload, number, 60)
    await bench.play([altered(workload, 0, **values), workload.step(1)])
    assert await bench.flags() == flags
    assert not bench.captured().valid
    await bench.clear()
    await check_others(bench, workload)


def trace_steps(trace, workload, number, run):
    """Tokens of INIT for one (layer, KV head), and all its steps."""
    bank = run.head.context
    slots = [*sorted(bank.important), *bank.recent]
    init = [
        {"score": bank.scores[slot], "slot": slot, "important": slot in bank.important,
         "last": n == len(slots) - 1}
        for n, slot in enumerate(slots)
    ]  # fmt: skip
    steps = []
    for s in range(trace.steps):
        step = run.step(s)
        steps.append(workload.wrap(number, run.q(s), step.p, step.admission))
    return init, steps


@cocotb.test(skip=not REPLAYS)
@cocotb.parametrize(grouping=GROUPINGS)
async def real_trace_is_decoded_as_golden(dut, grouping):
    """Decode all steps of a real model's captured heads, their contexts interleaved."""
    trace = TRACE
    budgets = bounds(trace.head_dim)
    env, bench, workload = await start(
        dut, grouping=grouping, b_iik=budgets["b_iik"], b_iiv=budgets["b_iiv"], timeout=4_000_000
    )
    workload.contexts = [Context(P.cap_recent, P.cap_important, P.score_format)] * P.contexts
    await bench.setup(workload, grouping=grouping, **workload.bounds)
    played = []
    for number, run in enumerate(replay(trace, P, grouping)):
        init, steps = trace_steps(trace, workload, number, run)
        bench.send("init", init)
        await bench.answers([workload.command(Operation.INIT, number)])
        played.append(steps)
    steps = [run[s] for s in range(trace.steps) for run in played]
    began, used, clock = time.perf_counter(), time.process_time(), env.cycle
    await bench.play(steps)
    seconds, busy = time.perf_counter() - began, time.process_time() - used
    heads = len(steps) * trace.group
    dut._log.info(
        f"{grouping}: {heads / seconds:.0f} head-steps per second ({heads / busy:.0f} of processor"
        f" time), {(env.cycle - clock) / heads:.1f} clocks each"
    )


@cocotb.test(skip=P.head_dim != 128 or P.contexts < 8 or P.cap_recent != 512)
@cocotb.parametrize(grouping=GROUPINGS, queries=(1, 3, 4))
async def head_step_takes_at_most_178_clocks(dut, grouping, queries):
    """8 contexts of 1024 slots back to back, nothing stalls; grouped queries are stated."""
    env, bench, workload = await start(
        dut, grouping=grouping, b_iik=37, b_iiv=37, timeout=2_000_000
    )
    for context in workload.contexts:
        context.__init__(512, 512, P.score_format)
    await bench.setup(workload, grouping=grouping, **workload.bounds)
    for number in range(8):
        await bench.initialise(workload, number, 1500)
    steps = []
    for n in range(32):
        steps.append(workload.step(n % 8, queries))
    await bench.play(steps)
    ends = np.cumsum([len(step.v) for step in steps]) - 1
    cycles = bench.sinks["v"].cycles
    clocks = (cycles[ends[-1]] - cycles[ends[7]]) / (len(steps) - 8)
    dut._log.info(f"{queries} query heads, {grouping}: {clocks:.1f} clocks per step")
    if queries == 1:
        assert clocks <= 178
