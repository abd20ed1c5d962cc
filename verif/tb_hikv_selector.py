"""cocotb bench of :class:`rtl.hikv.hikv_selector.HikvSelector`."""

import os
import time

import cocotb
import numpy as np

from golden.hikv import Context
from golden.parameters import GROUPINGS, HikvSelectorParameters
from rtl.hikv.interface import Cause, Grouping, Operation
from verif.environment import STALLS, Environment, beats, parameters_under_test, trace_under_test
from verif.selector_replay import bounds, replay
from verif.selector_steps import Workload, gather

P = parameters_under_test(HikvSelectorParameters)
SMALL = P.head_dim < 64
TRACE = trace_under_test()
REPLAYS = (P.head_dim, P.contexts) == (TRACE.head_dim, TRACE.q.shape[0] * TRACE.q.shape[1])
TAGS = 1 << P.tag_width


def payloads(rows):
    """Payloads of a stream; masks as the environment gives them."""
    columns = gather(rows)
    if "mask" in columns and P.head_dim <= 64:
        weights = np.uint64(1) << np.arange(P.head_dim, dtype=np.uint64)
        columns["mask"] = (columns["mask"] * weights).sum(axis=1, dtype=np.uint64)
    return columns


class Bench:
    """Selector with budgets, settings and all its streams."""

    def __init__(self, env, i_stall="never", o_stall="never"):
        self.env = env
        inputs = ("command", "q", "p", "release", "init", "load", "budget")
        self.sources = {name: env.source(f"i_{name}", i_stall) for name in inputs}
        outputs = ("response", "k", "v", "save")
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
        budgets = [
            {"context": n, "cap_recent": c.cap_recent, "cap_important": c.cap_important,
             "last": n == len(workload.contexts) - 1}
            for n, c in enumerate(workload.contexts)
        ]  # fmt: skip
        self.send("budget", budgets)
        await self.sources["budget"].sent()
        await env.clocks(4)

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
        await self.sources["release"].sent()

    async def _release(self, steps, count):
        sink = self.sinks["v"]
        for step in steps:
            count += len(step.v)
            wanted = count
            await self.env.until(lambda wanted=wanted: len(sink.accepted) >= wanted)
            self.send("release", [step.release])


async def start(dut, *, grouping, b_iik=None, b_iiv=None, i_stall="never", o_stall="never",
                timeout=400_000):  # fmt: skip
    """Bench after reset, with contexts that have random budgets."""
    env = await Environment.start(dut, timeout=timeout)
    bounds = {
        "b_iik": int(env.rng.integers(P.head_dim + 1)) if b_iik is None else b_iik,
        "b_iiv": int(env.rng.integers(P.head_dim + 1)) if b_iiv is None else b_iiv,
    }
    workload = Workload(P, env.rng, grouping=grouping, **bounds)
    bench = Bench(env, i_stall, o_stall)
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
    _, bench, workload = await start(dut, grouping=grouping, i_stall=i_stall, o_stall=o_stall)
    await prepare(bench, workload)
    order = workload.rng.integers(P.contexts, size=beats(verilator=12, icarus=5)).tolist()
    await bench.play([workload.step(number) for number in order])
    assert bench.env.get("status") == 0


@cocotb.test(skip=not os.environ.get("KVSMITH_LONG"))
@cocotb.parametrize(grouping=GROUPINGS)
async def thousand_steps(dut, grouping):
    """Long run: 1,000 steps of all contexts, with random stalls."""
    _, bench, workload = await start(
        dut, grouping=grouping, i_stall="bursts", o_stall="random", timeout=4_000_000
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


async def check_capture(env, cause, flag):
    """Compare the first error and the flags."""
    names = [name for name, _ in env.component.status.shape()]
    await env.clocks(4)
    assert env.get("status") >> names.index(flag) & 1
    capture = env.component.capture.shape().from_bits(env.get("capture"))
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
    bad, good = workload.step(0), workload.step(1)
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
    await check_capture(env, cause, cause.name.lower())
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
    await check_capture(env, Cause.BAD_QUERY, "bad_command")


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
    await check_capture(env, Cause.RELEASE_TIMEOUT, "release_timeout")
    bench.send("release", [step.release | {"tag": (step.release["tag"] + 1) % TAGS}])
    await bench.answers([workload.command(Operation.STEP, 0, first=1, last=1)],
                        [Cause.RELEASE_TIMEOUT])
    names = [name for name, _ in env.component.status.shape()]
    assert env.get("status") >> names.index("stray_release") & 1
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
