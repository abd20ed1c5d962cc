"""LOAD: a context as SAVE gave it."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.claim import claim_layout
from rtl.hikv.initialiser import is_bad_score
from rtl.hikv.interface import row_layout
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.saved_rows import entries_per_row, entry_rows, header_layout
from rtl.hikv.scoreboard_layouts import (
    budget_row_layout,
    important_mark,
    lane_bits,
    minimum_layout,
    state_layout,
)
from rtl.hikv.scores import transfer_layout
from rtl.hikv.section import Part, Section
from rtl.sorting.sort_key import EMPTY

__all__ = ["Loader"]


class _Phase(enum.Enum, shape=3):
    IDLE = 0
    WALK = 1
    STORE = 2
    FETCH = 3
    COMPARE = 4
    DRAIN = 5
    SETTLE = 6


class Loader(wiring.Component):
    """Takes the rows of a context, and checks that they fit one another and the budget.

    The slots of ring and heap are claimed one by one, so that none is doubled; the scores, which
    come last, must then have the bank's mark in just these slots. The heap is built anew from its
    entries. After a row that does not fit the others are dropped.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start : ``In(1)``
        The context is empty; ``budget`` is valid until ``done``.
    budget : ``In(budget_row_layout)``
    i : ``In(stream)``
        Of :func:`rtl.hikv.interface.row_layout`.
    o_claim, doubled, settled
        Slots for the tokens; one was claimed twice; all are written.
    o_important : ``Out(stream)``
        Entries of the heap.
    ring : ``Out(ring_access_layout)``
    scores, granted, row
        Access to the scores, whether it is done in this clock, and the row read.
    state : ``Out(state_layout)``
    done, failed : ``Out(1)``
        The stream is at its end, for one clock; the context is not to be used.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "budget": In(budget_row_layout(p)),
            "i": In(stream.Signature(row_layout(p))),
            "o_claim": Out(stream.Signature(claim_layout(p))),
            "doubled": In(1),
            "settled": In(1),
            "o_important": Out(stream.Signature(minimum_layout(p))),
            "ring": Out(ring_access_layout(p)),
            "scores": Out(transfer_layout(p)),
            "granted": In(1),
            "row": In(data.ArrayLayout(p.score_width, p.lanes)),
            "state": Out(state_layout(p)),
            "done": Out(1),
            "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.section = section = Section(p)
        phase = Signal(_Phase)
        broken, differs, wrong, row_done = Signal(), Signal(), Signal(), Signal()
        lane = Signal(range(max(p.lanes, p.ways)))
        tokens = Signal(range(p.max_slots + 1))
        state = self.state

        m.d.comb += [
            section.start.eq(self.start),
            section.budget.eq(self.budget),
            section.next.eq(row_done),
            self.i.ready.eq(row_done | (phase == _Phase.DRAIN)),
            self.done.eq((phase == _Phase.SETTLE) & self.settled),
            self.failed.eq(broken | (tokens != state.important)),
        ]

        with m.Switch(phase):
            with m.Case(_Phase.WALK):
                with m.If(self.i.valid):
                    self._walk(m, section, phase, lane, tokens, wrong, row_done)
            with m.Case(_Phase.STORE):
                with m.If(differs):
                    m.d.sync += [broken.eq(1), phase.eq(_Phase.DRAIN), differs.eq(0)]
                with m.Else():
                    m.d.comb += row_done.eq(self.granted | (section.part == Part.RING))
                    with m.If(row_done):
                        m.d.sync += phase.eq(_Phase.WALK)
            with m.Case(_Phase.FETCH):
                with m.If(self.granted):
                    m.d.sync += phase.eq(_Phase.COMPARE)
            with m.Case(_Phase.COMPARE):
                m.d.sync += [differs.eq(self._differs()), phase.eq(_Phase.STORE)]
            with m.Case(_Phase.DRAIN):
                with m.If(self.i.valid & self.i.payload["last"]):
                    m.d.sync += phase.eq(_Phase.SETTLE)
            with m.Case(_Phase.SETTLE):
                with m.If(self.settled):
                    m.d.sync += phase.eq(_Phase.IDLE)
        self._access(m, section, phase == _Phase.FETCH, (phase == _Phase.STORE) & ~differs)

        with m.If(row_done):
            m.d.sync += lane.eq(0)
            with m.If(self.i.payload["last"] != section.last):
                m.d.sync += broken.eq(1)
            with m.If(self.i.payload["last"]):
                m.d.sync += phase.eq(_Phase.SETTLE)
            with m.Elif(section.last):
                m.d.sync += phase.eq(_Phase.DRAIN)
        with m.Elif(wrong):
            m.d.sync += [broken.eq(1), phase.eq(_Phase.DRAIN)]
        with m.If(self.doubled):
            m.d.sync += broken.eq(1)
        with m.If(self.start):
            m.d.sync += [phase.eq(_Phase.WALK), broken.eq(0), lane.eq(0), tokens.eq(0)]
            m.d.sync += state.eq(0)

        return m

    def _walk(self, m, section, phase, lane, tokens, wrong, row_done):
        """One header, one place of the ring, one entry of the heap; or a row of scores."""
        p = self.parameters
        bits, state = self.i.payload.data, self.state
        claim = self.o_claim
        occupied = state.recent + state.important
        with m.Switch(section.part):
            with m.Case(Part.HEADER):
                m.d.comb += [wrong.eq(self._is_bad_header(bits)), row_done.eq(~wrong)]
                header = data.View(header_layout(p), bits[:header_layout(p).size])
                m.d.sync += [
                    state[name].eq(header[name]) for name in ("recent", "important", "place")
                ]
            with m.Case(Part.RING):
                place = Cat(lane[:lane_bits(p)], section.row)
                slot = bits.word_select(lane, p.slot_width)
                used = place < state.recent
                m.d.comb += [
                    wrong.eq(used & (slot >= occupied)),
                    claim.valid.eq(used & ~wrong),
                    claim.payload.slot.eq(slot),
                ]
                with m.If(claim.ready & (place == state.place)):
                    m.d.sync += state.oldest.eq(slot)
                with m.If(~used | (claim.ready & (lane == p.lanes - 1))):
                    m.d.sync += phase.eq(_Phase.STORE)
                with m.Elif(claim.ready):
                    m.d.sync += lane.eq(lane + 1)
            with m.Case(Part.HEAP):
                rows = data.View(entry_rows(p), bits[:entry_rows(p).size])
                entry = rows[lane]
                void = (entry.key == EMPTY) | entry.key.all()
                bad = Mux(void, ~entry.index.all(),
                          self._is_bad_entry(entry, occupied) | (tokens == state.important))
                m.d.comb += [
                    wrong.eq(bad),
                    claim.valid.eq(~void & ~bad & self.o_important.ready),
                    claim.payload.slot.eq(entry.index),
                    claim.payload.score.eq(important_mark(p)),
                    self.o_important.valid.eq(~void & ~bad & claim.ready),
                    self.o_important.payload.key.eq(entry.key),
                    self.o_important.payload.slot.eq(entry.index),
                ]
                moves = (void & ~bad) | (claim.ready & claim.valid)
                m.d.sync += tokens.eq(tokens + (claim.ready & claim.valid))
                with m.If(moves):
                    m.d.sync += lane.eq(lane + 1)
                    m.d.comb += row_done.eq(lane == entries_per_row(p) - 1)
            with m.Case(Part.SCORES):
                with m.If(self.settled):
                    m.d.sync += phase.eq(_Phase.FETCH)

    def _is_bad_header(self, bits):
        p = self.parameters
        layout = header_layout(p)
        header, budget = data.View(layout, bits[:layout.size]), self.budget
        full = header.recent == budget.cap_recent
        return (
            (header.cap_recent != budget.cap_recent)
            | (header.cap_important != budget.cap_important)
            | (header.recent > budget.cap_recent)
            | (header.important > budget.cap_important)
            | Mux(full, header.place >= budget.cap_recent, header.place != 0)
            | bits[layout.size:].any()
        )

    def _is_bad_entry(self, entry, occupied):
        """Whether a key is that of no score, or a slot is beyond the tokens there are."""
        score = Cat(entry.key[:-1], 0)
        return ~entry.key[-1] | is_bad_score(self.parameters, score) | (entry.index >= occupied)

    def _differs(self):
        """Whether a row of scores lacks the marks of the banks that claimed its slots."""
        p = self.parameters
        given = data.View(data.ArrayLayout(p.score_width, p.lanes), self.i.payload.data)
        differs = []
        for lane in range(p.lanes):
            claimed, score = self.row[lane], given[lane]
            differs.append(Mux(claimed[-1], score != claimed, is_bad_score(p, score)))
        return Cat(differs).any()

    def _access(self, m, section, fetches, stores):
        """Access ring and scores."""
        p = self.parameters
        in_scores = section.part == Part.SCORES
        m.d.comb += [
            self.ring.valid.eq(stores & (section.part == Part.RING)),
            self.ring.row.eq(self.budget.ring_base + section.row),
            self.ring.write.eq(~0),
            self.ring.slots.as_value().eq(self.i.payload.data),
            self.scores.valid.eq(fetches | (stores & in_scores)),
            self.scores.row.eq(self.budget.score_base + section.row),
            self.scores.write.eq(stores.replicate(p.lanes)),
            self.scores.data.eq(self.i.payload.data),
        ]
