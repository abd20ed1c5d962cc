"""cocotb bench of :class:`rtl.sorting.ris.Ris`."""

import cocotb
import numpy as np

from golden.parameters import RisParameters
from golden.ris import pick, sort_merge
from rtl.sorting.entry import Mode
from verif.environment import (
    SEED,
    SIMULATOR,
    STALLS,
    Environment,
    beats,
    parameters_under_test,
)
from verif.sorting_compare import as_sets, entries
from verif.sorting_stimulus import groups

P = parameters_under_test(RisParameters)
O_STALLS = (*STALLS, "late") if P.stall else ("never",)
SORTS = (Mode.GLOBAL_SORT.value, Mode.CHUNK_SORT.value)


def pairs(env, count):
    """Draw groups ``a`` and ``b``, and tags if there are any."""
    both = {}
    for side in ("a", "b"):
        keys, indices = groups(env.rng, count, P)
        both[side] = {"key": keys, "index": indices}
    if P.tag_width:
        both["tag"] = env.rng.integers(1 << P.tag_width, size=count)
    return both


def chosen(payload, where):
    """Those beats of a payload."""
    return {
        name: chosen(value, where) if isinstance(value, dict) else value[where]
        for name, value in payload.items()
    }


def fields(found):
    """Payload of golden entries."""
    return {"key": found.keys, "index": found.indices}


def merged(given):
    """Upper and lower groups of a merge, highest first."""
    a, b = given["a"], given["b"]
    upper, lower = sort_merge(a["key"], a["index"], b["key"], b["index"])
    return {"upper": fields(upper), "lower": fields(lower)}


def compare_sets(env, name, got, wanted, source):
    """Compare the entries of both groups, in any order inside; and the tags."""
    for half in ("upper", "lower"):
        if P.index_tiebreak:
            env.compare(
                f"{name} {half}",
                as_sets(got[half], P.index_width),
                as_sets(wanted[half], P.index_width),
            )
        else:
            keys = (np.sort(payload[half]["key"], axis=-1) for payload in (got, wanted))
            env.compare(f"{name} {half}", *keys)
    everything = [
        np.sort(np.concatenate([entries(p["upper"], P.index_width),
                                entries(p["lower"], P.index_width)], axis=-1), axis=-1)
        for p in (got, wanted)
    ]  # fmt: skip
    env.compare(f"{name}, entries of both groups", *everything)
    if P.tag_width:
        env.compare(f"{name} tag", got["tag"], source["tag"])


def compare_picked(env, got, wanted, source):
    """Compare sets; and the minimum first and the maximum last."""
    compare_sets(env, "o_pick", got, wanted, source)
    for half in ("upper", "lower"):
        minimum, maximum = pick(wanted[half]["key"], wanted[half]["index"])
        for place, entry, what in ((0, minimum, "minimum"), (-1, maximum, "maximum")):
            group = got[half]
            name = f"o_pick {half} {what}"
            env.compare(name, group["key"][:, place], entry.keys)
            if P.index_tiebreak:
                env.compare(name, group["index"][:, place], entry.indices)


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=O_STALLS)
async def matches_golden(dut, i_stall, o_stall):
    """All four modes at once on both ports; a pick that waits for the merger is not lost."""
    env = await Environment.start(dut)
    count = beats(verilator=200, icarus=24)
    modes = env.rng.choice([*SORTS, Mode.HEAPIFY_UP.value], size=count)
    sort, down = pairs(env, count), pairs(env, count)
    climbs = modes == Mode.HEAPIFY_UP.value

    sorter, picker = env.source("i_sort", i_stall), env.source("i_pick", i_stall)
    o_sort, o_pick = env.sink("o_sort", o_stall), env.sink("o_pick", o_stall)
    sorter.send({"mode": modes} | sort)
    picker.send(down)
    got = await o_sort.take(int((~climbs).sum()))
    compare_sets(env, "o_sort", got, merged(chosen(sort, ~climbs)), chosen(sort, ~climbs))

    picked = await o_pick.take(int(climbs.sum()) + count)
    ups, downs = chosen(sort, climbs), down
    wanted, source = interleaved(env, picked, (merged(ups), ups), (as_given(downs), downs))
    compare_picked(env, picked, wanted, source)


