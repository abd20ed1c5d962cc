"""cocotb bench of :class:`rtl.sorting.sorter.Sorter`."""

import cocotb
import numpy as np

from golden.numerics import EMPTY, NAN_KEY, blocked
from golden.parameters import SorterParameters
from golden.sorter import sort_entries
from verif.environment import STALLS, Environment, beats, parameters_under_test
from verif.sorting_compare import as_sets
from verif.sorting_stimulus import groups

P = parameters_under_test(SorterParameters)
O_STALLS = (*STALLS, "late") if P.stall else ("never",)


def draw(env, count):
    """Draw payloads of ``i``."""
    keys, indices = groups(env.rng, count, P)
    return {"key": keys, "index": indices}


def expected(given):
    """Payloads of ``o``."""
    keys, indices = sort_entries(given["key"], given["index"])
    return {"key": keys, "index": indices}


def compare(env, got, given):
    """Every entry in its place; without a tie rule keys in place, and no entry lost or doubled."""
    wanted = expected(given)
    if P.index_tiebreak:
        env.compare("o", got, wanted)
    else:
        env.compare("o", {"key": got["key"]}, {"key": wanted["key"]})
        env.compare("o", as_sets(got, P.index_width), as_sets(given, P.index_width))


def holds_reserved(given):
    """Whether a raw key is one of the reserved codes."""
    return bool(np.isin(given["key"], [EMPTY, NAN_KEY, blocked(P.key_width)]).any())


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=O_STALLS)
async def matches_golden(dut, i_stall, o_stall):
    """Random keys, ties of one to three values, reserved codes: all in the strict order."""
    env = await Environment.start(dut)
    given = draw(env, beats(verilator=300, icarus=30))
    env.source("i", i_stall).send(given)
    got = await env.sink("o", o_stall).take(len(given["key"]))
    compare(env, got, given)
    await env.clocks(1)
    assert env.get("reserved") == holds_reserved(given)


@cocotb.test()
async def one_group_per_clock_at_the_stated_latency(dut):
    """Back to back, the initiation interval is 1 clock."""
    env = await Environment.start(dut)
    given = draw(env, beats(verilator=2000, icarus=60))
    source, sink = env.source("i"), env.sink("o")
    source.send(given)
    compare(env, await sink.take(len(given["key"])), given)
    first = source.cycles[0]
    assert source.cycles == list(range(first, first + len(source.cycles)))
    latency = env.component.latency["i to o"]
    assert sink.cycles == [cycle + latency for cycle in source.cycles]


@cocotb.test()
async def reset_in_mid_operation_leaves_nothing(dut):
    """Drop what is inside: the next groups are sorted, and the flag is down."""
    env = await Environment.start(dut)
    for clocks in env.rng.integers(1, 30, size=beats(verilator=20, icarus=4)).tolist():
        env.source("i", "random").send(draw(env, 40))
        await env.clocks(clocks)
        await env.reset()
        assert not env.get("reserved")
    given = draw(env, 20)
    env.source("i", "random").send(given)
    sink = env.sink("o", "random") if P.stall else env.sink("o")
    compare(env, await sink.take(20), given)


@cocotb.test()
async def reserved_raw_keys_raise_the_flag_and_clear_takes_it_back(dut):
    """Each reserved code alone, anywhere in the group."""
    env = await Environment.start(dut)
    for code in (EMPTY, NAN_KEY, blocked(P.key_width)):
        given = draw(env, 1)
        given["key"][...] = 2
        given["key"][0, env.rng.integers(P.ways)] = code
        env.source("i").send(given)
        await env.sink("o").take(1)
        await env.clocks(1)
        assert env.get("reserved")
        env.set("clear", 1)
        await env.clocks(2)
        env.set("clear", 0)
        assert not env.get("reserved")
