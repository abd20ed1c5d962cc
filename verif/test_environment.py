# amaranth: UnusedElaboratable=no
"""The environment of the cocotb benches: packing, monitors, stalls, reports."""

from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.sorting.entry import Mode, group_layout
from verif import environment
from verif.environment import (
    STALLS,
    Sink,
    Source,
    as_bits,
    check_full_rate,
    compare,
    pack,
    unpack,
)

LAYOUT = data.StructLayout(
    {
        "mode": Mode,
        "group": group_layout(4, 16, 32),
        "mask": 100,
        "wide": 64,
    }
)


def values(rng, beats):
    return {
        "mode": rng.integers(4, size=beats),
        "group": {
            "key": rng.integers(2**16, size=(beats, 4)),
            "index": rng.integers(2**32, size=(beats, 4)),
        },
        "mask": rng.integers(2, size=(beats, 100)),
        "wide": rng.integers(2**64, size=beats, dtype=np.uint64),
    }


def test_packed_payloads_are_what_amaranth_makes_of_the_layout():
    given = values(np.random.default_rng(0), 5)

    for beat, string in enumerate(pack(LAYOUT, given)):
        constant = LAYOUT.from_bits(int(string, 2))
        assert constant.mode.value == given["mode"][beat]
        assert [e.key for e in constant.group] == given["group"]["key"][beat].tolist()
        assert [e.index for e in constant.group] == given["group"]["index"][beat].tolist()
        assert f"{constant.mask:0100b}"[::-1] == "".join(map(str, given["mask"][beat]))
        assert constant.wide == given["wide"][beat]


@pytest.mark.parametrize("beats", [0, 1, 7])
def test_unpack_undoes_pack(beats):
    given = values(np.random.default_rng(0), beats)

    got = unpack(LAYOUT, pack(LAYOUT, given))

    compare("o", got, given)


def test_bits_of_narrow_and_wide_fields():
    narrow = as_bits(np.array([[5], [8]]), 4)

    assert narrow.tolist() == [[[True, False, True, False]], [[False, False, False, True]]]
    assert as_bits(np.ones((2, 100)), 100).shape == (2, 100)