def as_given(given):
    """Upper and lower groups of a pick: the groups themselves."""
    return {"upper": given["a"], "lower": given["b"]}


def interleaved(env, got, *ports):
    """Put what is expected of several ports into the order in which it came.

    Each port's beats must come in their own order; of which port a beat is, its keys tell. A beat
    that is none port's next one fails.
    """

    def signatures(payload):
        keys = [np.sort(payload[half]["key"], axis=-1) for half in ("upper", "lower")]
        return np.concatenate(keys, axis=-1).astype(np.uint64)

    expected = [signatures(wanted) for wanted, _ in ports]
    position, order = [0] * len(ports), []
    offsets = np.cumsum([0, *map(len, expected)])
    for beat, signature in enumerate(signatures(got)):
        for port, rows in enumerate(expected):
            place = position[port]
            if place < len(rows) and (rows[place] == signature).all():
                break
        else:
            nexts = [rows[n].tolist() for rows, n in zip(expected, position, strict=True)
                     if n < len(rows)]  # fmt: skip
            raise AssertionError(
                f"o_pick beat {beat}: expected keys {' or '.join(map(str, nexts))}, got "
                f"{signature.tolist()}; replay: kvsmith verify ris --seed {SEED} "
                f"--simulator {SIMULATOR}"
            )
        order.append(offsets[port] + place)
        position[port] += 1
    wanted, sources = zip(*ports, strict=True)
    tags = [{"tag": source["tag"]} if P.tag_width else {} for source in sources]
    return joined(wanted, order), joined(tags, order)


def joined(payloads, order):
    """Beats of several payloads, one behind the other, in another order."""
    return {
        name: joined([p[name] for p in payloads], order)
        if isinstance(value, dict)
        else np.concatenate([p[name] for p in payloads])[order]
        for name, value in payloads[0].items()
    }


@cocotb.test()
async def one_invocation_per_clock_at_the_stated_latency(dut):
    """Back to back, the initiation interval of the sort port is 1 clock in every mode."""
    env = await Environment.start(dut)
    count = beats(verilator=1000, icarus=40)
    for mode, output in ((Mode.GLOBAL_SORT, "o_sort"), (Mode.CHUNK_SORT, "o_sort"),
                         (Mode.HEAPIFY_UP, "o_pick")):  # fmt: skip
        given = pairs(env, count)
        source, sink = env.source("i_sort"), env.sink(output)
        source.send({"mode": np.full(count, mode.value)} | given)
        got = await sink.take(count)
        (compare_picked if mode == Mode.HEAPIFY_UP else compare_all_sets)(
            env, got, merged(given), given
        )
        start = source.cycles[0]
        assert source.cycles == list(range(start, start + count)), mode
        latency = env.component.latency[f"i_sort to {output}"]
        assert sink.cycles == [cycle + latency for cycle in source.cycles], mode


def compare_all_sets(env, got, wanted, source):
    """Compare sets of ``o_sort``."""
    compare_sets(env, "o_sort", got, wanted, source)


@cocotb.test()
async def a_pick_takes_its_stated_latency(dut):
    """HEAPIFY_DOWN goes into the picker directly."""
    env = await Environment.start(dut)
    count = beats(verilator=500, icarus=40)
    given = pairs(env, count)
    source, sink = env.source("i_pick"), env.sink("o_pick")
    source.send(given)
    compare_picked(env, await sink.take(count), as_given(given), given)
    latency = env.component.latency["i_pick to o_pick"]
    assert sink.cycles == [cycle + latency for cycle in source.cycles]


