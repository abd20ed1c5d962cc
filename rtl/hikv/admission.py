"""A decode step: who leaves the recent bank, where the newcomer goes (HiKV, III)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.interface import Cause
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.scoreboard_layouts import (
    budget_row_layout,
    cause_of_layout,
    important_mark,
    lane_bits,
    minimum_layout,
    outcome_layout,
    state_layout,
    weights_row_layout,
)
from rtl.hikv.scores import access_layout
from rtl.sorting.sort_key import EMPTY

__all__ = ["Admission", "replace_layout"]


def replace_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Entry that takes the place of the minimum in the heap of a budget."""
    return data.StructLayout({"budget": budget_row_layout(p), "entry": minimum_layout(p)})


class Admission(wiring.Component):
    """Runs one decode step, in a fixed number of clocks but for the heap's readiness.

    Clock 1 (after ``start``) reads the oldest token's score, clock 3 decides, clock 4 has the
    response and writes.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        A step was accepted and its rows are being read.
    cause : ``In(Cause)``
        In the clock after ``start``: why there is nothing to do.
    lost : ``In(cause_of_layout)``
        From then on: the context is lost meanwhile.
    budget, state, minimum : ``In``
        Rows of the context, in the clock after ``start``.
    score_row, ring_row : ``In``
        Rows read, the clock after.
    access, ring : ``Out``
        Accesses to the scores and to the ring.
    busy : ``Out(1)``
    o : ``Out(stream)``
        Of :func:`replace_layout`: the promotion.
    respond, outcome
        The response, for one clock, two clocks before the last write.
    writes, new_state, weights_row
        The context's new state and the rows of its P, for one clock.
    promotes, steps : ``Out(1)``
        With ``writes``: a new minimum is to come; P is to come (not if the context was lost).
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "cause": In(Cause),
            "lost": In(cause_of_layout(p)),
            "budget": In(budget_row_layout(p)),
            "state": In(state_layout(p)),
            "minimum": In(minimum_layout(p)),
            "score_row": In(data.ArrayLayout(p.score_width, p.lanes)),
            "ring_row": In(data.ArrayLayout(p.slot_width, p.lanes)),
            "access": Out(access_layout(p)),
            "ring": Out(ring_access_layout(p)),
            "busy": Out(1),
            "reserve": Out(1),
            "o": Out(stream.Signature(replace_layout(p))),
            "respond": Out(1),
            "outcome": Out(outcome_layout(p)),
            "writes": Out(1),
            "new_state": Out(state_layout(p)),
            "weights_row": Out(weights_row_layout(p)),
            "promotes": Out(1),
            "steps": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        looks, fetches, decides, admits, marks = (
            Signal(name=name) for name in ("looks", "fetches", "decides", "admits", "marks")
        )
        budget, state, minimum = (
            Signal(layout(p), name=name, reset_less=True)
            for name, layout in (("budget", budget_row_layout), ("state", state_layout),
                                 ("minimum", minimum_layout))
        )
        goes = looks & (self.cause == Cause.NONE)

        with m.If(looks):
            m.d.sync += [
                budget.eq(self.budget),
                state.eq(self.state),
                minimum.eq(self.minimum),
            ]
        m.d.sync += [
            looks.eq(self.start),
            fetches.eq(goes),
            decides.eq(fetches),
            admits.eq(decides),
            marks.eq(admits),
        ]
        full, occupied, score, slot = (
            Signal(shape, name=name, reset_less=True)
            for name, shape in (("full", 1), ("occupied", range(p.max_slots + 1)),
                                ("score", p.score_width), ("slot", p.slot_width))
        )
        next_place = self._next_place(m, budget, state)
        with m.If(fetches):
            m.d.sync += [
                full.eq(state.recent == budget.cap_recent),
                occupied.eq(state.recent + state.important),
                score.eq(self.score_row[state.oldest[:lane_bits(p)]]),
            ]
        outcome = self._decide(m, full, occupied, score, state, minimum)
        with m.If(decides):
            self._renew(m, outcome, budget, state, full, next_place, score, slot)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        self._access(m, looks, admits, marks, budget, state, slot)
        self._ring(m, fetches, admits, budget, state, full, next_place, slot)
        lost = Signal(Cause, reset_less=True)
        spoilt = Mux(looks, self.cause, Mux(self.lost.valid, self.lost.cause, lost))
        m.d.comb += [
            self.busy.eq(looks | fetches | decides | admits | marks | self.o.valid),
            # The ports are also taken in the clock after `admits`: marks follow without a gap.
            self.reserve.eq(self.start | decides | admits),
            self.respond.eq(decides | (looks & ~goes)),
            self.writes.eq(admits),
            self.outcome.eq(outcome),
        ]
        with m.If(spoilt != Cause.NONE):
            m.d.comb += self.outcome.eq(0), self.outcome.cause.eq(spoilt)

        with m.If(looks):
            m.d.sync += lost.eq(Cause.NONE)
        with m.If(self.lost.valid):
            m.d.sync += lost.eq(self.lost.cause)
        with m.If(decides):
            m.d.sync += self.steps.eq(spoilt == Cause.NONE)

        return m

    def _next_place(self, m, budget, state):
        """Place of the token that is the oldest once this step's has left a full ring."""
        place = Signal(range(max(2, self.parameters.max_slots)))
        after = state.place + 1
        m.d.comb += place.eq(Mux(after == budget.cap_recent, 0, after))
        return place

    def _decide(self, m, full, occupied, score, state, minimum):
        """Outcome of the step."""
        outcome = Signal(outcome_layout(self.parameters))
        room = minimum.key == EMPTY
        key = Cat(score[:-1], 1)
        # Of equal keys the lower slot ranks higher.
        above = Cat(~state.oldest, key) > Cat(~minimum.slot, minimum.key)
        m.d.comb += [
            outcome.promoted.eq(full & above),
            outcome.evicted.eq(full & ~(above & room)),
            outcome.slot.eq(
                Mux(outcome.evicted, Mux(above, minimum.slot, state.oldest), occupied)
            ),
            outcome.occupied.eq(Mux(outcome.evicted, occupied, occupied + 1)),
            outcome.cause.eq(Cause.NONE),
        ]
        return outcome

    def _renew(self, m, outcome, budget, state, full, next_place, score, slot):
        """Load what is written: the state, the rows of P, and the promotion."""
        p = self.parameters
        following = self.ring_row[next_place[:lane_bits(p)]]
        lone = next_place == state.place
        left = Mux(lone, outcome.slot, following)
        first = Mux(state.recent == 0, outcome.slot, state.oldest)
        m.d.sync += [
            self.new_state.recent.eq(state.recent + ~full),
            self.new_state.important.eq(state.important + (outcome.promoted & ~outcome.evicted)),
            self.new_state.place.eq(Mux(full, next_place, 0)),
            self.new_state.oldest.eq(Mux(full, left, first)),
            self.weights_row.base.eq(budget.score_base),
            self.weights_row.more.eq((outcome.occupied - 1)[:p.slot_width] >> lane_bits(p)),
            self.promotes.eq(outcome.promoted),
            slot.eq(outcome.slot),
            self.o.valid.eq(outcome.promoted),
            self.o.payload.budget.eq(budget),
            self.o.payload.entry.key.eq(Cat(score[:-1], 1)),
            self.o.payload.entry.slot.eq(state.oldest),
        ]

    def _access(self, m, looks, admits, marks, budget, state, newcomer):
        """Access the scores: the oldest token's row, the newcomer's lane, then the mark."""
        p = self.parameters
        slot = Mux(looks, self.state.oldest, Mux(marks, state.oldest, newcomer))
        base = Mux(looks, self.budget.score_base, budget.score_base)
        m.d.comb += [
            self.access.valid.eq(looks & (self.cause == Cause.NONE) | admits
                                 | (marks & self.promotes)),
            self.access.row.eq(base + (slot >> lane_bits(p))),
            self.access.write.eq(~looks),
            self.access.lane.eq(slot),
            self.access.score.eq(Mux(marks, important_mark(p), 0)),
        ]

    def _ring(self, m, fetches, admits, budget, state, full, next_place, newcomer):
        """Access the ring: read who is the oldest next, write the newcomer's place."""
        p = self.parameters
        place = Mux(fetches, next_place, Mux(full, state.place, state.recent))
        m.d.comb += [
            self.ring.valid.eq(fetches | admits),
            self.ring.row.eq(budget.ring_base + (place >> lane_bits(p))),
            self.ring.write.eq(admits << place[:lane_bits(p)]),
            self.ring.slots.as_value().eq(newcomer.replicate(p.lanes)),
        ]
