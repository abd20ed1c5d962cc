# amaranth: UnusedElaboratable=no
"""Unit tests of register maps, register file and AXI4-Lite slave, in the Amaranth simulator."""

import re
import shutil
import subprocess

import pytest
from amaranth import *
from amaranth.lib import wiring
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rtl.bus.axi_lite import AxiLiteSlave, Response
from rtl.bus.register_file import RegisterFile
from rtl.bus.register_map import Access, RegisterMap
from verif import sim

RDL = """
addrmap example {
    default regwidth = 32;
    reg {
        desc = "What this is.";
        default sw = r; default hw = na;
        field { desc = "A number."; } code[15:0] = 0xBEEF;
    } identification @ 0x0;
    reg {
        desc = "What it does.";
        default sw = rw; default hw = r;
        field { desc = "Straddles bytes."; } amount[11:4] = 0x5A;
        field { desc = "Highest bit."; } enable[31:31] = 0;
        field { desc = "Acts once."; sw = w; singlepulse; } go[0:0] = 0;
    } control @ 0x4;
    reg {
        desc = "What happened.";
        default hw = w;
        field {
            desc = "Four events."; sw = rw; onwrite = woclr; stickybit; precedence = hw;
        } flags[19:16] = 0;
        field { desc = "Now."; sw = r; } busy[0:0];
    } status @ 0x8;
    reg {
        desc = "How often.";
        default sw = rw; default hw = na; default onwrite = wclr; default precedence = hw;
        field { desc = "Starts over."; counter; } wraps[1:0] = 0;
        field { desc = "Stays."; counter; incrsaturate; } stays[9:8] = 0;
    } counts @ 0x10;
};
"""


@pytest.fixture(scope="module")
def description(tmp_path_factory):
    path = tmp_path_factory.mktemp("rdl") / "example.rdl"
    path.write_text(RDL)
    return RegisterMap.load(path)


def test_map_holds_the_description(description):
    found = {(r.name, f.name): (r.address, f.low, f.width, f.access) for r, f in description}

    assert found == {
        ("identification", "code"): (0, 0, 16, Access.CONSTANT),
        ("control", "go"): (4, 0, 1, Access.PULSE),
        ("control", "amount"): (4, 4, 8, Access.READ_WRITE),
        ("control", "enable"): (4, 31, 1, Access.READ_WRITE),
        ("status", "busy"): (8, 0, 1, Access.READ),
        ("status", "flags"): (8, 16, 4, Access.CLEAR),
        ("counts", "wraps"): (16, 0, 2, Access.COUNTER),
        ("counts", "stays"): (16, 8, 2, Access.COUNTER),
    }


def test_table_has_a_row_for_each_register_and_field(description):
    rows = description.markdown().splitlines()

    assert len(rows) == 2 + 4 + 8
    assert "| 0x004 | `control` | | | | | What it does. |" in rows
    assert "| | | 11:4 | `amount` | read, write | 0x5a | Straddles bytes. |" in rows


def test_header_compiles_and_agrees_with_the_map(description, tmp_path):
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("There is no gcc to compile the header with")
    (tmp_path / "example.h").write_text(description.c_header())
    lines = [
        f"_Static_assert(offsetof(example_t, {r.name}) == {r.address}, \"\");\n"
        f"_Static_assert(EXAMPLE__{r.name.upper()}__{f.name.upper()}_bm"
        f" == {(1 << f.width) - 1 << f.low}u, \"\");"
        for r, f in description
    ]
    (tmp_path / "check.c").write_text(
        "\n".join(["#include <stddef.h>", '#include "example.h"', *lines, "int main(void) {}"])
    )
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "check.c", "-o", "check"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "content, message",
    [
        ("field { sw = rw; hw = rw; } x[0:0] = 0;", "Field example.one.x must be one of "),
        (
            "field { sw = rw; hw = w; onwrite = woclr; stickybit; } x = 0;",
            "Field example.one.x must be one of constant; read; read, write; read, write 1",
        ),
        ("field { sw = bad; } x;", "bad.rdl must be a legal register description: "),
        ("regwidth = 16; field { sw = r; } x = 0;", "Register example.one must have 32 bits"),
    ],
)
def test_rejects_bad_descriptions(tmp_path, content, message):
    path = tmp_path / "bad.rdl"
    path.write_text(f"addrmap example {{ reg {{ {content} }} one @ 0; }};")

    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        RegisterMap.load(path)