@pytest.mark.parametrize(
    "shape, given, message",
    [
        (8, np.array([3, 256]), "Field of 8 bits cannot hold 256"),
        (8, np.array([-1]), "Field of 8 bits cannot hold 18446744073709551615"),
        (
            data.StructLayout({"a": 1, "b": 1}),
            {"a": [0]},
            r"Fields must be \['a', 'b'\], not \['a'\]",
        ),
    ],
)
def test_values_that_do_not_fit(shape, given, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        pack(shape, given)


class Block(wiring.Component):
    """Layouts of the streams under test."""

    i: In(stream.Signature(4))
    o: Out(stream.Signature(4))
    free: Out(stream.Signature(4, always_ready=True))


class Port:
    """Stands for a port's handle."""

    def __init__(self, value):
        self.value = value

    def __len__(self):
        return 4


@pytest.fixture
def env():
    names = ("i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready")
    ports = {name: Port("0") for name in (*names, "free__payload", "free__valid")}
    return SimpleNamespace(
        component=Block(), dut=SimpleNamespace(**ports), rng=np.random.default_rng(0)
    )


def offer(env, cycle, sink, valid, payload):
    """One clock of an output stream."""
    sink._drive()
    env.dut.o__valid.value, env.dut.o__payload.value = valid, payload
    sink._sample(cycle)


def test_sink_takes_what_is_valid_while_ready(env):
    sink = Sink(env, "o", [True, False, True, True])

    for cycle, beat in enumerate([("1", "0001"), ("1", "0010"), ("1", "0010"), ("0", "XXXX")]):
        offer(env, cycle, sink, *beat)

    assert sink.accepted == ["0001", "0010"]
    assert sink.cycles == [0, 2]
    assert sink.pending() == 2


@pytest.mark.parametrize(
    "second, message",
    [
        (("0", "0001"), "o: valid fell at clock 1, not taken"),
        (("1", "0011"), "o: payload changed at clock 1"),
        (("X", "0001"), "o__valid is X at clock 1"),
    ],
)
def test_sink_finds_broken_rules(env, second, message):
    sink = Sink(env, "o", [False, False])
    offer(env, 0, sink, "1", "0001")

    with pytest.raises(AssertionError, match=message):
        offer(env, 1, sink, *second)


def test_sink_finds_unknown_bits_of_a_valid_payload(env, monkeypatch):
    monkeypatch.setattr(environment, "_FOUR_STATE", True)
    sink = Sink(env, "o", "never")
    offer(env, 0, sink, "0", "XXXX")

    with pytest.raises(AssertionError, match=r"o: unknown payload bits \[3, 0\] at clock 1"):
        offer(env, 1, sink, "1", "X10Z")


@pytest.mark.parametrize("valid", ["1", "X"])
def test_sink_wants_no_valid_in_reset(env, valid):
    env.dut.o__valid.value = valid

    with pytest.raises(AssertionError, match=f"o__valid is {valid} in reset"):
        Sink(env, "o", "never")._quiet()


def test_late_sink_is_ready_only_after_valid(env):
    sink = Sink(env, "o", "late")
    ready = []
    for cycle, valid in enumerate("0011011"):
        offer(env, cycle, sink, valid, "0001")
        ready.append(int(env.dut.o__ready.value))

    assert ready == [0, 0, 0, 1, 0, 0, 1]
    assert sink.cycles == [3, 6]


def test_sink_of_an_always_ready_stream_cannot_stall(env):
    with pytest.raises(ValueError, match="^Stream free is always ready: its sink cannot stall$"):
        Sink(env, "free", "random")


def test_source_holds_its_beat_until_ready(env):
    source = Source(env, "i", [True, True, False, True])
    source.send(np.array([1, 2, 3]))
    offered = []
    for cycle, ready in enumerate("0110011"):
        source._drive()
        offered.append(env.dut.i__payload.value if env.dut.i__valid.value else None)
        env.dut.i__ready.value = ready
        source._sample(cycle)

    assert offered == ["0001", "0001", "0010", None, "0011", "0011", None]
    assert source.cycles == [1, 2, 5]


def test_source_finds_unknown_ready(env):
    source = Source(env, "i", "never")
    source.send([1])
    source._drive()
    env.dut.i__ready.value = "X"

    with pytest.raises(AssertionError, match="i__ready is X at clock 9"):
        source._sample(9)


@pytest.mark.parametrize("four_state, idle", [(False, "1010"), (True, "XXXX")])
def test_payload_is_worthless_while_not_valid(env, monkeypatch, four_state, idle):
    monkeypatch.setattr(environment, "_FOUR_STATE", four_state)
    source = Source(env, "i", "never")
    source.send([5])
    source._drive()
    env.dut.i__ready.value = "1"
    source._sample(0)

    source._drive()

    assert (env.dut.i__valid.value, env.dut.i__payload.value) == (0, idle)


@pytest.mark.parametrize(
    "stall, low, high", [("random", 0.1, 0.9), ("bursts", 0.3, 0.7), ("sparse", 0.03, 0.1)]
)
def test_stalls_go_and_wait(stall, low, high):
    pattern = environment._going(stall, np.random.default_rng(1))
    assert pattern is not None

    share = np.mean([next(pattern) for _ in range(20_000)])

    assert low <= share <= high


def test_unknown_stall():
    known = ", ".join(STALLS)

    with pytest.raises(ValueError, match=f"^Unknown stall 'often': known are {known}, late$"):
        environment._going("often", np.random.default_rng(0))


def test_difference_is_told_with_beat_entry_field_and_replay(monkeypatch):
    monkeypatch.setattr(environment, "BLOCK", "ris")
    monkeypatch.setattr(environment, "SEED", 7)
    expected = {"key": np.zeros((9, 4), int), "index": np.zeros((9, 4), int)}
    got = {"key": np.zeros((9, 4), int), "index": np.zeros((9, 4), int)}
    got["key"][5, 0], got["index"][3, 2] = 255, 16

    with pytest.raises(AssertionError) as error:
        compare("o", got, expected)

    assert str(error.value) == (
        "o beat 3, entry 2, index: expected 0x0, got 0x10 (2 of 9 beats differ; seed 7; "
        "replay: kvsmith verify ris --seed 7 --simulator verilator)"
    )


@pytest.mark.parametrize(
    "got, message",
    [
        ({"a": np.zeros(2)}, r"o has no \['b'\]"),
        ({"a": np.zeros(3), "b": np.zeros(2)}, r"o a: expected shape \(2,\), got \(3,\); replay: "),
    ],
)
def test_missing_and_surplus_beats_are_differences(got, message):
    with pytest.raises(AssertionError, match=f"^{message}"):
        compare("o", got, {"a": np.zeros(2), "b": np.zeros(2)})


@pytest.mark.parametrize(
    "taken, given, message",
    [
        ([3, 4, 6], [5, 6, 8], "i: expected beats in clocks 3 to 5, one in each, got [3, 4, 6]"),
        ([3, 4, 5], [6, 7, 8], "o: expected beats in clocks 5 to 7, one in each, got [6, 7, 8]"),
        ([3, 4, 5], [5, 6], "o: expected beats in clocks 5 to 7, one in each, got [5, 6]"),
    ],
)
def test_missed_clock_and_wrong_latency_are_found(env, taken, given, message):
    source, sink = Source(env, "i", "never"), Sink(env, "o", "never")
    source.cycles, sink.cycles = [3, 4, 5], [5, 6, 7]
    check_full_rate(source, sink, 2)

    source.cycles, sink.cycles = taken, given
    with pytest.raises(AssertionError) as error:
        check_full_rate(source, sink, 2)
    assert str(error.value).startswith(message)
