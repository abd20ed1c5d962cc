# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.arithmetic.tisg.Tisg` and its adder, in the Amaranth simulator."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.numerics import accumulate, ufix_limit
from golden.parameters import TisgParameters
from golden.tisg import tisg
from rtl.arithmetic.score_adder import ScoreAdder
from rtl.arithmetic.tisg import Tisg
from rtl.generate import emit, generate
from verif import sim
from verif.exhaustive_tisg import compile_adder, mismatches
from verif.simulate import find_simulator
from verif.tisg_stimulus import legal_scores, reserved_scores, weights

FORMATS = {
    "fp16": TisgParameters(),
    "fp32": TisgParameters(score_format="fp32"),
    "ufix": TisgParameters(score_format="ufix"),
    "ufix_all_fraction": TisgParameters(score_format="ufix", int_bits=7, frac_bits=24),
    "ufix_all_integer": TisgParameters(score_format="ufix", int_bits=16, frac_bits=1),
    "ufix_smallest": TisgParameters(score_format="ufix", int_bits=1, frac_bits=1),
}
FORMAT = pytest.mark.parametrize("parameters", FORMATS.values(), ids=FORMATS)
DEPTHS = pytest.mark.parametrize("adder_registers", [0, 1])

#: Score, weight, sum, bad.
FP16_CORNERS = {
    "subnormals_reach_the_smallest_normal": (0x03FF, 0x0001, 0x0400, 0),
    "two_subnormals_make_a_normal": (0x03FF, 0x03FF, 0x07FE, 0),
    "subnormal_sum_of_subnormals": (0x0001, 0x0001, 0x0002, 0),
    "smallest_normal_and_subnormal": (0x0400, 0x0001, 0x0401, 0),
    "subnormal_and_smallest_normal": (0x0001, 0x0400, 0x0401, 0),
    "two_smallest_normals": (0x0400, 0x0400, 0x0800, 0),
    "subnormal_carries_into_the_exponent": (0x07FF, 0x0001, 0x0800, 0),
    "tie_to_even_rounds_up_to_the_next_exponent": (0x0BFF, 0x0001, 0x0C00, 0),
    "tie_to_even_stays": (0x4000, 0x1400, 0x4000, 0),
    "tie_to_even_rounds_up": (0x4001, 0x1400, 0x4002, 0),
    "sticky_bit_breaks_the_tie": (0x4000, 0x1401, 0x4001, 0),
    "below_the_tie_stays": (0x4001, 0x13FF, 0x4001, 0),
    "tie_of_the_moved_sum_stays": (0x3C00, 0x3C01, 0x4000, 0),
    "tie_of_the_moved_sum_rounds_up": (0x3C00, 0x3C03, 0x4002, 0),
    "tie_of_the_moved_sum_rounds_up_by_a_carry": (0x3FFF, 0x3800, 0x4100, 0),
    "sticky_bit_breaks_the_tie_of_the_moved_sum": (0x3FFF, 0x1880, 0x4001, 0),
    "last_places_carry_the_sum_to_two": (0x0007, 0x0FFF, 0x1000, 0),
    "2048_plus_1_does_not_grow": (0x6800, 0x3C00, 0x6800, 0),
    "65504_plus_just_below_16_stays_finite": (0x7BFF, 0x4BFF, 0x7BFF, 0),
    "65504_plus_16_overflows": (0x7BFF, 0x4C00, 0x7C00, 0),
    "largest_twice_overflows": (0x7BFF, 0x7BFF, 0x7C00, 0),
    "32768_twice_overflows_without_a_mantissa": (0x7800, 0x7800, 0x7C00, 0),
    "infinite_score_stays": (0x7C00, 0x0001, 0x7C00, 0),
    "infinite_score_and_largest": (0x7C00, 0x7BFF, 0x7C00, 0),
    "infinite_weight": (0x0001, 0x7C00, 0x7C00, 0),
    "both_infinite": (0x7C00, 0x7C00, 0x7C00, 0),
    "signalling_nan_adds_nothing": (0x3C01, 0x7C01, 0x3C01, 1),
    "nan_adds_nothing": (0x3C01, 0x7E00, 0x3C01, 1),
    "negative_nan_with_payload_adds_nothing": (0x3C01, 0xFE55, 0x3C01, 1),
    "nan_leaves_infinity": (0x7C00, 0x7E00, 0x7C00, 1),
    "nan_leaves_zero": (0x0000, 0x7FFF, 0x0000, 1),
    "negative_subnormal_adds_nothing": (0x03FF, 0x8001, 0x03FF, 1),
    "negative_adds_nothing": (0x4000, 0xBC00, 0x4000, 1),
    "negative_infinity_adds_nothing": (0x4000, 0xFC00, 0x4000, 1),
    "negative_zero_counts_as_zero": (0x0000, 0x8000, 0x0000, 0),
    "negative_zero_is_not_bad": (0x3555, 0x8000, 0x3555, 0),
}


