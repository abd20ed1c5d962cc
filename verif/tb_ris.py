"""cocotb bench of :class:`rtl.sorting.ris.Ris`."""

import cocotb
import numpy as np

from golden.parameters import RisParameters
from golden.ris import pick, sort_merge
from golden.sorter import sort_entries
from rtl.sorting.entry import Mode
from verif.environment import (
    STALLS,
    Environment,
    beats,
    check_full_rate,
    parameters_under_test,
)
from verif.sorting_stimulus import groups

P = parameters_under_test(RisParameters)
O_STALLS = (*STALLS, "late") if P.stall else ("never",)
MARK = 1 << (P.index_width - 1)
SORT, UP, DOWN = Mode.GLOBAL_SORT.value, Mode.HEAPIFY_UP.value, Mode.HEAPIFY_DOWN.value
SORT_SETS = sum(stage <= P.merger_stage for stage in P.registers)
PICK_SETS = len(P.registers) - SORT_SETS


def group_of(rng, count, mark):
    """Draw groups whose indices tell, in their highest bit, on which port they came."""
    keys, indices = groups(rng, count, P)
    return {"key": keys, "index": indices % MARK + mark}


def traffic(rng, count, mode=None):
    """Payloads of ``i_sort`` (any modes, or one) and of ``i_pick``."""
    tags = [
        {"tag": rng.integers(1 << P.tag_width, size=count)} if P.tag_width else {}
        for _ in range(2)
    ]
    modes = rng.integers(4, size=count) if mode is None else np.full(count, mode)
    sort = {"mode": modes, "a": group_of(rng, count, 0), "b": group_of(rng, count, 0)} | tags[0]
    picks = {"a": group_of(rng, count, MARK), "b": group_of(rng, count, MARK)} | tags[1]
    return sort, picks


def where(values, mask):
    """Beats of a payload for which ``mask`` holds."""
    if isinstance(values, dict):
        return {key: where(value, mask) for key, value in values.items()}
    return values[mask]


def as_sets(got):
    """Rank the groups of an output, as the golden model gives sets."""
    ranked = {
        side: dict(zip(("key", "index"), sort_entries(*got[side].values()), strict=True))
        for side in ("upper", "lower")
    }
    return got | ranked


def merged(sort):
    upper, lower = sort_merge(*sort["a"].values(), *sort["b"].values())
    sides = {"upper": upper, "lower": lower}
    expected = {side: {"key": e.keys, "index": e.indices} for side, e in sides.items()}
    return expected | {key: sort[key] for key in sort if key == "tag"}


def unpicked(picks):
    expected = {"upper": picks["a"], "lower": picks["b"]}
    return as_sets(expected | {key: picks[key] for key in picks if key == "tag"})


def compare(env, name, got, expected):
    """Compare sets; without ties broken, the keys of both, and all entries together."""
    if not P.index_tiebreak:
        keys = [
            {side: {"key": values[side]["key"]} for side in ("upper", "lower")}
            for values in (as_sets(got), expected)
        ]
        env.compare(name, *keys)
        both = [
            [np.concatenate([v[side][field] for side in ("upper", "lower")], axis=1)
             for field in ("key", "index")]
            for v in (got, expected)
        ]  # fmt: skip
        together = [dict(zip(("key", "index"), sort_entries(*b), strict=True)) for b in both]
        env.compare(name, *together)
    else:
        env.compare(name, as_sets(got), expected)


def compare_ends(env, got):
    """Minimum first and maximum last in both groups."""
    for side in ("upper", "lower"):
        ends = pick(*got[side].values())
        for place, expected in zip((0, -1), ends, strict=True):
            end = {"key": got[side]["key"][:, place], "index": got[side]["index"][:, place]}
            wanted = {"key": expected.keys, "index": expected.indices}
            if not P.index_tiebreak:
                end, wanted = {"key": end["key"]}, {"key": wanted["key"]}
            env.compare(f"o_pick {side} end {place}", end, wanted)


def check(env, sort, picks, sorted_, picked):
    """Both output ports against golden, each of the two kinds on ``o_pick`` in its order."""
    ups = sort["mode"] == UP
    direct = picked["upper"]["index"][:, 0] >= MARK
    compare(env, "o_sort", sorted_, merged(where(sort, ~ups)))
    compare(env, "o_pick (HEAPIFY_UP)", where(picked, ~direct), merged(where(sort, ups)))
    compare(env, "o_pick (HEAPIFY_DOWN)", where(picked, direct), unpicked(picks))
    compare_ends(env, picked)


