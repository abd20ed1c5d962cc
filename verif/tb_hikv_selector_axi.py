"""cocotb bench of :class:`rtl.hikv.hikv_selector_axi.HikvSelectorAxi`."""

import itertools
from pathlib import Path

import cocotb
import numpy as np

from golden.hikv import Context
from golden.parameters import GROUPINGS, SCORE_FORMATS, HikvSelectorAxiParameters
from rtl.bus.register_map import Access
from rtl.hikv.interface import Cause, Operation
from rtl.hikv.selector_registers import register_map
from verif.axi import Axi, AxiResp, diagram
from verif.environment import Environment, as_bits, beats, parameters_under_test
from verif.selector_steps import Workload, gather

P = parameters_under_test(HikvSelectorAxiParameters)
PAUSES = ("never", "random", "bursts")
MAP = register_map()


async def start(dut, pause="never"):
    """Environment and AXI ports after reset."""
    env = await Environment.start(dut, timeout=400_000)
    axi = Axi(env, MAP)
    axi.pause(pause)
    return env, axi


@cocotb.test()
async def registers_tell_the_parameters(dut):
    _, axi = await start(dut)
    expected = {
        "identification": {"code": int.from_bytes(b"HIKV", "big")},
        "version": {"major": 1, "minor": 0},
        "sizes": {"contexts": P.contexts, "max_slots": P.max_slots},
        "capacities": {"cap_recent": P.cap_recent, "cap_important": P.cap_important},
        "vectors": {"head_dim": P.head_dim, "lanes": P.lanes, "ways": P.ways},
        "options": {
            "queries": P.queries,
            "tag_width": P.tag_width,
            "index_lanes": P.index_lanes,
            "score_format": SCORE_FORMATS.index(P.score_format),
            "parity": P.parity,
        },
    }
    assert {name: await axi.read(name) for name in expected} == expected


@cocotb.test()
async def addresses_without_register_and_read_only_registers_refuse(dut):
    _, axi = await start(dut, "random")
    known = {register.address: register for register in MAP.registers}
    for address in (*range(0, 0x100, 4), 0x400, 0xFFC):
        _, read = await axi.read_word(address)
        write = await axi.write_word(address, 0)
        if address in known:
            writable = known[address].writable
            assert read == AxiResp.OKAY
            assert write == (AxiResp.OKAY if writable else AxiResp.SLVERR), hex(address)
        else:
            assert read == write == AxiResp.DECERR, hex(address)


@cocotb.test()
@cocotb.parametrize(pause=PAUSES)
async def registers_keep_what_is_written_byte_by_byte(dut, pause):
    """Random bytes to random places, as a memory of the bits that can be written."""
    env, axi = await start(dut, pause)
    stored, masks = {}, {}
    for register in MAP.registers:
        fields = [f for f in register.fields if f.access is Access.READ_WRITE]
        if fields:
            masks[register.address] = sum((1 << f.width) - 1 << f.low for f in fields)
            stored[register.address] = sum(f.reset << f.low for f in fields)
    for _ in range(beats(verilator=120, icarus=30)):
        address = int(env.rng.choice(list(masks)))
        first = int(env.rng.integers(4))
        data = env.rng.bytes(int(env.rng.integers(1, 5 - first)))
        # The highest byte of some registers holds a request: it stays 0.
        data = bytes(0 if first + place == 3 else byte for place, byte in enumerate(data))
        assert (await axi.master.write(address + first, data)).resp == AxiResp.OKAY
        covered = ((1 << 8 * len(data)) - 1) << 8 * first & masks[address]
        new = int.from_bytes(data, "little") << 8 * first
        stored[address] = stored[address] & ~covered | new & covered
        other = int(env.rng.choice(list(masks)))
        word, _ = await axi.read_word(other)
        assert word & masks[other] == stored[other]


def commands(**fields):
    """One transfer of ``s_axis_command``, what is not given as 0."""
    names = ("operation", "context", "query", "first", "last", "tag")
    return {name: np.array([fields.get(name, 0)]) for name in names}


@cocotb.test()
async def commands_wait_until_they_are_enabled(dut):
    env, axi = await start(dut)
    axi.send("s_axis_command", commands(operation=7, tag=1))
    await env.clocks(100)
    assert axi.sinks["m_axis_response"].empty()
    await axi.write("control", enable=1)
    assert (await axi.take("m_axis_response", 1))["tag"].tolist() == [1]


@cocotb.test()
async def errors_are_sticky_captured_and_interrupt(dut):
    """Send an unknown operation: flag, first-error capture, interrupt behind its mask, and back."""
    env, axi = await start(dut)
    await axi.write("control", enable=1)
    assert env.get("irq") == 0
    for tag in (3, 2):
        axi.send("s_axis_command", commands(operation=7, context=P.contexts - 1, tag=tag))
        await axi.take("m_axis_response", 1)
    assert (await axi.read("status"))["bad_command"] == 1
    assert env.get("irq") == 0
    await axi.write("interrupt_mask", flags=1 << 4)
    await env.clocks(2)
    assert env.get("irq") == 1
    assert await axi.read("interrupt_status") == {"flags": 1 << 4}
    first = {"valid": 1, "cause": 1, "context": P.contexts - 1}
    assert (await axi.read("capture"), await axi.read("capture_tag")) == (first, {"tag": 3})
    await axi.write("status", bad_command=1)
    await env.clocks(2)
    assert env.get("irq") == 0
    assert set((await axi.read("status")).values()) == {0}
    await axi.write("control", enable=1, clear=1)
    await env.clocks(4)
    assert (await axi.read("capture"))["valid"] == 0