class Model:
    """What software sees of the example's registers, clock by clock."""

    def __init__(self):
        self.amount, self.enable, self.go, self.flags, self.wraps, self.stays = 0x5A, 0, 0, 0, 0, 0

    def read(self, word, busy):
        """Outcome and data of a read."""
        values = {
            0: 0xBEEF,
            1: self.amount << 4 | self.enable << 31,
            2: busy | self.flags << 16,
            4: self.wraps | self.stays << 8,
        }
        known = word in values
        return (Response.OKAY if known else Response.DECODE_ERROR), values.get(word, 0)

    def clock(self, word, data, strobe, flags, wraps, stays):
        """Advance by a clock; a write has a word, else None; the outcome of the write."""
        mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
        writes = [mask if word == number else 0 for number in range(5)]
        self.amount = self._merge(self.amount, 4, 8, data, writes[1])
        self.enable = self._merge(self.enable, 31, 1, data, writes[1])
        self.go = data & writes[1] & 1
        self.flags = self.flags & ~((data & writes[2]) >> 16) & 15 | flags
        self.wraps = wraps if writes[4] & 3 else (self.wraps + wraps) % 4
        self.stays = stays if writes[4] & 0x300 else min(3, self.stays + stays)
        if word not in (0, 1, 2, 4):
            return Response.DECODE_ERROR
        return Response.SLAVE_ERROR if word == 0 else Response.OKAY

    @staticmethod
    def _merge(value, low, width, data, mask):
        covered = (mask >> low) & ((1 << width) - 1)
        return value & ~covered | data >> low & covered