def add(parameters, scores, p, enable=1):
    """Run a combinational adder on one vector after the other; return sums and bad flags."""
    dut = ScoreAdder(parameters)
    results = []

    async def testbench(ctx):
        ctx.set(dut.enable, enable)
        for score, weight in zip(scores, p, strict=True):
            ctx.set(dut.score, int(score))
            ctx.set(dut.p, int(weight))
            await ctx.delay(1e-9)
            results.append((ctx.get(dut.sum), ctx.get(dut.bad)))

    simulator = Simulator(dut)
    simulator.add_testbench(testbench)
    simulator.run()
    return results


def golden_add(parameters, scores, p):
    """Return what `add` must return."""
    dtype = np.uint16 if parameters.score_width == 16 else np.uint32
    total, bad = accumulate(
        np.array(scores, dtype),
        np.array(p, np.uint16),
        parameters.score_format,
        int_bits=parameters.int_bits,
        frac_bits=parameters.frac_bits,
    )
    return list(zip(total.tolist(), bad.tolist(), strict=True))


@pytest.fixture(scope="module")
def fp16_corner_results():
    """Results of all corners, from one simulation."""
    scores, p, _, _ = zip(*FP16_CORNERS.values(), strict=True)
    return dict(zip(FP16_CORNERS, add(FORMATS["fp16"], scores, p), strict=True))


@pytest.mark.parametrize("corner", FP16_CORNERS)
def test_fp16_corner(corner, fp16_corner_results):
    score, p, total, bad = FP16_CORNERS[corner]

    assert fp16_corner_results[corner] == (total, bad)
    assert golden_add(FORMATS["fp16"], [score], [p]) == [(total, bad)]


def test_fp16_weight_of_another_kind_every_time():
    rng = np.random.default_rng(1)
    kinds = np.array([0x3C00, 0x7E00, 0x0001, 0xBC00, 0x7C00, 0x8000, 0xFE00, 0x03FF, 0x1234])
    p = kinds[rng.integers(len(kinds), size=200)]
    scores = rng.integers(0x7C01, size=200)

    assert add(FORMATS["fp16"], scores, p) == golden_add(FORMATS["fp16"], scores, p)


@pytest.mark.parametrize("int_bits, frac_bits", [(10, 21), (1, 1), (16, 15), (7, 24)])
def test_ufix_saturates_below_all_ones(int_bits, frac_bits):
    parameters = TisgParameters(score_format="ufix", int_bits=int_bits, frac_bits=frac_bits)
    limit = ufix_limit(int_bits, frac_bits)
    smallest = 0x3C00 - (frac_bits << 10) if frac_bits < 15 else 1 << (24 - frac_bits)
    scores = [0, limit, limit - 1, limit, limit, limit - 1]
    p = [0x7C00, 0x7BFF, smallest, smallest, 0, 0]

    results = add(parameters, scores, p)

    assert results == [(limit, 0)] * 5 + [(limit - 1, 0)]
    assert results == golden_add(parameters, scores, p)


@pytest.mark.parametrize("frac_bits", [1, 10, 21, 23])
def test_ufix_conversion_rounds_ties_to_even(frac_bits):
    parameters = TisgParameters(score_format="ufix", int_bits=4, frac_bits=frac_bits)
    halves = np.arange(16) * 2.0 ** -(frac_bits + 1)
    p = halves.astype(np.float16).view(np.uint16)

    codes = [code for code, _ in add(parameters, [0] * 16, p)]

    assert codes == [0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7, 8]