@cocotb.test()
async def an_error_in_the_clock_of_its_clearing_stays(dut):
    """Clear the flag in every clock around that of the error."""
    env, axi = await start(dut)
    await axi.write("control", enable=1)
    seen = set()
    for delay in range(12):
        events = [env.record(f"m_axis_response_t{part}") for part in ("valid", "ready")]
        answers = env.record("s_axil_bvalid")
        axi.send("s_axis_command", commands(operation=7))
        await env.clocks(delay)
        await axi.write("status", bad_command=1)
        await axi.take("m_axis_response", 1)
        error = [valid & ready for valid, ready in zip(*events, strict=True)].index(1)
        error += 2  # through the selector's flags
        cleared = answers.index(1) - 1  # the response appears in the clock after the write
        stays = error >= cleared
        assert (await axi.read("status"))["bad_command"] == stays, (delay, error, cleared)
        seen.add(np.sign(error - cleared))
        await axi.write("status", bad_command=1)
    assert seen == {-1, 0, 1}


@cocotb.test(skip=not P.clock_enable)
async def sleeps_when_idle(dut):
    """No clock is enabled while nothing happens; ``test_enable`` keeps them going."""
    env, axi = await start(dut)

    async def enabled(clocks):
        before = (await axi.read("count_enabled_clocks"))["value"]
        await env.clocks(clocks)
        return (await axi.read("count_enabled_clocks"))["value"] - before

    await env.clocks(3000)
    assert await enabled(100) == 0
    env.set("test_enable", 1)
    assert await enabled(100) >= 100
    env.set("test_enable", 0)
    await axi.write("control", enable=1)
    axi.send("s_axis_command", commands(operation=7))
    await axi.take("m_axis_response", 1)
    await env.clocks(3000)
    assert await enabled(100) == 0


@cocotb.test()
async def counters_count_and_clear(dut):
    env, axi = await start(dut)
    await env.clocks(50)
    first = (await axi.read("count_clocks"))["value"]
    await env.clocks(100)
    assert (await axi.read("count_clocks"))["value"] - first in range(100, 120)
    await axi.write("count_clocks", value=12345)
    assert (await axi.read("count_clocks"))["value"] < 20


async def set_up(axi, work):
    """Budgets and settings of a workload."""
    for number, context in enumerate(work.contexts):
        await axi.write(
            "head_budget", cap_recent=context.cap_recent, cap_important=context.cap_important
        )
        last = number == P.contexts - 1
        await axi.write("head_budget_write", context=number, last=last, go=1)
        while (await axi.read("state"))["budget_busy"]:
            pass
    await axi.write("b_ii", k=work.bounds["b_iik"], v=work.bounds["b_iiv"])
    await axi.write("control", enable=1, index_enable=1, grouping=GROUPINGS.index(work.grouping))


async def order(axi, work, operation, context, **streams):
    """Carry out one command that is no step; its response must be without error."""
    command = work.command(operation, context)
    axi.send("s_axis_command", gather([command]))
    for prefix, payloads in streams.items():
        axi.send(prefix, payloads)
    saved = await axi.packet("m_axis_save") if operation is Operation.SAVE else {}
    response = await axi.take("m_axis_response", 1)
    assert (response["tag"], response["cause"]) == (command["tag"], 0)
    return saved


def listed(selections):
    """Beats of an index stream for selections."""
    rows = []
    for selection in selections:
        indices = np.flatnonzero(selection["mask"])
        starts = range(0, max(1, len(indices)), P.index_lanes)
        for start in starts:
            part = indices[start : start + P.index_lanes]
            end = start == starts[-1]
            shared = {name: selection[name] for name in ("context", "query", "tag", "chunk",
                                                         "error")}  # fmt: skip
            rows.append(shared | {
                "indices": np.pad(part, (0, P.index_lanes - len(part))),
                "count": len(part),
                "end": end,
                "last": end and selection["last"],
            })  # fmt: skip
    return gather(rows)


async def run_steps(env, axi, steps):
    """Send all steps at once, release each when its selections are there, and compare."""
    for prefix, name in (("s_axis_command", "commands"), ("s_axis_q", "q"), ("s_axis_p", "p")):
        axi.send(prefix, gather(list(itertools.chain(*(getattr(step, name) for step in steps)))))
    for step in steps:
        for name in ("k", "v"):
            beats_of = getattr(step, name)
            expected, got = gather(beats_of), await axi.take(f"m_axis_{name}", len(beats_of))
            got["mask"] = as_bits(got["mask"], P.head_dim)
            env.compare(f"m_axis_{name}", got, expected)
            if P.index_lanes:
                indices = listed(beats_of)
                got = await axi.take(f"m_axis_{name}_index", len(indices["tag"]))
                env.compare(f"m_axis_{name}_index", got, indices)
        axi.send("s_axis_release", gather([step.release]))
        responses = await axi.take("m_axis_response", len(step.responses))
        env.compare("m_axis_response", responses, gather(step.responses))


