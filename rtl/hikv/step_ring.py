"""Steps that were answered and whose Q or P is still to come."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import Grouping, command_layout, response_layout

__all__ = ["StepRing", "step_layout"]


def step_layout(p: HikvSelectorParameters) -> data.StructLayout:
    """One query head, as far as its selections need to know it.

    ``aborted``: the context was aborted meanwhile; what is selected is not to be used.
    """
    command, response = command_layout(p), response_layout(p)
    return data.StructLayout({
        "context": command["context"].shape,
        "query": command["query"].shape,
        "tag": p.tag_width,
        "first": 1,
        "last": 1,
        "occupied": response["occupied"].shape,
        "b_iik": range(p.head_dim + 1),
        "b_iiv": range(p.head_dim + 1),
        "grouping": Grouping,
        "aborted": 1,
    })


class StepRing(wiring.Component):
    """Gives each step to the path of Q, then to that of P, and knows whose P is not through.

    Steps go to both paths in order; to that of P not before that of Q is through with it. A step
    stays on ``o_q`` or ``o_p`` while the path works on it, and makes room when it leaves ``o_p``.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i, o_q, o_p : stream of :func:`step_layout`
    context
        Context that is asked about.
    pending : ``Out(1)``
        A step of that context is in here.
    abort, abort_context
        Marks the steps of that context.
    empty : ``Out(1)``
        No step is in here.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        step = step_layout(p)
        context = step["context"].shape
        super().__init__({
            "i": In(stream.Signature(step)),
            "o_q": Out(stream.Signature(step)),
            "o_p": Out(stream.Signature(step)),
            "context": In(context),
            "pending": Out(1),
            "abort": In(1),
            "abort_context": In(context),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        depth = self.parameters.steps_in_flight
        rows = Signal(data.ArrayLayout(step_layout(self.parameters), depth), reset_less=True)
        busy, waits_for_q = Signal(depth), Signal(depth)
        tail, q_place, p_place = (Signal(range(depth), name=n) for n in ("tail", "q", "p"))

        def following(place):
            return Mux(place == depth - 1, 0, place + 1)

        m.d.comb += [
            self.i.ready.eq(~busy.bit_select(tail, 1)),
            self.o_q.valid.eq(waits_for_q.bit_select(q_place, 1)),
            self.o_q.payload.eq(rows[q_place]),
            self.o_p.valid.eq((busy & ~waits_for_q).bit_select(p_place, 1)),
            self.o_p.payload.eq(rows[p_place]),
            self.pending.eq(
                Cat(busy[n] & (rows[n].context == self.context) for n in range(depth)).any()
            ),
            self.empty.eq(~busy.any()),
        ]

        for n in range(depth):
            with m.If(self.abort & (rows[n].context == self.abort_context)):
                m.d.sync += rows[n].aborted.eq(1)
        with m.If(self.o_p.valid & self.o_p.ready):
            m.d.sync += [busy.bit_select(p_place, 1).eq(0), p_place.eq(following(p_place))]
        with m.If(self.o_q.valid & self.o_q.ready):
            m.d.sync += [waits_for_q.bit_select(q_place, 1).eq(0), q_place.eq(following(q_place))]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                rows[tail].eq(self.i.payload),
                busy.bit_select(tail, 1).eq(1),
                waits_for_q.bit_select(tail, 1).eq(1),
                tail.eq(following(tail)),
            ]

        return m