def test_fp32_keeps_what_fp16_loses():
    one, ulp = 0x3F800000, 1 << 9
    scores, p = [one, one + ulp], [0x0001, 0x0001]

    expected = [(one + 1, 0), (one + ulp + 1, 0)]

    assert golden_add(FORMATS["fp32"], [one], [0x0002]) == [(one + 1, 0)]
    assert add(FORMATS["fp32"], scores, [0x0002, 0x0002]) == expected
    assert add(FORMATS["fp32"], scores, p) == golden_add(FORMATS["fp32"], scores, p)


@FORMAT
@settings(max_examples=12)
@given(data=st.data())
def test_matches_golden(parameters, data):
    p = np.array(data.draw(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=20)), np.uint16)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    scores = legal_scores(rng, p, parameters)

    assert add(parameters, scores, p) == golden_add(parameters, scores, p)


@FORMAT
def test_disabled_adder_passes_any_bits(parameters):
    rng = np.random.default_rng(0)
    scores = reserved_scores(rng, (200,), parameters)
    p = weights(rng, (200,))

    assert add(parameters, scores, p, enable=0) == [(score, 0) for score in scores.tolist()]


@FORMAT
def test_score_stays_bit_by_bit_where_nothing_is_added(parameters):
    rng = np.random.default_rng(0)
    scores = reserved_scores(rng, (200,), parameters)
    p = rng.choice(np.array([0x7E00, 0xFE00, 0xBC00, 0x8001, 0xFFFF]), 200)

    assert add(parameters, scores, p) == [(score, 1) for score in scores.tolist()]


@pytest.mark.netlist
@pytest.mark.parametrize("name", ["fp16", "fp32", "ufix"])
def test_every_weight_with_scores_of_every_exponent(name, tmp_path):
    parameters = FORMATS[name]
    rng = np.random.default_rng(0)
    if name == "ufix":
        scores = legal_scores(rng, weights(rng, (100,)), parameters)
    else:
        mantissa = {"fp16": 10, "fp32": 23}[name]
        exponents = np.arange({"fp16": 31, "fp32": 255}[name]) << mantissa
        fields = np.stack([rng.integers(1 << mantissa, size=len(exponents)) for _ in range(3)])
        edges = np.array([[0], [1], [(1 << mantissa) - 1]])
        scores = np.concatenate([exponents + fields, exponents + edges]).ravel()
        if name == "fp32":
            # Where a weight is not lost, and a few others.
            near = ((scores >> mantissa) > 75) & ((scores >> mantissa) < 170)
            scores = scores[near | (rng.random(len(scores)) < 0.05)]
        scores = np.append(scores, len(exponents) << mantissa)
    scores = scores.astype(np.uint16 if name == "fp16" else np.uint32)

    assert mismatches(compile_adder(parameters, tmp_path), parameters, scores) == (0, "")


@pytest.mark.nightly
def test_every_fp16_score_with_every_weight(tmp_path):
    scores = np.arange(0x7C01, dtype=np.uint16)

    executable = compile_adder(FORMATS["fp16"], tmp_path)

    assert mismatches(executable, FORMATS["fp16"], scores) == (0, "")


@pytest.mark.netlist
def test_synthesised_netlist_matches_golden(tmp_path):
    pytest.importorskip("pyosys")
    (tmp_path / "rtl.v").write_text(emit(ScoreAdder(FORMATS["fp16"]), "adder").verilog)
    passes = ["read_verilog rtl.v", "synth -flatten -top adder", "abc -g AND,OR,XOR,MUX"]
    passes += ["opt_clean", "write_verilog -noattr netlist.v"]
    # Yosys ends its process when it fails.
    script = "from pyosys import libyosys as y; d = y.Design()\n"
    script += "\n".join(f"d.run_pass({line!r})" for line in passes)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)
    netlist = (tmp_path / "netlist.v").read_text()
    scores = np.append(np.arange(0, 0x7C00, 97), 0x7C00).astype(np.uint16)

    executable = compile_adder(FORMATS["fp16"], tmp_path, netlist)

    assert mismatches(executable, FORMATS["fp16"], scores) == (0, "")


