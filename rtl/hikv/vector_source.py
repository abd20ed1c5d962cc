"""Border of Q and P: wide beats become groups of values, as many as were announced."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import weights_layout

__all__ = ["VectorSource", "part_layout"]


def part_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """``ways`` values; ``error``: the vector was found too short or too long."""
    return data.StructLayout({"values": data.ArrayLayout(unsigned(16), p.ways), "error": 1})


class VectorSource(wiring.Component):
    """Cuts the beats of a vector into groups, and makes every vector as long as announced.

    A vector of ``length`` values gives ``ceil(length / ways)`` groups, and, if ``copies``,
    ``ceil(length / lanes)`` beats on ``o_wide``, whatever comes: missing beats are +0, beats
    beyond are discarded up to and including ``last``. One group per clock.

    Parameters
    ----------
    parameters : HikvSelectorParameters
    limit : int
        Longest vector.
    copies : bool
        Whether there is ``o_wide``.

    Members
    -------
    i : stream of :func:`rtl.hikv.interface.weights_layout`
    i_length : stream of values per vector, at least 1
        Taken when the vector is through.
    o : stream of :func:`part_layout`
    o_wide : stream of :func:`rtl.hikv.interface.weights_layout`
    fault : ``Out(1)``
        The vector is found to be too short or too long; one clock.
    """

    def __init__(self, parameters: HikvSelectorParameters, *, limit: int, copies: bool):
        self.parameters = p = parameters
        self.limit = limit
        self.copies = copies
        wide = stream.Signature(weights_layout(p))
        super().__init__({
            "i": In(wide),
            "i_length": In(stream.Signature(range(limit + 1))),
            "o": Out(stream.Signature(part_layout(p))),
            "fault": Out(1),
        } | ({"o_wide": Out(wide)} if copies else {}))

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        ways, lanes = exact_log2(p.ways), exact_log2(p.lanes)
        parts = p.lanes // p.ways
        held = Signal(data.ArrayLayout(16 * p.ways, parts), reset_less=True)
        wrong = Signal(reset_less=True)
        part = Signal(range(max(2, parts)), reset_less=True)
        parts_left = Signal(range((self.limit >> ways) + 2), reset_less=True)
        beats_left = Signal(range((self.limit >> lanes) + 2), reset_less=True)
        surplus, padding = Signal(reset_less=True), Signal()
        # Whether the beat held has groups left to give, and is still wanted on `o_wide`.
        cuts, copying = Signal(), Signal()

        last = self.i.payload.last
        gives, ends, loads = Signal(), Signal(), Signal()
        final, room, copied = Signal(), Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(cuts),
            self.o.payload.values.eq(held[part] if parts > 1 else held[0]),
            self.o.payload.error.eq(wrong),
            gives.eq(cuts & self.o.ready),
            ends.eq(gives & ((part == parts - 1) | (parts_left == 1))),
            copied.eq(~copying),
            room.eq((~cuts | ends) & copied),
            final.eq(beats_left == 1),
            self.fault.eq(loads & ~padding & (last != final)),
        ]
        if self.copies:
            m.d.comb += [
                self.o_wide.valid.eq(copying),
                self.o_wide.payload.values.eq(Value.cast(held)),
                self.o_wide.payload.last.eq(beats_left == 0),
                copied.eq(~copying | self.o_wide.ready),
            ]
            with m.If(copied):
                m.d.sync += copying.eq(0)

        with m.If(ends):
            m.d.sync += cuts.eq(0)
        with m.If(gives):
            m.d.sync += [part.eq(part + 1), parts_left.eq(parts_left - 1)]
        with m.If(loads):
            m.d.sync += [
                held.eq(Mux(padding, 0, self.i.payload.values.as_value())),
                beats_left.eq(beats_left - 1),
                part.eq(0),
                cuts.eq(1),
                copying.eq(int(self.copies)),
            ]
        with m.If(self.fault):
            m.d.sync += [wrong.eq(1), padding.eq(last), surplus.eq(~last)]

        with m.FSM():
            with m.State("START"):
                length = self.i_length.payload
                m.d.sync += [
                    parts_left.eq((length + (p.ways - 1)) >> ways),
                    beats_left.eq((length + (p.lanes - 1)) >> lanes),
                    wrong.eq(0),
                    surplus.eq(0),
                    padding.eq(0),
                ]
                with m.If(self.i_length.valid):
                    m.next = "FLOW"

            with m.State("FLOW"):
                wanted = room & (beats_left != 0)
                m.d.comb += [
                    self.i.ready.eq(wanted & ~padding),
                    loads.eq(wanted & (padding | self.i.valid)),
                ]
                with m.If(room & (beats_left == 0)):
                    m.d.comb += self.i_length.ready.eq(~surplus)
                    m.next = "START"
                    with m.If(surplus):
                        m.next = "DISCARD"

            with m.State("DISCARD"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid & last):
                    m.d.comb += self.i_length.ready.eq(1)
                    m.next = "START"

        return m
