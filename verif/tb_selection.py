"""cocotb bench of :class:`rtl.sorting.selection.Selection`."""

import itertools

import cocotb
import numpy as np

from golden.parameters import SelectionParameters
from rtl.sorting.entry import Mode
from rtl.sorting.schedules import schedule
from verif.environment import STALLS, Environment, beats, parameters_under_test, trace_under_test
from verif.selection_stimulus import Vector, faulty, possible_faults, random_vectors

P = parameters_under_test(SelectionParameters)


def mixed(rng, count):
    """Draw vectors of all kinds, a fifth of them faulty, some with many equal values."""
    vectors = []
    for number in range(count):
        if number % 5 == 3:
            vectors.append(faulty(P, rng, str(rng.choice(possible_faults(P)))))
        else:
            vectors += random_vectors(P, rng, 1, levels=(None, None, 2, 1)[number % 4])
    return vectors


def commands(vectors):
    """Payloads of ``i_command``; tags count up."""
    return {
        "mode": np.array([v.mode.value for v in vectors]),
        "length": np.array([v.length for v in vectors]),
        "b_ii": np.array([v.b_ii for v in vectors]),
        "tag": np.arange(len(vectors)) % (1 << P.tag_width),
    }


def values(vectors):
    """Payloads of ``i``."""
    last = [np.arange(len(v.bits)) == len(v.bits) - 1 for v in vectors]
    return {"values": np.concatenate([v.bits for v in vectors]), "last": np.concatenate(last)}


def expected(vectors):
    """Payloads of ``o``, and of ``o_index``."""
    tagged = [(n % (1 << P.tag_width), r) for n, v in enumerate(vectors) for r in v.responses()]
    masks = np.array([r.mask for _, r in tagged])
    wide = P.head_dim > 64
    bits = np.uint64(1) << np.arange(P.head_dim, dtype=np.uint64) if not wide else None
    selections = {
        "tag": np.array([tag for tag, _ in tagged]),
        "chunk": np.array([r.chunk for _, r in tagged]),
        "last": np.array([r.last for _, r in tagged]),
        "mask": masks if bits is None else (masks * bits).sum(axis=1, dtype=np.uint64),
        "count": np.array([r.count for _, r in tagged]),
        "error": np.array([r.error for _, r in tagged]),
    }
    return selections, listed(tagged) if P.index_lanes else {}


def listed(tagged):
    """Payloads of ``o_index``."""
    rows = []
    for tag, response in tagged:
        indices = np.flatnonzero(response.mask)
        parts = [
            indices[start : start + P.index_lanes]
            for start in range(0, max(1, len(indices)), P.index_lanes)
        ]
        for number, part in enumerate(parts):
            padded = np.pad(part, (0, P.index_lanes - len(part)))
            end = number == len(parts) - 1
            rows.append((padded, len(part), end, tag, response.chunk, response.last))
    names = ("indices", "count", "end", "tag", "chunk", "last")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return dict(zip(names, columns, strict=True))


async def run(env, vectors, *, i_stall="never", o_stall="never", index=True):
    """Send vectors back to back, and compare all that comes."""
    selections, indices = expected(vectors)
    env.source("i_command", i_stall).send(commands(vectors))
    env.source("i", i_stall).send(values(vectors))
    sink = env.sink("o", o_stall)
    listing = None
    if P.index_lanes:
        env.set("index_enable", index)
        listing = env.sink("o_index", o_stall)
    env.compare("o", await sink.take(len(selections["tag"])), selections)
    if listing is not None and index:
        env.compare("o_index", await listing.take(len(indices["tag"])), indices)
    return sink.cycles


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=(*STALLS, "late"))
async def matches_golden(dut, i_stall, o_stall):
    """Vectors of all kinds and faults, under every kind of stall."""
    env = await Environment.start(dut, timeout=400_000)
    await run(env, mixed(env.rng, beats(verilator=25, icarus=8)), i_stall=i_stall, o_stall=o_stall)


@cocotb.test()
async def masks_alone(dut):
    """Switch the index stream off: it holds nothing back."""
    env = await Environment.start(dut, timeout=400_000)
    if P.index_lanes:
        env.sink("o_index", itertools.repeat(False))
    vectors = mixed(env.rng, beats(verilator=60, icarus=10))
    selections, _ = expected(vectors)
    env.source("i_command").send(commands(vectors))
    env.source("i").send(values(vectors))
    if P.index_lanes:
        env.set("index_enable", 0)
    env.compare("o", await env.sink("o").take(len(selections["tag"])), selections)


@cocotb.test()
async def resets_in_mid_operation(dut):
    """Reset at any time: nothing is left behind."""
    env = await Environment.start(dut, timeout=400_000)
    for clocks in env.rng.integers(1, 120, size=beats(verilator=12, icarus=4)).tolist():
        vectors = mixed(env.rng, 6)
        env.source("i_command", "random").send(commands(vectors))
        env.source("i", "random").send(values(vectors))
        await env.clocks(clocks)
        await env.reset()
        assert env.get("status") == 0
    await run(env, mixed(env.rng, 6), i_stall="random", o_stall="random")


@cocotb.test(skip=P.groups != 8)
async def sorter_is_busy_90_percent_over_8_or_more_vectors(dut):
    """Vectors of 8 groups: invocations per clock between the 8th and the 9th last result."""
    env = await Environment.start(dut)
    for full, rest in ((2, 1), (4, 0), (1, 3), (3, 1), (2, 5)):
        b_ii = full * P.ways + rest
        vectors = random_vectors(P, env.rng, 96, lengths=[P.head_dim])
        for vector in vectors:
            vector.b_ii = b_ii
        cycles = await run(env, vectors, index=False)
        clocks = cycles[-9] - cycles[7]
        invocations = schedule(8, full, rest > 0).invocations * (len(vectors) - 16)
        busy = invocations / clocks
        dut._log.info(f"b_ii {b_ii}: sorter busy {busy:.1%}")
        assert busy >= 0.90, f"b_ii {b_ii}: {busy:.1%}"
        await env.reset()


@cocotb.test(skip=P.head_dim != 64)
async def real_trace_is_selected_as_golden(dut):
    """Q and P of three layers, all heads, 64 steps of a real model."""
    env = await Environment.start(dut, timeout=2_000_000)
    trace = trace_under_test()
    prompt = trace.p.shape[-1] - trace.p.shape[-2]
    q = trace.q.reshape(-1, *trace.q.shape[-2:])
    p = trace.p.reshape(-1, *trace.p.shape[-2:])
    kept = itertools.cycle((18, 32, 16, 26, 1, 48))
    vectors = []
    for head, step in itertools.product(range(len(q)), range(q.shape[1])):
        row = p[head, step, : prompt + step + 1]
        vectors.append(Vector.of(q[head, step], next(kept), Mode.GLOBAL_SORT, parameters=P))
        vectors.append(Vector.of(row, next(kept), Mode.CHUNK_SORT, parameters=P))
    assert len(vectors) == 2 * 3 * 9 * 64
    await run(env, vectors)
