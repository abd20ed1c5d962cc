"""INIT: a context after prefill."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.claim import claim_layout
from rtl.hikv.interface import initial_layout
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.scoreboard_layouts import (
    budget_row_layout,
    important_mark,
    lane_bits,
    minimum_layout,
    state_layout,
)
from rtl.sorting.sort_key import is_nan

__all__ = ["Initialiser", "is_bad_score"]


def is_bad_score(p: ScoreboardParameters, score) -> Value:
    """Whether a score is negative, NaN, or above what a fixed-point score saturates at."""
    if p.score_format == "ufix":
        return score > (1 << (p.int_bits + p.frac_bits)) - 2
    return score[-1] | is_nan(score)


class Initialiser(wiring.Component):
    """Gives every token of a stream its place in its bank.

    After a token that is not in order, the rest of the stream is dropped.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        The context is empty; ``budget`` is valid until ``done``.
    budget : ``In(budget_row_layout)``
    i : ``In(stream)``
        Of :func:`rtl.hikv.interface.initial_layout`.
    o_claim, doubled, settled
        Slots for the tokens; one was claimed twice; all are written.
    o_important : ``Out(stream)``
        Entries of the heap.
    ring : ``Out(ring_access_layout)``
    state : ``Out(state_layout)``
    done, failed : ``Out(1)``
        The stream is at its end, for one clock; the context is not to be used.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "i": In(stream.Signature(initial_layout(p))),
            "o_claim": Out(stream.Signature(claim_layout(p))),
            "doubled": In(1),
            "settled": In(1),
            "o_important": Out(stream.Signature(minimum_layout(p))),
            "ring": Out(ring_access_layout(p)),
            "state": Out(state_layout(p)),
            "done": Out(1),
            "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        token = self.i.payload
        active, ending, broken = Signal(), Signal(), Signal()
        highest = Signal(p.slot_width, reset_less=True)
        good, taken = Signal(), Signal()
        # The budget stands still, so that this may be a clock behind.
        slots = Signal(range(p.max_slots + 1), reset_less=True)
        m.d.sync += slots.eq(self.budget.cap_recent + self.budget.cap_important)
        entry, state = self.o_important, self.state
        occupied = state.recent + state.important

        m.d.comb += [
            good.eq(~broken & ~self._is_bad(token, slots)),
            self.o_claim.payload.slot.eq(token.slot),
            self.o_claim.payload.score.eq(Mux(token.important, important_mark(p), token.score)),
            entry.payload.key.eq(Cat(token.score[:-1], 1)),
            entry.payload.slot.eq(token.slot),
            self.o_claim.valid.eq(active & self.i.valid & good & (~token.important | entry.ready)),
            entry.valid.eq(active & self.i.valid & good & token.important & self.o_claim.ready),
            self.i.ready.eq(
                active & (~good | (self.o_claim.ready & (~token.important | entry.ready)))
            ),
            taken.eq(self.i.valid & self.i.ready),
            self.ring.valid.eq(taken & good & ~token.important),
            self.ring.row.eq(self.budget.ring_base + (state.recent >> lane_bits(p))),
            self.ring.write.eq(1 << state.recent[:lane_bits(p)]),
            self.ring.slots.as_value().eq(token.slot.replicate(p.lanes)),
            self.done.eq(ending & self.settled),
            # No slot is doubled, so that they are 0 to occupied - 1 if none is above.
            self.failed.eq(broken | (highest >= occupied)),
        ]

        with m.If(self.start):
            m.d.sync += [active.eq(1), broken.eq(0), highest.eq(0), state.eq(0)]
        with m.If(taken & good):
            with m.If(token.important):
                m.d.sync += state.important.eq(state.important + 1)
            with m.Else():
                m.d.sync += state.recent.eq(state.recent + 1)
            with m.If(~token.important & (state.recent == 0)):
                m.d.sync += state.oldest.eq(token.slot)
            with m.If(token.slot > highest):
                m.d.sync += highest.eq(token.slot)
        with m.If((taken & ~good) | self.doubled):
            m.d.sync += broken.eq(1)
        with m.If(taken & token["last"]):
            m.d.sync += [active.eq(0), ending.eq(1)]
        with m.If(self.done):
            m.d.sync += ending.eq(0)

        return m

    def _is_bad(self, token, slots):
        budget, state = self.budget, self.state
        room = Mux(token.important, state.important != budget.cap_important,
                   state.recent != budget.cap_recent)
        late = token.important & (state.recent != 0)
        return ~room | late | (token.slot >= slots) | is_bad_score(self.parameters, token.score)