@cocotb.test()
@cocotb.parametrize((
    ("pause", "grouping"),
    [("never", "union"), ("random", "per_query"), ("bursts", "per_group"), ("random", "union")],
))
async def decodes_as_golden(dut, pause, grouping):
    """Contexts with budgets of their own, filled, decoding in turn, one saved and loaded."""
    env, axi = await start(dut, pause)
    b_iik, b_iiv = (int(env.rng.integers(1, P.head_dim)) for _ in range(2))
    work = Workload(P, env.rng, grouping=grouping, b_iik=b_iik, b_iiv=b_iiv)
    await set_up(axi, work)
    await order(axi, work, Operation.CLEAR, 0)
    for number in range(1, P.contexts):
        tokens = work.initialise(number, int(env.rng.integers(1, 2 * P.max_slots)))
        await order(axi, work, Operation.INIT, number, s_axis_init=gather(tokens))
    count = beats(verilator=24, icarus=4)
    for _ in range(2):
        turns = env.rng.integers(P.contexts, size=count).tolist()
        await run_steps(env, axi, [work.step(number) for number in turns])
        moved = int(env.rng.integers(P.contexts))
        rows = await order(axi, work, Operation.SAVE, moved)
        await order(axi, work, Operation.CLEAR, moved)
        await order(axi, work, Operation.LOAD, moved, s_axis_load=rows)
    await run_steps(env, axi, [work.step(number) for number in range(P.contexts)])
    assert set((await axi.read("status")).values()) == {0}
    assert (await axi.read("capture"))["valid"] == 0
    assert (await axi.read("state")) == {"busy": 0, "budget_busy": 0}
    steps = (await axi.read("count_steps"))["value"]
    assert steps == work.steps


@cocotb.test()
async def unrepresentable_budgets_are_refused(dut):
    """Name contexts and capacities that there are not: the whole table is refused, with a flag."""
    env, axi = await start(dut)
    await axi.write("control", enable=1)
    for context, recent, important in (
        (P.contexts, 1, 0), (0, P.max_slots + 1, 0), (0, 1, 0xFFFF), (0, 0, 1),
    ):  # fmt: skip
        await axi.write("head_budget", cap_recent=recent, cap_important=important)
        await axi.write("head_budget_write", context=context, last=1, go=1)
        await env.clocks(100)
        assert (await axi.read("status"))["budget_error"] == 1
        await axi.write("status", budget_error=1)
        axi.send("s_axis_command", gather([{"operation": 4, "context": 0, "query": 0, "first": 1,
                                            "last": 1, "tag": 0}]))  # fmt: skip
        assert (await axi.take("m_axis_response", 1))["cause"] == Cause.NO_BUDGET.value


@cocotb.test()
async def abort_makes_a_context_uninitialised(dut):
    env, axi = await start(dut)
    work = Workload(P, env.rng, grouping="union", b_iik=1, b_iiv=1)
    await set_up(axi, work)
    for context in (0, 1):
        await order(axi, work, Operation.CLEAR, context)
    await axi.write("abort", context=1, go=1)
    await env.clocks(20)
    await run_steps(env, axi, [work.step(0)])
    axi.send("s_axis_command", gather([work.command(Operation.SAVE, 1)]))
    response = await axi.take("m_axis_response", 1)
    assert response["cause"] in (Cause.ABORTED.value, Cause.UNINITIALISED.value)
    await order(axi, work, Operation.CLEAR, 1)
    await run_steps(env, axi, [work.step(1)])


@cocotb.test(skip=P.head_dim != 8)
async def a_step_takes_the_time_that_the_page_shows(dut):
    """Step a full context, two query heads: what is drawn is the diagram of the block's page."""
    env, axi = await start(dut)
    fixed = np.random.default_rng(1)
    work = Workload(P, fixed, grouping="union", b_iik=2, b_iiv=2)
    work.contexts[0] = Context(P.cap_recent, P.cap_important)
    await set_up(axi, work)
    tokens = work.initialise(0, P.max_slots)
    await order(axi, work, Operation.INIT, 0, s_axis_init=gather(tokens))
    await env.clocks(200)
    names = ("s_axis_command", "m_axis_response", "s_axis_q", "m_axis_k", "s_axis_p", "m_axis_v",
             "s_axis_release")  # fmt: skip
    records = {
        name: (env.record(f"{name}_tvalid"), env.record(f"{name}_tready")) for name in names
    }
    await run_steps(env, axi, [work.step(0, P.queries)])
    await env.clocks(20)
    drawn = diagram(records)
    page = Path(__file__).parent.parent / "docs" / "hikv_selector_axi.md"
    assert drawn in page.read_text(), f"docs/hikv_selector_axi.md must show\n{drawn}"
