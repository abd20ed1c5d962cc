"""Gives slots to tokens, each to one only."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.scoreboard_layouts import budget_row_layout, lane_bits
from rtl.hikv.scores import transfer_layout

__all__ = ["Claim", "claim_layout"]


def claim_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Slot of the context, and what becomes its score."""
    return data.StructLayout({"slot": p.slot_width, "score": p.score_width})


class Claim(wiring.Component):
    """Writes the scores of slots that were unoccupied; tells if one was not.

    One claim in two clocks if the ports are free: the next slot is read while the one before is
    written.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i : ``In(stream)``
        Of :func:`claim_layout`; the slot is one of the context's.
    budget : ``In(budget_row_layout)``
    scores, granted, row
        Access to the scores, whether it is done in this clock, and the row read.
    doubled : ``Out(1)``
        For one clock: a slot was claimed before; nothing is written.
    idle : ``Out(1)``
        All claims are done.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(claim_layout(p))),
            "budget": In(budget_row_layout(p)),
            "scores": Out(transfer_layout(p)),
            "granted": In(1),
            "row": In(data.ArrayLayout(p.score_width, p.lanes)),
            "doubled": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        lanes = lane_bits(p)
        given, asked, checked = (
            Signal(claim_layout(p), name=name, reset_less=True)
            for name in ("given", "asked", "checked")
        )
        waits, turn, writes, pending, fresh = (
            Signal(name=name) for name in ("waits", "turn", "writes", "pending", "fresh")
        )
        free, found_free, reads, done = Signal(), Signal(reset_less=True), Signal(), Signal()
        slot = Mux(turn, checked.slot, given.slot)

        m.d.comb += [
            # The claim before was not yet written when this row was read.
            free.eq(self.row[asked.slot[:lanes]].all()
                    & ~(writes & (asked.slot == checked.slot))),
            self.scores.valid.eq(Mux(turn, writes, waits)),
            self.scores.row.eq(self.budget.score_base + (slot >> lanes)),
            self.scores.write.eq(turn << slot[:lanes]),
            self.scores.data.eq(checked.score.replicate(p.lanes)),
            self.i.ready.eq(~waits),
            self.doubled.eq(fresh & ~free),
            self.idle.eq(~waits & ~turn & ~writes),
            reads.eq(waits & ~turn & self.granted),
            done.eq(turn & (self.granted | ~writes)),
        ]

        m.d.sync += fresh.eq(reads)
        with m.If(~waits):
            m.d.sync += [waits.eq(self.i.valid), given.eq(self.i.payload)]
        with m.If(fresh):
            m.d.sync += found_free.eq(free)
        with m.If(reads):
            m.d.sync += [asked.eq(given), pending.eq(1), turn.eq(1), waits.eq(0)]
        with m.Elif(writes & ~waits):
            m.d.sync += turn.eq(1)
        with m.If(done):
            m.d.sync += [
                turn.eq(0),
                pending.eq(0),
                checked.eq(asked),
                writes.eq(pending & Mux(fresh, free, found_free)),
            ]

        return m
