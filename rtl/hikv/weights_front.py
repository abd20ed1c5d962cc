"""Entry of P: finds the rows that each beat belongs to, and checks its length."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.interface import Cause
from rtl.hikv.rows import Rows
from rtl.hikv.scoreboard_layouts import cause_of_layout, context_shape, weights_row_layout
from rtl.hikv.scores import beat_layout

__all__ = ["WeightsFront", "p_layout"]


def p_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One beat of P of one query head; ``final``: of the last head of the step."""
    return data.StructLayout({
        "context": context_shape(p),
        "values": data.ArrayLayout(16, p.lanes),
        "last": 1,
        "final": 1,
    })


class WeightsFront(wiring.Component):
    """Gives each beat of P its row; drops sequences that no step waits for.

    A sequence that is too short or too long loses its context from the beat on that shows it, and
    what is left of it is dropped.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i : ``In(stream)``
        Of :func:`p_layout`.
    o : ``Out(stream)``
        Of :func:`rtl.hikv.scores.beat_layout`.
    set, set_context, set_row
        The rows of the step of a context; no beat enters in this clock.
    looking : ``Out(context)``, expects : ``In(1)``
        Context of the beat that is looked up, and whether a step of it waits for P.
    received : ``Out(1)``
        The last beat of a step's P, of the context ``looking``, has been looked up.
    unexpected : ``Out(1)``
        A sequence that no step waits for begins; it is dropped.
    lost : ``Out(cause_of_layout)``
        Context whose P had a wrong length, one clock later.
    kills : ``In``
        Per context, that it is lost.
    error, error_context
        Parity of the rows of a context.
    idle : ``Out(1)``
        No beat is in here.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(p_layout(p))),
            "o": Out(stream.Signature(beat_layout(p))),
            "set": In(1),
            "set_context": In(context_shape(p)),
            "set_row": In(weights_row_layout(p)),
            "looking": Out(context_shape(p)),
            "expects": In(1),
            "received": Out(1),
            "unexpected": Out(1),
            "lost": Out(cause_of_layout(p)),
            "kills": In(p.contexts),
            "error": Out(1),
            "error_context": Out(context_shape(p)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        layout = weights_row_layout(p)
        m.submodules.rows = rows = Rows(
            max(2, p.contexts), 1, layout.size, parity=p.parity, storage=p.storage
        )
        held = Signal(p_layout(p), reset_less=True)
        full, inside, follows = Signal(), Signal(), Signal()
        next_row = Signal(range(p.score_rows), reset_less=True)
        beats = Signal(range(p.score_rows), reset_less=True)
        takes, moves, accepted, goes, at_end = (Signal() for _ in range(5))
        found = data.View(layout, rows.read_data)
        row = Mux(inside, next_row, found.base)
        beat = Mux(inside, beats, 0)

        m.d.comb += [
            self.i.ready.eq(~self.set & (~full | moves)),
            takes.eq(self.i.valid & self.i.ready),
            rows.en.eq(takes | self.set),
            rows.write.eq(self.set),
            rows.addr.eq(Mux(self.set, self.set_context, self.i.payload.context)),
            rows.write_data.eq(self.set_row.as_value()),
            self.looking.eq(held.context),
            accepted.eq(Mux(inside, follows, self.expects)),
            at_end.eq(beat == found.more),
            goes.eq(full & accepted & (at_end == held["last"])),
            moves.eq(full & (~goes | ~self.o.valid | self.o.ready)),
            self.received.eq(goes & moves & held["last"] & held.final),
            self.unexpected.eq(moves & ~inside & ~self.expects),
            self.lost.cause.eq(Cause.P_LENGTH),
            self.error.eq(rows.error & accepted),
            self.error_context.eq(held.context),
            self.idle.eq(~full & ~self.o.valid & ~self.lost.valid),
        ]

        m.d.sync += [
            self.lost.valid.eq(full & accepted & (at_end != held["last"])),
            self.lost.context.eq(held.context),
        ]
        with m.If(~full | moves):
            m.d.sync += full.eq(takes)
        with m.If(takes):
            m.d.sync += held.eq(self.i.payload)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += self.o.valid.eq(goes)
        with m.If(goes & moves):
            m.d.sync += [
                self.o.payload.row.eq(row),
                self.o.payload.values.eq(held.values),
                self.o.payload.context.eq(held.context),
                self.o.payload.end.eq(held["last"] & held.final),
            ]
        with m.If(self.kills.bit_select(held.context, 1)):
            m.d.sync += follows.eq(0)
        with m.Elif(moves):
            m.d.sync += follows.eq(goes)
        with m.If(moves):
            m.d.sync += [
                inside.eq(~held["last"]),
                next_row.eq(row + 1),
                beats.eq(beat + 1),
            ]

        return m