@pytest.mark.netlist
@FORMAT
@DEPTHS
def test_every_format_lints(parameters, adder_registers, tmp_path):
    parameters = dataclasses.replace(parameters, lanes=2, adder_registers=adder_registers)
    waivers = Path(__file__).parent / "lint" / "kvsmith.vlt"
    verilog = generate("tisg", parameters, tmp_path)
    verilator = find_simulator("verilator").path / "verilator"

    done = subprocess.run(
        [verilator, "--lint-only", "-Wall", waivers, verilog],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def stimulus(parameters, count, seed=0):
    """Draw payloads for ``i``; return them, and what `observed` must give for ``o``."""
    rng = np.random.default_rng(seed)
    shape = (count, parameters.lanes)
    p = weights(rng, shape)
    enable = rng.random(shape) < 0.75
    scores = np.where(
        enable, legal_scores(rng, p, parameters), reserved_scores(rng, shape, parameters)
    )
    total, bad = tisg(scores, p, enable, parameters)
    lane_bits = 1 << np.arange(parameters.lanes)
    payloads = [
        {"scores": s.tolist(), "p": w.tolist(), "enable": int(e @ lane_bits)}
        for s, w, e in zip(scores, p, enable, strict=True)
    ]
    return payloads, [(t.tolist(), int(b @ lane_bits)) for t, b in zip(total, bad, strict=True)]


def observed(payloads):
    """Turn payloads of ``o`` into plain numbers."""
    return [(list(payload.scores), payload.bad) for payload in payloads]


def beat(parameters, score, p, enable=-1):
    """Make a payload of ``i`` that is the same in all lanes."""
    lanes = parameters.lanes
    return {"scores": [score] * lanes, "p": [p] * lanes, "enable": enable & ((1 << lanes) - 1)}


@DEPTHS
@pytest.mark.parametrize(
    "score_format, i_gap, o_gap",
    [
        ("fp16", 0, 0),
        ("fp16", 3, 0),
        ("fp16", 0, 5),
        ("fp16", 3, 5),
        ("fp32", 3, 5),
        ("ufix", 3, 5),
    ],
)
def test_beats_match_golden(score_format, o_gap, i_gap, adder_registers):
    parameters = TisgParameters(lanes=3, score_format=score_format, adder_registers=adder_registers)
    payloads, expected = stimulus(parameters, 40)
    dut = Tisg(parameters)
    results = []

    async def drive(ctx):
        await sim.drive(ctx, dut.i, payloads, sim.gaps(2, i_gap))

    async def collect(ctx):
        results.extend(await sim.collect(ctx, dut.o, len(payloads), sim.gaps(1, o_gap)))

    sim.run(dut, drive, collect)

    assert observed(results) == expected


@DEPTHS
@pytest.mark.parametrize("i_gap", [0, 2])
def test_without_stall_every_beat_comes_out(adder_registers, i_gap):
    parameters = TisgParameters(lanes=2, stall=False, adder_registers=adder_registers)
    payloads, expected = stimulus(parameters, 40)
    dut = Tisg(parameters)
    results = []

    async def drive(ctx):
        await sim.drive(ctx, dut.i, payloads, sim.gaps(2, i_gap))

    async def collect(ctx):
        results.extend(await sim.collect(ctx, dut.o, len(payloads)))

    sim.run(dut, drive, collect)

    assert observed(results) == expected


@DEPTHS
@pytest.mark.parametrize("stall", [False, True])
def test_latency_is_one_clock_and_one_per_adder_register(stall, adder_registers):
    parameters = TisgParameters(lanes=1, stall=stall, adder_registers=adder_registers)
    dut = Tisg(parameters)

    async def testbench(ctx):
        await sim.put(ctx, dut.i, beat(parameters, 0x3C00, 0x3C00))
        clocks = 1
        while not ctx.get(dut.o.valid):
            await ctx.tick()
            clocks += 1
        assert clocks == 1 + adder_registers == dut.latency["i to o"]

    sim.run(dut, testbench)


@DEPTHS
def test_held_beat_does_not_change(adder_registers):
    parameters = TisgParameters(lanes=1, adder_registers=adder_registers)
    dut = Tisg(parameters)

    async def testbench(ctx):
        for _ in range(1 + adder_registers):
            await sim.put(ctx, dut.i, beat(parameters, 0x3C00, 0x3C00))
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.i.payload, beat(parameters, 0x4000, 0x7E00))
        ctx.set(dut.i.valid, 1)
        for _ in range(5):
            await ctx.tick()
            assert observed([ctx.get(dut.o.payload)]) == [([0x4000], 0)]
            assert ctx.get(dut.o.valid)
            assert not ctx.get(dut.bad)

    sim.run(dut, testbench)