WORDS = st.integers(0, 7)
CLOCKS = st.lists(
    st.tuples(
        st.none() | WORDS, st.integers(0, 2**32 - 1) | st.just(2**32 - 1), st.integers(0, 15),
        WORDS, st.integers(0, 15), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


@given(clocks=CLOCKS)
@hypothesis_settings(max_examples=60)
def test_register_file_follows_its_model(description, clocks):
    """Each clock a write, a read and events: they meet in every way; what comes in wins."""
    dut = RegisterFile(description)
    model = Model()

    async def bench(ctx):
        for write, data, strobe, read, flags, busy, wraps, stays in clocks:
            ctx.set(dut.bus.write, write is not None)
            ctx.set(dut.bus.write_address, write or 0)
            ctx.set(dut.bus.write_data, data)
            ctx.set(dut.bus.write_strobe, strobe)
            ctx.set(dut.bus.read_address, read)
            ctx.set(dut.status_flags_set, flags)
            ctx.set(dut.status_busy, busy)
            ctx.set(dut.counts_wraps_event, wraps)
            ctx.set(dut.counts_stays_event, stays)
            got = ctx.get(dut.bus.read_response), ctx.get(dut.bus.read_data)
            assert got == model.read(read, busy)
            assert ctx.get(dut.control_go) == model.go
            assert ctx.get(dut.control_amount) == model.amount
            assert ctx.get(dut.status_flags) == model.flags
            response = ctx.get(dut.bus.write_response)
            wanted = model.clock(write, data, strobe, flags, wraps, stays)
            assert write is None or response == wanted
            await ctx.tick()

    sim.run(dut, bench)


def test_an_event_in_the_clock_of_its_clearing_counts(description):
    dut = RegisterFile(description)
    found = []

    async def bench(ctx):
        ctx.set(dut.bus.write_address, 4)
        ctx.set(dut.bus.write_strobe, 15)
        ctx.set(dut.bus.read_address, 4)
        for write, event in ((0, 1), (0, 1), (1, 1), (0, 0), (1, 0), (0, 0)):
            ctx.set(dut.bus.write, write)
            ctx.set(dut.counts_wraps_event, event)
            ctx.set(dut.counts_stays_event, event)
            await ctx.tick()
            found.append(ctx.get(dut.bus.read_data))

    sim.run(dut, bench)

    assert found == [0x101, 0x202, 0x101, 0x101, 0, 0]


class Joined(wiring.Component):
    """Slave and register file."""

    def __init__(self, description):
        self.file = RegisterFile(description)
        self.slave = AxiLiteSlave(2 + self.file.bus.signature.address_width)
        super().__init__({"axi": wiring.In(self.slave.axi.signature.flip())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.file, m.submodules.slave = self.file, self.slave
        wiring.connect(m, self.slave.bus, self.file.bus)
        wiring.connect(m, wiring.flipped(self.axi), self.slave.axi)
        return m


async def channel(ctx, axi, name, idle, **payload):
    """Offer one transfer on an address or data channel after some clocks."""
    for _ in range(idle):
        await ctx.tick()
    for part, value in payload.items():
        ctx.set(getattr(axi, name + part), value)
    ctx.set(getattr(axi, f"{name}valid"), 1)
    await ctx.tick().until(getattr(axi, f"{name}ready"))
    ctx.set(getattr(axi, f"{name}valid"), 0)


GAPS = st.lists(st.integers(0, 6), min_size=8, max_size=8)


@given(address_gaps=GAPS, data_gaps=GAPS, response_gaps=GAPS)
@hypothesis_settings(max_examples=25)
def test_writes_take_effect_in_order_whatever_comes_first(
    description, address_gaps, data_gaps, response_gaps
):
    """Address and data in either order, slow responses: each write once, its answer in order."""
    dut = Joined(description)
    addresses = [4, 0, 20, 6, 4, 4, 8, 16]
    wanted = [Response.OKAY, Response.SLAVE_ERROR, Response.DECODE_ERROR, Response.SLAVE_ERROR,
              Response.OKAY, Response.OKAY, Response.OKAY, Response.OKAY]  # fmt: skip
    got, amounts = [], []

    async def send_addresses(ctx):
        for gap, address in zip(address_gaps, addresses, strict=True):
            await channel(ctx, dut.axi, "aw", gap, addr=address)

    async def send_data(ctx):
        for number, gap in enumerate(data_gaps):
            await channel(ctx, dut.axi, "w", gap, data=number << 4, strb=15)

    async def take(ctx):
        for gap in response_gaps:
            ctx.set(dut.axi.bready, 0)
            for _ in range(gap):
                await ctx.tick()
            ctx.set(dut.axi.bready, 1)
            (response,) = await ctx.tick().sample(dut.axi.bresp).until(dut.axi.bvalid)
            got.append(response)
            amounts.append(ctx.get(dut.file.control_amount))

    sim.run(dut, send_addresses, send_data, take)

    assert got == wanted
    # A response may be taken after the next write: it shows that one's amount at the latest.
    assert [a for a, b in zip(amounts, [None, *amounts], strict=False) if a != b][-1] == 5


@given(address_gaps=GAPS, data_gaps=GAPS)
@hypothesis_settings(max_examples=25)
def test_reads_answer_in_order_and_hold(description, address_gaps, data_gaps):
    dut = Joined(description)
    addresses = [0, 4, 12, 1, 8, 0, 28, 16]
    wanted = [(Response.OKAY, 0xBEEF), (Response.OKAY, 0x5A0), (Response.DECODE_ERROR, 0),
              (Response.OKAY, 0xBEEF), (Response.OKAY, 0), (Response.OKAY, 0xBEEF),
              (Response.DECODE_ERROR, 0), (Response.OKAY, 0)]  # fmt: skip
    got = []

    async def send(ctx):
        for gap, address in zip(address_gaps, addresses, strict=True):
            await channel(ctx, dut.axi, "ar", gap, addr=address)

    async def take(ctx):
        for gap in data_gaps:
            ctx.set(dut.axi.rready, 0)
            held = None
            for _ in range(gap):
                if ctx.get(dut.axi.rvalid):
                    now = ctx.get(dut.axi.rresp), ctx.get(dut.axi.rdata)
                    assert held in (None, now)
                    held = now
                await ctx.tick()
            ctx.set(dut.axi.rready, 1)
            got.append(
                await ctx.tick().sample(dut.axi.rresp, dut.axi.rdata).until(dut.axi.rvalid)
            )

    sim.run(dut, send, take)

    assert got == wanted


def test_an_access_every_second_clock_answered_two_clocks_after_it_is_taken(description):
    dut = Joined(description)
    taken, answered = {"aw": [], "ar": []}, {"b": [], "r": []}

    async def bench(ctx):
        for part in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            ctx.set(getattr(dut.axi, part), 1)
        for clock in range(20):
            for channel, clocks in taken.items():
                if ctx.get(getattr(dut.axi, f"{channel}ready")):
                    clocks.append(clock)
            for channel, clocks in answered.items():
                if ctx.get(getattr(dut.axi, f"{channel}valid")):
                    clocks.append(clock)
            await ctx.tick()

    sim.run(dut, bench)

    assert set(map(tuple, taken.values())) == {tuple(range(0, 20, 2))}
    assert set(map(tuple, answered.values())) == {tuple(range(2, 20, 2))}
