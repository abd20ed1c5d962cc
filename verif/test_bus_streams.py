# amaranth: UnusedElaboratable=no
"""Unit tests of AXI4-Stream ports and of the clock enable, in the Amaranth simulator."""

import re

import pytest
from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rtl.bus.activity import Activity
from rtl.bus.axi_stream import AxiStream, byte_layout, flat, flat_members
from verif import sim

SHAPE = data.StructLayout({
    "context": 3, "values": data.ArrayLayout(5, 3), "last": 1, "mask": 11, "end": 1,
})  # fmt: skip


def test_every_field_and_element_starts_at_a_byte():
    layout = byte_layout(SHAPE, "last")

    places = {name: (field.offset, field.width) for name, field in layout}
    assert places == {"context": (0, 3), "values": (8, 24), "mask": (32, 11), "end": (48, 1)}
    assert layout.size == 56
    assert layout["values"].shape == data.ArrayLayout(8, 3)


class Through(wiring.Component):
    """AXI4-Stream in, AXI4-Stream out, and the plain streams between them apart."""

    def __init__(self):
        self.arriving, self.leaving = AxiStream(SHAPE, "last"), AxiStream(SHAPE, "last", "end")
        super().__init__({
            **flat_members("s_axis", self.arriving, output=False),
            **flat_members("m_axis", self.leaving, output=True),
            "enable": In(1),
            "o": Out(stream.Signature(SHAPE)),
            "i": In(stream.Signature(SHAPE)),
        })

    def elaborate(self, platform):
        m = Module()
        self.arriving.receive(m, flat(self, "s_axis", self.arriving), self.o, self.enable)
        self.leaving.send(m, self.i, flat(self, "m_axis", self.leaving), self.enable)
        return m


VALUES = st.fixed_dictionaries({
    "context": st.integers(0, 7),
    "values": st.lists(st.integers(0, 31), min_size=3, max_size=3),
    "last": st.integers(0, 1),
    "mask": st.integers(0, 2047),
    "end": st.integers(0, 1),
})


@given(value=VALUES, valid=st.integers(0, 1), ready=st.integers(0, 1), enable=st.integers(0, 1))
@hypothesis_settings(max_examples=40)
def test_fields_keep_their_values_and_nothing_passes_while_disabled(value, valid, ready, enable):
    dut = Through()
    assert set(dut.signature.members) >= {"s_axis_tdata", "s_axis_tlast", "m_axis_tready"}
    packed = value["context"] | value["mask"] << 32 | value["end"] << 48
    packed |= sum(element << 8 * place for place, element in enumerate(value["values"], 1))

    async def bench(ctx):
        ctx.set(dut.enable, enable)
        ctx.set(dut.s_axis_tdata.as_value(), packed)
        ctx.set(dut.s_axis_tlast, value["last"])
        ctx.set(dut.s_axis_tvalid, valid)
        ctx.set(dut.o.ready, ready)
        ctx.set(dut.i.payload, value)
        ctx.set(dut.i.valid, valid)
        ctx.set(dut.m_axis_tready, ready)
        assert ctx.get(dut.o.payload) == SHAPE.const(value)
        assert ctx.get(dut.m_axis_tdata.as_value()) == packed
        assert ctx.get(dut.m_axis_tlast) == (value["last"] & value["end"])
        for out in (dut.o.valid, dut.m_axis_tvalid):
            assert ctx.get(out) == (valid & enable)
        for out in (dut.s_axis_tready, dut.i.ready):
            assert ctx.get(out) == (ready & enable)

    sim.run(Clocked(dut), bench)


class Clocked(Elaboratable):
    """A clock for what has no registers."""

    def __init__(self, inner):
        self.inner = inner

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = self.inner
        m.d.sync += Signal(name="ticks").eq(1)
        return m


@given(work=st.lists(st.integers(0, 1), min_size=1, max_size=40), idle=st.integers(2, 6))
@hypothesis_settings(max_examples=40)
def test_enabled_from_the_clock_after_work_for_idle_clocks(work, idle):
    dut = Activity(idle)
    work = [0] * idle + work  # enabled after reset

    async def bench(ctx):
        left = idle
        for now in work:
            ctx.set(dut.work, now)
            assert ctx.get(dut.enable) == (left > 0)
            ctx.set(dut.test_enable, 1)
            assert ctx.get(dut.enable) == 1
            ctx.set(dut.test_enable, 0)
            await ctx.tick()
            left = idle if now else max(0, left - 1)

    sim.run(dut, bench)


def test_rejects_too_few_idle_clocks():
    with pytest.raises(ValueError, match=f"^{re.escape('Idle clocks must be at least 2, not 1')}$"):
        Activity(1)