@DEPTHS
def test_payload_registers_hold_without_a_beat(adder_registers):
    parameters = TisgParameters(lanes=1, adder_registers=adder_registers)
    dut = Tisg(parameters)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        await sim.put(ctx, dut.i, beat(parameters, 0x3C00, 0x3C00))
        ctx.set(dut.i.payload, beat(parameters, 0x1234, 0x1234))
        for _ in range(5):
            await ctx.tick()
        assert observed([ctx.get(dut.o.payload)]) == [([0x4000], 0)]
        assert not ctx.get(dut.o.valid)

    sim.run(dut, testbench)


def test_ready_as_the_held_beat_leaves():
    parameters = TisgParameters(lanes=1)
    dut = Tisg(parameters)

    async def testbench(ctx):
        assert ctx.get(dut.i.ready)
        await sim.put(ctx, dut.i, beat(parameters, 0, 0))
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.o.ready, 1)
        assert ctx.get(dut.i.ready)

    sim.run(dut, testbench)


@DEPTHS
@pytest.mark.parametrize("stall", [False, True])
@pytest.mark.parametrize(
    "p, enable, bad",
    [(0x7E00, 0b10, 1), (0xBC00, 0b01, 1), (0x8000, 0b11, 0), (0x7C00, 0b11, 0), (0xFE00, 0, 0)],
)
def test_flag_is_set_by_a_bad_weight_in_an_enabled_lane(p, enable, bad, stall, adder_registers):
    parameters = TisgParameters(lanes=2, stall=stall, adder_registers=adder_registers)
    dut = Tisg(parameters)

    async def testbench(ctx):
        if stall:
            ctx.set(dut.o.ready, 1)
        await sim.put(ctx, dut.i, beat(parameters, 0x3C00, p, enable))
        for _ in range(3):
            await sim.put(ctx, dut.i, beat(parameters, 0x3C00, 0x3C00))
        assert ctx.get(dut.bad) == bad
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert not ctx.get(dut.bad)

    sim.run(dut, testbench)


def test_flag_ignores_a_payload_that_is_not_valid():
    parameters = TisgParameters(lanes=1)
    dut = Tisg(parameters)

    async def testbench(ctx):
        ctx.set(dut.i.payload, beat(parameters, 0x3C00, 0x7E00))
        for _ in range(3):
            await ctx.tick()
        assert not ctx.get(dut.bad)

    sim.run(dut, testbench)


def test_clear_loses_against_a_new_bad_weight():
    parameters = TisgParameters(lanes=1)
    dut = Tisg(parameters)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.clear, 1)
        await sim.put(ctx, dut.i, beat(parameters, 0x3C00, 0x7E00))
        assert ctx.get(dut.bad)
        await ctx.tick()
        assert not ctx.get(dut.bad)

    sim.run(dut, testbench)


def test_group_is_added_query_by_query():
    p = np.array([[0x3C00], [0x1400], [0x1400]], np.uint16)
    score = np.array([0x4000], np.uint16)
    enable = np.ones(1, bool)

    for row in p:
        score, _ = tisg(score, row, enable, FORMATS["fp16"])

    # One addition of the sum of all three would round to 0x4201.
    assert score.tolist() == [0x4200]


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(lanes=0), ValueError, "Lanes must be an integer from 1 to 512, not 0"),
        (dict(lanes=True), TypeError, "Lanes must be an integer from 1 to 512, not True"),
        (
            dict(score_format="bf16"),
            ValueError,
            "Score format must be one of fp16, fp32, ufix, not 'bf16'",
        ),
        (dict(adder_registers=2), ValueError, "Adder registers must be one of 0, 1, not 2"),
        (dict(stall=1), TypeError, "Stall must be true or false, not 1"),
        (
            dict(int_bits=12, frac_bits=20),
            ValueError,
            "Int bits + frac bits must be at most 31, not 32",
        ),
    ],
)
def test_rejects_bad_parameters(settings, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        TisgParameters(**settings)