async def run(env, sort, picks, i_stall="never", o_stall="never"):
    """Drive both ports and check all results."""
    ups = int((sort["mode"] == UP).sum())
    count, pick_count = len(sort["mode"]), len(picks["a"]["key"])
    sinks = [env.sink(name, o_stall) for name in ("o_sort", "o_pick")]
    env.source("i_sort", i_stall).send(sort)
    env.source("i_pick", i_stall).send(picks)
    sorted_ = await sinks[0].take(count - ups)
    picked = await sinks[1].take(ups + pick_count)
    check(env, sort, picks, sorted_, picked)


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=O_STALLS)
async def matches_golden(dut, i_stall, o_stall):
    """All modes on both ports at once, under every kind of stall."""
    env = await Environment.start(dut)
    sort, picks = traffic(env.rng, beats(verilator=160, icarus=24))

    await run(env, sort, picks, i_stall, o_stall)

    assert env.get("illegal_mode") == int((sort["mode"] == DOWN).any())


@cocotb.test()
@cocotb.parametrize(mode=[SORT, UP])
async def full_rate_at_the_stated_latency(dut, mode):
    """Back to back on the sort port: one invocation per clock, at the latency of its path."""
    env = await Environment.start(dut)
    count = beats(verilator=1000, icarus=40)
    sort, _ = traffic(env.rng, count, mode)
    latency = SORT_SETS + (PICK_SETS if mode == UP else 0)
    source, sink = env.source("i_sort"), env.sink("o_pick" if mode == UP else "o_sort")

    source.send(sort)
    got = await sink.take(count)

    compare(env, sink.name, got, merged(sort))
    check_full_rate(source, sink, latency)


@cocotb.test()
async def full_rate_on_both_ports_at_once(dut):
    """Sorts leave the picker to the pick port: both take one invocation per clock."""
    env = await Environment.start(dut)
    count = beats(verilator=500, icarus=40)
    sort, picks = traffic(env.rng, count, SORT)

    await run(env, sort, picks)

    for name, latency in (("sort", SORT_SETS), ("pick", PICK_SETS)):
        check_full_rate(env.sources[f"i_{name}"], env.sinks[f"o_{name}"], latency)


@cocotb.test()
async def merger_goes_first(dut):
    """Under full load of HEAPIFY_UP picks get the clocks that are left, and none is lost."""
    env = await Environment.start(dut)
    count = beats(verilator=300, icarus=30)
    sort, picks = traffic(env.rng, count, UP)
    pause = [True] * (count // 2) + [False] * 20 + [True] * count
    source = env.source("i_sort", iter(pause))
    sink = env.sink("o_pick")

    source.send(sort)
    env.source("i_pick").send(picks)
    picked = await sink.take(2 * count)

    compare(env, "o_pick", where(picked, picked["upper"]["index"][:, 0] < MARK), merged(sort))
    wanted = {cycle + SORT_SETS for cycle in source.cycles}
    assert not wanted & set(env.sources["i_pick"].cycles)
    first = env.sources["i_pick"].cycles[0]
    free = [cycle for cycle in range(first, first + 3 * count) if cycle not in wanted]
    assert env.sources["i_pick"].cycles == free[:count]


@cocotb.test()
async def reset_drops_what_is_inside(dut):
    """After a reset in mid-operation nothing old comes out, and the flag is clear."""
    env = await Environment.start(dut)
    for _ in range(beats(verilator=10, icarus=3)):
        sort, picks = traffic(env.rng, 24)
        sort["mode"][0] = DOWN
        env.source("i_sort", "random").send(sort)
        env.source("i_pick", "random").send(picks)
        await env.clocks(int(env.rng.integers(1, 20)))

        await env.reset()

        assert env.get("illegal_mode") == 0
        await run(env, *traffic(env.rng, 10))


@cocotb.test()
async def stalled_sort_output_holds_no_pick(dut):
    """With sorts stuck, all picks pass; then the sorts come out whole."""
    if not P.stall:
        return
    env = await Environment.start(dut)
    sort, picks = traffic(env.rng, 20, SORT)
    open_ = []
    sorted_sink = env.sink("o_sort", iter(lambda: bool(open_), None))
    picked_sink = env.sink("o_pick")

    env.source("i_sort").send(sort)
    env.source("i_pick").send(picks)
    picked = await picked_sink.take(20)
    assert sorted_sink.pending() == 0
    open_.append(True)

    check(env, sort, picks, await sorted_sink.take(20), picked)