@cocotb.test()
async def merger_goes_before_a_later_pick(dut):
    """Under full load of HEAPIFY_UP a pick waits, and the merger's results keep their latency."""
    env = await Environment.start(dut)
    count = beats(verilator=300, icarus=40)
    up, down = pairs(env, count), pairs(env, 8)
    sorter, sink = env.source("i_sort"), env.sink("o_pick")
    picker = env.source("i_pick", iter([False] * 20 + [True] * 10_000))
    sorter.send({"mode": np.full(count, Mode.HEAPIFY_UP.value)} | up)
    picker.send(down)
    got = await sink.take(count + 8)
    wanted, source = interleaved(env, got, (merged(up), up), (as_given(down), down))
    compare_picked(env, got, wanted, source)
    assert sorter.cycles == list(range(sorter.cycles[0], sorter.cycles[0] + count))
    arrivals = {cycle + len(env.component._sort_registers) for cycle in sorter.cycles}
    assert not arrivals & set(picker.cycles)


@cocotb.test()
async def resets_in_mid_operation_leave_nothing(dut):
    """Invocations inside are dropped on both ports."""
    env = await Environment.start(dut)
    for clocks in env.rng.integers(1, 30, size=beats(verilator=20, icarus=4)).tolist():
        env.source("i_sort", "random").send(
            {"mode": env.rng.choice([*SORTS, Mode.HEAPIFY_UP.value], size=40)} | pairs(env, 40)
        )
        env.source("i_pick", "random").send(pairs(env, 40))
        await env.clocks(clocks)
        await env.reset()
        assert not env.get("illegal_mode")
    given = pairs(env, 20)
    env.source("i_sort", "random").send({"mode": np.full(20, SORTS[0])} | given)
    compare_sets(env, "o_sort", await env.sink("o_sort").take(20), merged(given), given)


@cocotb.test()
async def one_group_is_ranked_against_an_empty_partner(dut):
    """``upper`` is then the group in descending order."""
    env = await Environment.start(dut)
    count = beats(verilator=200, icarus=20)
    given = pairs(env, count)
    given["b"]["key"][...] = 0
    given["b"]["index"][...] = (1 << P.index_width) - 1
    given["a"]["key"] = np.maximum(given["a"]["key"], 1)
    env.source("i_sort").send({"mode": np.full(count, SORTS[1])} | given)
    got = await env.sink("o_sort").take(count)
    ranked = {"key": got["upper"]["key"]}
    if P.index_tiebreak:
        ranked["index"] = got["upper"]["index"]
    env.compare("o_sort upper", ranked, {k: merged(given)["upper"][k] for k in ranked})


@cocotb.test()
async def heapify_down_on_the_sort_port_sorts_and_raises_the_flag(dut):
    """Nothing hangs; clear takes the flag back."""
    env = await Environment.start(dut)
    given = pairs(env, 1)
    env.source("i_sort").send({"mode": np.array([Mode.HEAPIFY_DOWN.value])} | given)
    compare_sets(env, "o_sort", await env.sink("o_sort").take(1), merged(given), given)
    assert env.get("illegal_mode")
    env.set("clear", 1)
    await env.clocks(2)
    assert not env.get("illegal_mode")


@cocotb.test()
async def ties_keep_every_index_in_every_mode(dut):
    """All keys equal, and keys of two values: indices in are indices out, none doubled or lost."""
    env = await Environment.start(dut)
    count = beats(verilator=100, icarus=12)
    for levels in (1, 2):
        for mode in (*SORTS, Mode.HEAPIFY_UP.value):
            given = pairs(env, count)
            for side in ("a", "b"):
                given[side]["key"] = env.rng.integers(levels, size=(count, P.ways)) + 100
            output = "o_pick" if mode == Mode.HEAPIFY_UP.value else "o_sort"
            env.source("i_sort", "random").send({"mode": np.full(count, mode)} | given)
            compare_sets(env, output, await env.sink(output).take(count), merged(given), given)
