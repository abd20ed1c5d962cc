"""cocotb bench of :class:`rtl.sorting.sorter.Sorter`."""

import cocotb
import numpy as np

from golden.parameters import SorterParameters
from golden.sorter import sort_entries
from verif.environment import (
    STALLS,
    Environment,
    beats,
    check_full_rate,
    parameters_under_test,
)
from verif.sorting_stimulus import groups

P = parameters_under_test(SorterParameters)
O_STALLS = (*STALLS, "late") if P.stall else ("never",)
LATENCY = len(P.registers)


def payload(keys, indices):
    return {"key": keys, "index": indices}


def compare(env, got, keys, indices):
    """Compare all in the strict order; without ties broken, keys in order and entries kept."""
    expected = payload(*sort_entries(keys, indices))
    if not P.index_tiebreak:
        env.compare("o", {"key": got["key"]}, {"key": expected["key"]})
        got = payload(*sort_entries(got["key"], got["index"]))
    env.compare("o", got, expected)


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=O_STALLS)
async def matches_golden(dut, i_stall, o_stall):
    """Every beat, under every kind of stall."""
    env = await Environment.start(dut)
    count = beats(verilator=160, icarus=24)
    keys, indices = groups(env.rng, count, P)

    env.source("i", i_stall).send(payload(keys, indices))

    compare(env, await env.sink("o", o_stall).take(count), keys, indices)


@cocotb.test()
async def full_rate_at_the_stated_latency(dut):
    """Back to back: one group per clock, each one clock per register set after its acceptance."""
    env = await Environment.start(dut)
    count = beats(verilator=2000, icarus=60)
    keys, indices = groups(env.rng, count, P)
    source, sink = env.source("i"), env.sink("o")

    source.send(payload(keys, indices))
    compare(env, await sink.take(count), keys, indices)

    check_full_rate(source, sink, LATENCY)


@cocotb.test()
async def reset_drops_what_is_inside(dut):
    """After a reset in mid-operation nothing old comes out, and the flag is clear."""
    env = await Environment.start(dut)
    for _ in range(beats(verilator=10, icarus=3)):
        env.source("i", "random").send(payload(*groups(env.rng, 24, P)))
        await env.clocks(int(env.rng.integers(1, 16)))

        await env.reset()

        assert env.get("reserved") == 0
        keys, indices = groups(env.rng, 10, P)
        env.source("i").send(payload(keys, indices))
        compare(env, await env.sink("o").take(10), keys, indices)


@cocotb.test()
async def flag_rises_with_the_first_reserved_key(dut):
    """One clock after the group that holds it is offered on ``o``, and not before."""
    env = await Environment.start(dut)
    keys, indices = groups(env.rng, 30, P)
    keys = np.clip(keys, 2, (1 << P.key_width) - 2)
    keys[20, int(env.rng.integers(P.ways))] = env.rng.choice([0, 1, (1 << P.key_width) - 1])
    source, sink = env.source("i"), env.sink("o")
    start, flags = env.cycle, env.record("reserved")

    source.send(payload(keys, indices))
    await sink.take(30)
    await env.clocks(2)

    rise = sink.cycles[20] - start + 1
    assert flags[:rise] == [0] * rise
    assert set(flags[rise:]) == {1}
