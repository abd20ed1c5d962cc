"""cocotb bench of :class:`rtl.arithmetic.tisg.Tisg`."""

import cocotb
import numpy as np

from golden.parameters import TisgParameters
from golden.tisg import tisg
from verif.environment import (
    STALLS,
    Environment,
    beats,
    check_full_rate,
    parameters_under_test,
    trace_under_test,
)
from verif.tisg_stimulus import legal_scores, reserved_scores, weights

P = parameters_under_test(TisgParameters)
O_STALLS = (*STALLS, "late") if P.stall else ("never",)
LATENCY = 1 + P.adder_registers


def mask(bits):
    """Turn beats of one bit per lane into integers."""
    return np.array([sum(int(bit) << lane for lane, bit in enumerate(row)) for row in bits], object)


def stimulus(rng, count):
    """Draw payloads of ``i``, a quarter of the lanes off; return also what ``o`` must give."""
    p = weights(rng, (count, P.lanes))
    enable = rng.random((count, P.lanes)) < 0.75
    scores = np.where(enable, legal_scores(rng, p, P), reserved_scores(rng, p.shape, P))
    total, bad = tisg(scores, p, enable, P)
    return (
        {"scores": scores, "p": p, "enable": mask(enable)},
        {"scores": total, "bad": mask(bad)},
    )


@cocotb.test()
@cocotb.parametrize(i_stall=STALLS, o_stall=O_STALLS)
async def matches_golden(dut, i_stall, o_stall):
    """Every beat, under every kind of stall."""
    env = await Environment.start(dut)
    payloads, expected = stimulus(env.rng, beats(verilator=400, icarus=40))
    count = len(payloads["p"])

    env.source("i", i_stall).send(payloads)
    got = await env.sink("o", o_stall).take(count)

    env.compare("o", got, expected)
    assert env.get("bad") == int(expected["bad"].any())


@cocotb.test()
async def full_rate_at_the_stated_latency(dut):
    """One beat per clock, each ``1 + adder_registers`` clocks after its acceptance."""
    env = await Environment.start(dut)
    payloads, expected = stimulus(env.rng, beats(verilator=4000, icarus=100))
    count = len(payloads["p"])
    source, sink = env.source("i"), env.sink("o")

    source.send(payloads)
    env.compare("o", await sink.take(count), expected)

    check_full_rate(source, sink, LATENCY)


@cocotb.test()
async def reset_drops_what_is_inside(dut):
    """After a reset in mid-operation nothing old comes out, and the flag is clear."""
    env = await Environment.start(dut)
    for _ in range(beats(verilator=10, icarus=3)):
        payloads, _ = stimulus(env.rng, 20)
        payloads["p"][:], payloads["enable"][:] = 0x7E00, (1 << P.lanes) - 1
        env.source("i", "random").send(payloads)
        await env.clocks(int(env.rng.integers(1, 12)))

        await env.reset()

        assert env.get("bad") == 0
        payloads, expected = stimulus(env.rng, 10)
        env.source("i").send(payloads)
        env.compare("o", await env.sink("o").take(10), expected)


@cocotb.test()
async def flag_rises_with_the_beat(dut):
    """Before each clock edge the flag tells whether a bad weight has been offered on ``o``."""
    env = await Environment.start(dut)
    payloads, expected = stimulus(env.rng, 30)
    payloads["p"][:20] &= 0x3FFF
    payloads["p"][20, 0], payloads["enable"][20] = 0xFFFF, 1
    source, sink = env.source("i"), env.sink("o")
    start, flags = env.cycle, env.record("bad")

    source.send(payloads)
    await sink.take(30)

    rise = sink.cycles[20] - start
    assert flags[:rise] == [0] * rise
    assert set(flags[rise:]) == {1}


@cocotb.test()
async def clear_loses_against_a_new_bad_weight(dut):
    """With ``clear`` held high the flag is one for a clock per beat that enters ``o``."""
    env = await Environment.start(dut)
    pattern = env.rng.random(60) < 0.5
    payloads = {
        "scores": np.zeros((60, P.lanes), np.uint32),
        "p": np.where(pattern[:, None], 0xFC00, 0x3C00).repeat(P.lanes, axis=1),
        "enable": np.full(60, (1 << P.lanes) - 1, object),
    }
    env.set("clear", 1)
    source, sink = env.source("i"), env.sink("o")
    start, flags = env.cycle, env.record("bad")

    source.send(payloads)
    await sink.take(60)

    assert [flags[cycle - start] for cycle in sink.cycles] == pattern.astype(int).tolist()


@cocotb.test(skip=P.score_format != "fp16")
async def real_trace_scores_equal_golden(dut):
    """Add the attention rows of a real model's decoding to its prompt's scores, row after row."""
    env = await Environment.start(dut, timeout=2_000_000)
    trace = trace_under_test()
    steps = beats(verilator=trace.steps, icarus=1)
    spare = -len(trace.tokens) % P.lanes
    p = np.pad(trace.p[:, :, :, :steps], ((0, 0),) * 4 + ((0, spare),))
    scores = np.pad(trace.scores[:, :, -1], ((0, 0), (0, 0), (0, trace.steps + spare)))
    given, total = [], []
    for step in range(steps):
        for query in range(trace.group):
            given.append(scores)
            scores, _ = tisg(scores, p[:, :, query, step], np.ones(scores.shape, bool), P)
            total.append(scores)
    rows = p.transpose(3, 2, 0, 1, 4).reshape(-1, P.lanes)
    every_lane = np.array([(1 << P.lanes) - 1] * len(rows), object)

    env.source("i").send({
        "scores": np.array(given).reshape(-1, P.lanes), "p": rows, "enable": every_lane,
    })  # fmt: skip
    got = await env.sink("o").take(len(rows))

    sums = np.array(total).reshape(-1, P.lanes)
    env.compare("o", got, {"scores": sums, "bad": np.zeros(len(rows), object)})
    assert not env.get("bad")
