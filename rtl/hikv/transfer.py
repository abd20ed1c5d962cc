"""Commands that make a context anew, or move it."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.claim import Claim
from rtl.hikv.heap_fill import HeapFill
from rtl.hikv.heap_layouts import access_layout, build_layout, group_of
from rtl.hikv.initialiser import Initialiser
from rtl.hikv.interface import Cause, Operation, initial_layout, row_layout
from rtl.hikv.loader import Loader
from rtl.hikv.ring import ring_access_layout
from rtl.hikv.saver import Saver
from rtl.hikv.scoreboard_layouts import (
    budget_row_layout,
    cause_of_layout,
    outcome_layout,
    state_layout,
)
from rtl.hikv.scores import transfer_layout
from rtl.hikv.wipe import Wipe

__all__ = ["Transfer"]


class _Phase(enum.Enum, shape=3):
    IDLE = 0
    LOOK = 1
    WIPE = 2
    RUN = 3
    FILL = 4
    DRAIN = 5
    FINISH = 6


class Transfer(wiring.Component):
    """Runs CLEAR, INIT, LOAD and SAVE, one at a time.

    The streams of an INIT or LOAD are taken to their end whatever goes wrong. Accesses to the
    scores wait for those of P.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    start, operation
        A command was accepted and its rows are being read; which one, from the next clock on.
    cause : ``In(Cause)``
        In the clock after ``start``: why there is nothing to do.
    lost : ``In(cause_of_layout)``
        The context is lost meanwhile.
    budget, state : ``In``
        Rows of the context, in the clock after ``start``.
    busy : ``Out(1)``
    i_init, i_load, o_save : stream
    scores, granted, row, ring, ring_row
        Accesses to the scores and to the ring, and what they read.
    o_build, o_heap, i_heap : stream
        Nodes of a new heap; requests for nodes, and the nodes.
    discards : ``Out(1)``
        For one clock: the context will be made anew.
    respond, outcome, completes
        The response, for one clock; and whether the context has been made.
    writes, new_state, block
        With ``respond``: the new state is to be written; there is no important bank.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "start": In(1),
            "operation": In(Operation),
            "cause": In(Cause),
            "lost": In(cause_of_layout(p)),
            "budget": In(budget_row_layout(p)),
            "state": In(state_layout(p)),
            "busy": Out(1),
            "i_init": In(stream.Signature(initial_layout(p))),
            "i_load": In(stream.Signature(row_layout(p))),
            "o_save": Out(stream.Signature(row_layout(p))),
            "scores": Out(transfer_layout(p)),
            "granted": In(1),
            "row": In(data.ArrayLayout(p.score_width, p.lanes)),
            "ring": Out(ring_access_layout(p)),
            "ring_row": In(data.ArrayLayout(p.slot_width, p.lanes)),
            "o_build": Out(stream.Signature(build_layout(p))),
            "o_heap": Out(stream.Signature(access_layout(p))),
            "i_heap": In(stream.Signature(group_of(p))),
            "discards": Out(1),
            "respond": Out(1),
            "outcome": Out(outcome_layout(p)),
            "completes": Out(1),
            "writes": Out(1),
            "new_state": Out(state_layout(p)),
            "block": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        phase = Signal(_Phase)
        cause = Signal(Cause, reset_less=True)
        budget = Signal(budget_row_layout(p), reset_less=True)
        state = Signal(state_layout(p), reset_less=True)
        m.submodules.wipe = wipe = Wipe(p)
        m.submodules.fill = fill = HeapFill(p)
        m.submodules.claim = claim = Claim(p)
        m.submodules.init = init = Initialiser(p)
        m.submodules.load = load = Loader(p)
        m.submodules.save = save = Saver(p)
        wiring.connect(m, fill.o, wiring.flipped(self.o_build))
        wiring.connect(m, save.o, wiring.flipped(self.o_save))
        wiring.connect(m, save.o_heap, wiring.flipped(self.o_heap))
        wiring.connect(m, wiring.flipped(self.i_heap), save.i_heap)
        for part in (wipe, fill, claim, init, load, save):
            m.d.comb += part.budget.eq(budget)
        is_init, is_load, is_save, is_clear = (
            self.operation == operation
            for operation in (Operation.INIT, Operation.LOAD, Operation.SAVE, Operation.CLEAR)
        )
        self._share(m, is_init, wipe, claim, init, load, save, fill)
        drained = Signal()
        self._streams(m, is_init, init, load, phase == _Phase.DRAIN, drained)

        final = Signal(Cause)
        m.d.comb += [
            self.busy.eq(phase != _Phase.IDLE),
            save.state.eq(state),
            fill.flush.eq(phase == _Phase.FILL),
            final.eq(Mux((cause == Cause.NONE) & self.lost.valid, self.lost.cause, cause)),
            self.respond.eq(phase == _Phase.FINISH),
            self.outcome.cause.eq(final),
            self.outcome.occupied.eq(
                Mux(final == Cause.NONE, state.recent + state.important, 0)
            ),
            self.completes.eq(self.respond & ~is_save & (final == Cause.NONE)),
            self.writes.eq(self.completes),
            self.new_state.eq(state),
            self.block.eq(self.completes & (budget.cap_important == 0)),
        ]

        m.d.sync += cause.eq(final)
        with m.Switch(phase):
            with m.Case(_Phase.IDLE):
                with m.If(self.start):
                    m.d.sync += phase.eq(_Phase.LOOK)
            with m.Case(_Phase.LOOK):
                m.d.sync += [
                    budget.eq(self.budget),
                    state.eq(Mux(is_save, self.state.as_value(), 0)),
                    cause.eq(
                        Mux((self.cause == Cause.NONE) & self.lost.valid, self.lost.cause,
                            self.cause)
                    ),
                ]
                with m.If(self.cause != Cause.NONE):
                    m.d.sync += phase.eq(Mux(is_init | is_load, _Phase.DRAIN, _Phase.FINISH))
                with m.Elif(is_save):
                    m.d.comb += save.start.eq(1)
                    m.d.sync += phase.eq(_Phase.RUN)
                with m.Else():
                    m.d.comb += [wipe.start.eq(1), fill.start.eq(1), self.discards.eq(1)]
                    m.d.sync += phase.eq(_Phase.WIPE)
            with m.Case(_Phase.WIPE):
                with m.If(~wipe.busy):
                    m.d.comb += [init.start.eq(is_init), load.start.eq(is_load)]
                    m.d.sync += phase.eq(Mux(is_clear, _Phase.FILL, _Phase.RUN))
            with m.Case(_Phase.RUN):
                with m.If(init.done | load.done):
                    m.d.sync += [
                        phase.eq(_Phase.FILL),
                        state.eq(Mux(is_init, init.state.as_value(), load.state.as_value())),
                    ]
                    with m.If((final == Cause.NONE) & Mux(is_init, init.failed, load.failed)):
                        m.d.sync += cause.eq(Mux(is_init, Cause.BAD_INIT, Cause.BAD_LOAD))
                with m.If(save.done):
                    m.d.sync += phase.eq(_Phase.FINISH)
            with m.Case(_Phase.FILL):
                with m.If(fill.done):
                    m.d.sync += phase.eq(_Phase.FINISH)
            with m.Case(_Phase.DRAIN):
                with m.If(drained):
                    m.d.sync += phase.eq(_Phase.FINISH)
            with m.Case(_Phase.FINISH):
                m.d.sync += phase.eq(_Phase.IDLE)

        return m

    def _share(self, m, is_init, wipe, claim, init, load, save, fill):
        """Lead the ports to the part that works: the others ask for nothing meanwhile."""
        claims = init.o_claim, load.o_claim
        entries = init.o_important, load.o_important
        for chosen, sources in ((claim.i, claims), (fill.i, entries)):
            first, second = sources
            m.d.comb += [
                chosen.valid.eq(Mux(is_init, first.valid, second.valid)),
                Value.cast(chosen.payload).eq(
                    Mux(is_init, Value.cast(first.payload), Value.cast(second.payload))
                ),
                first.ready.eq(chosen.ready & is_init),
                second.ready.eq(chosen.ready & ~is_init),
            ]
        for user in (save, load, claim, wipe):
            with m.If(user.scores.valid):
                m.d.comb += self.scores.eq(user.scores)
        for user in (save, load, init, wipe):
            with m.If(user.ring.valid):
                m.d.comb += self.ring.eq(user.ring)
        for user in (save, load, claim, wipe):
            m.d.comb += user.granted.eq(self.granted)
        for user in (save, load, claim):
            m.d.comb += user.row.eq(self.row)
        m.d.comb += save.ring_row.eq(self.ring_row)
        for user in (init, load):
            m.d.comb += [user.doubled.eq(claim.doubled), user.settled.eq(claim.idle)]

    def _streams(self, m, is_init, init, load, drains, drained):
        """Lead the streams in, or drop one of them."""
        for mine, user, chosen in (
            (self.i_init, init.i, is_init), (self.i_load, load.i, ~is_init)
        ):
            m.d.comb += [
                user.valid.eq(mine.valid),
                user.payload.eq(mine.payload),
                mine.ready.eq(user.ready | (drains & chosen)),
            ]
            with m.If(drains & chosen & mine.valid & mine.payload["last"]):
                m.d.comb += drained.eq(1)
