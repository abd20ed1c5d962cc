"""Scoreboard (HiKV, IV-A) without its sorter."""

from amaranth import *
from amaranth.lib import wiring

from golden.parameters import RisParameters, ScoreboardParameters
from rtl.hikv.admission import Admission
from rtl.hikv.budget_table import BudgetTable
from rtl.hikv.context_rows import ContextRows
from rtl.hikv.contexts import LOSERS, Contexts
from rtl.hikv.heap import Heap
from rtl.hikv.heap_layouts import heap_ris
from rtl.hikv.interface import Cause, Operation, scoreboard_command_layout
from rtl.hikv.ring import Ring
from rtl.hikv.scoreboard_layouts import outcome_layout
from rtl.hikv.scoreboard_ports import MEANINGS, latency, members
from rtl.hikv.scores import Scores
from rtl.hikv.transfer import Transfer
from rtl.hikv.weights_front import WeightsFront

__all__ = ["ScoreboardCore"]


class ScoreboardCore(wiring.Component):
    """Both banks of many contexts, their scores and slots; the sorter of the heap is outside.

    Commands are answered in order. A command waits until the context has got the P of its step
    before and its heap the new minimum.

    STEP makes room for a newcomer as :meth:`golden.hikv.Context.admit` does; its response leaves
    four clocks after the command, two after the score of the leaving token was read. CLEAR empties
    a context. INIT fills it with the tokens of ``i_init``, LOAD with rows that SAVE gave for a
    context with the same budget. A context that a command failed to make is uninitialised.

    After the response to a STEP the P of each query head follows on ``i_p``, one beat per clock;
    it is added to the recent slots as :meth:`golden.hikv.Context.accumulate` does. P of another
    length than the occupied slots loses the context; P without a step is dropped. The sequences of
    different contexts may follow one another in any order.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i_command : ``In(stream)``
        Of :func:`rtl.hikv.interface.scoreboard_command_layout`.
    o_response : ``Out(stream)``
        Of :func:`rtl.hikv.interface.response_layout`.
    i_p : ``In(stream)``
        Of :func:`rtl.hikv.weights_front.p_layout`.
    i_init, i_load, o_save : stream
        Of :func:`rtl.hikv.interface.initial_layout` and :func:`rtl.hikv.interface.row_layout`.
    i_budget : ``In(stream)``
        Of :func:`rtl.hikv.interface.budget_layout`.
    o_ris_sort, o_ris_pick, i_ris_pick : stream
        To and from a :class:`rtl.sorting.ris.Ris` with the parameters :attr:`ris`.
    abort, abort_context
        The context becomes uninitialised; what is under way for it is dropped.
    bad_p, bad_p_context
        For one clock: a weight of a recent slot was NaN or negative and was not added.
    p_length, p_length_context, unexpected_p
        For one clock: P was too short or too long; a P that no step waits for was dropped.
    parity_error, parity_context
        For one clock: what was read is not what was written; the context is lost.
    budget_ok, budget_refused : ``Out(1)``
        The latest head budget table is in force; was refused.
    promoted, rejected, accumulated : ``Out(1)``
        Events to count: a token entered the important bank, one was evicted from the recent bank,
        a beat of P was added.
    idle : ``Out(1)``
        Nothing is under way.
    """

    meanings = MEANINGS

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = parameters
        super().__init__(members(parameters))

    @property
    def ris(self) -> RisParameters:
        """Parameters of the sorter outside."""
        return heap_ris(self.parameters)

    @property
    def latency(self) -> dict[str, int]:
        """Clocks when nothing stalls."""
        return latency(self.parameters)

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.heap = heap = Heap(p)
        m.submodules.budgets = budgets = BudgetTable(p)
        m.submodules.rows = rows = ContextRows(p)
        m.submodules.contexts = contexts = Contexts(p)
        m.submodules.admission = admission = Admission(p)
        m.submodules.transfer = transfer = Transfer(p)
        m.submodules.ring = ring = Ring(p)
        m.submodules.scores = scores = Scores(p)
        m.submodules.front = front = WeightsFront(p)
        for name in ("o_ris_sort", "o_ris_pick", "i_ris_pick"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(heap, name))
        wiring.connect(m, wiring.flipped(self.i_budget), budgets.i)
        wiring.connect(m, wiring.flipped(self.i_p), front.i)
        wiring.connect(m, front.o, scores.i)
        wiring.connect(m, wiring.flipped(self.i_init), transfer.i_init)
        wiring.connect(m, wiring.flipped(self.i_load), transfer.i_load)
        wiring.connect(m, transfer.o_save, wiring.flipped(self.o_save))
        wiring.connect(m, transfer.o_heap, heap.i_row)
        wiring.connect(m, heap.o_row, transfer.i_heap)
        wiring.connect(m, heap.o_minimum, rows.i_minimum)

        accepts = Signal()
        command = Signal(scoreboard_command_layout(p), reset_less=True)
        self._accept(m, accepts, command, budgets, contexts, rows, admission, transfer)
        self._respond(m, command, admission, transfer)
        self._share(m, accepts, command, admission, transfer, rows, ring, scores, budgets)
        self._sort(m, command, admission, transfer, heap, rows)
        self._weigh(m, command, admission, front, scores, contexts)
        self._know(m, command, admission, transfer, rows, contexts, budgets)
        working = admission.busy | transfer.busy | self.o_response.valid | budgets.busy
        m.d.comb += self.idle.eq(~working & heap.idle & rows.idle & front.idle & scores.idle)
        if p.parity:
            written = Signal()
            m.d.sync += written.eq(accepts & contexts.initialised)
            # Rows of a context that was never made hold anything.
            errors = budgets.error | (rows.error & written) | ring.error | scores.error
            self._check(m, contexts, {
                "parity": (errors, command.context),
                "p_parity": (scores.p_error, scores.p_context),
                "p_row_parity": (front.error, front.error_context),
                "heap_parity": (budgets.found, budgets.found_context),
            })
            m.d.comb += [
                budgets.search.eq(heap.parity_error),
                budgets.heap_base.eq(heap.parity_base),
            ]
        return m

    def _accept(self, m, accepts, command, budgets, contexts, rows, admission, transfer):
        """Take a command, and find out whether anything is to be done."""
        p = self.parameters
        offered = self.i_command.payload
        working = admission.busy | transfer.busy
        cause, known = Signal(Cause, reset_less=True), Signal(Cause)
        uses = (offered.operation == Operation.STEP) | (offered.operation == Operation.SAVE)
        m.d.comb += [
            self.i_command.ready.eq(
                ~working & ~self.o_response.valid & ~budgets.busy & ~self.i_budget.valid
                & contexts.quiet
            ),
            accepts.eq(self.i_command.valid & self.i_command.ready),
            contexts.query.eq(offered.context),
            budgets.quiet.eq(~working & rows.idle),
            budgets.read.eq(accepts),
            budgets.context.eq(offered.context),
            rows.read.eq(accepts),
            rows.context.eq(offered.context),
            admission.start.eq(accepts & (offered.operation == Operation.STEP)),
            transfer.start.eq(accepts & (offered.operation != Operation.STEP)),
            transfer.operation.eq(command.operation),
            admission.cause.eq(cause),
            transfer.cause.eq(cause),
        ]
        with m.If(offered.operation.as_value() > Operation.CLEAR.value):
            m.d.comb += known.eq(Cause.BAD_OPERATION)
        with m.Elif(offered.context >= p.contexts):
            m.d.comb += known.eq(Cause.BAD_CONTEXT)
        with m.Elif(~budgets.has_budget):
            m.d.comb += known.eq(Cause.NO_BUDGET)
        with m.Elif(uses & ~contexts.initialised):
            m.d.comb += known.eq(contexts.cause)
        with m.Elif(uses & contexts.kills.bit_select(offered.context, 1)):
            m.d.comb += known.eq(Cause.ABORTED)

        with m.If(accepts):
            m.d.sync += [command.eq(offered), cause.eq(known)]

    def _respond(self, m, command, admission, transfer):
        answer = self.o_response.payload
        with m.If(self.o_response.ready):
            m.d.sync += self.o_response.valid.eq(0)
        with m.If(admission.respond | transfer.respond):
            m.d.sync += [
                self.o_response.valid.eq(1),
                answer.operation.eq(command.operation),
                answer.context.eq(command.context),
                answer.tag.eq(command.tag),
            ]
            outcome = Signal(outcome_layout(self.parameters))
            m.d.comb += outcome.eq(
                Mux(admission.busy, admission.outcome.as_value(), transfer.outcome.as_value())
            )
            m.d.sync += [
                answer[name].eq(outcome[name])
                for name in ("slot", "evicted", "promoted", "occupied", "cause")
            ]

    def _share(self, m, accepts, command, admission, transfer, rows, ring, scores, budgets):
        """Lead the memories to the one command that runs."""
        m.d.comb += [
            admission.budget.eq(budgets.row),
            admission.state.eq(rows.state),
            admission.minimum.eq(rows.minimum),
            admission.score_row.eq(scores.access_row),
            admission.ring_row.eq(ring.row),
            transfer.budget.eq(budgets.row),
            transfer.state.eq(rows.state),
            transfer.granted.eq(scores.granted),
            transfer.row.eq(scores.access_row),
            transfer.ring_row.eq(ring.row),
            scores.reserve.eq(admission.reserve),
            scores.access.eq(admission.access),
            scores.transfer.eq(transfer.scores),
            ring.access.eq(
                Mux(admission.busy, admission.ring.as_value(), transfer.ring.as_value())
            ),
            rows.write.eq(admission.writes | transfer.writes),
            rows.writer.eq(command.context),
            rows.new_state.eq(
                Mux(admission.busy, admission.new_state.as_value(), transfer.new_state.as_value())
            ),
            rows.block.eq(transfer.block),
        ]

    def _sort(self, m, command, admission, transfer, heap, rows):
        """Lead promotions and constructions to the heap, and note whose minimum is to come."""
        p = self.parameters
        promotion = admission.o.payload
        nodes = (promotion.budget.cap_important + p.ways - 1) >> (p.ways - 1).bit_length()
        build = transfer.o_build
        ends = build.valid & build.payload["last"]
        m.d.comb += [
            heap.i_replace.payload.region.base.eq(promotion.budget.heap_base),
            heap.i_replace.payload.region.nodes.eq(nodes),
            heap.i_replace.payload.key.eq(promotion.entry.key),
            heap.i_replace.payload.slot.eq(promotion.entry.slot),
            heap.i_replace.valid.eq(admission.o.valid & rows.i_sorted.ready),
            admission.o.ready.eq(heap.i_replace.ready & rows.i_sorted.ready),
            heap.i_build.payload.eq(build.payload),
            heap.i_build.valid.eq(build.valid & rows.i_sorted.ready),
            build.ready.eq(heap.i_build.ready & rows.i_sorted.ready),
            rows.i_sorted.payload.eq(command.context),
            rows.i_sorted.valid.eq(
                (admission.o.valid & heap.i_replace.ready) | (ends & heap.i_build.ready)
            ),
        ]

    def _weigh(self, m, command, admission, front, scores, contexts):
        """Lead P to the scores, as far as a step waits for it."""
        m.d.comb += [
            front.set.eq(admission.writes),
            front.set_context.eq(command.context),
            front.set_row.eq(admission.weights_row),
            front.expects.eq(contexts.expects),
            front.kills.eq(contexts.kills),
            contexts.looking.eq(front.looking),
            contexts.received.valid.eq(front.received),
            contexts.received.context.eq(front.looking),
            contexts.writing.eq(scores.writing),
            scores.alive.eq(contexts.alive),
            contexts.accumulated.valid.eq(scores.done & scores.done_end),
            contexts.accumulated.context.eq(scores.writing),
            contexts.p_length.eq(front.lost),
            self.p_length.eq(front.lost.valid),
            self.p_length_context.eq(front.lost.context),
            self.unexpected_p.eq(front.unexpected),
            self.bad_p.eq(scores.done & scores.done_bad & scores.alive),
            self.bad_p_context.eq(scores.writing),
            self.accumulated.eq(scores.done & scores.alive),
        ]

    def _check(self, m, contexts, sources):
        """Lose the contexts whose rows have the wrong parity."""
        for name, (error, context) in sources.items():
            loser = getattr(contexts, name)
            m.d.comb += [
                loser.valid.eq(error),
                loser.context.eq(context),
                loser.cause.eq(Cause.PARITY),
            ]
            with m.If(error):
                m.d.comb += [self.parity_error.eq(1), self.parity_context.eq(context)]

    def _know(self, m, command, admission, transfer, rows, contexts, budgets):
        """Keep the bits of every context up to date."""
        lost, lost_cause = Signal(), Signal(Cause)
        for event, valid, context in (
            (contexts.discards, transfer.discards, command.context),
            (contexts.completes, transfer.completes, command.context),
            (contexts.steps, admission.writes & admission.steps, command.context),
            (contexts.promotes, rows.i_sorted.valid & rows.i_sorted.ready, command.context),
            (contexts.renewed, rows.renewed, rows.renewed_context),
        ):
            m.d.comb += [event.valid.eq(valid), event.context.eq(context)]
        m.d.comb += [
            contexts.abort.valid.eq(self.abort),
            contexts.abort.context.eq(self.abort_context),
            contexts.abort.cause.eq(Cause.ABORTED),
            contexts.forget.eq(budgets.forget),
            self.budget_ok.eq(budgets.ok),
            self.budget_refused.eq(budgets.refused),
            self.promoted.eq(admission.respond & admission.outcome.promoted),
            self.rejected.eq(
                admission.respond & admission.outcome.evicted & ~admission.outcome.promoted
            ),
        ]
        for user in (admission, transfer):
            m.d.comb += [
                user.lost.valid.eq(lost),
                user.lost.context.eq(command.context),
                user.lost.cause.eq(lost_cause),
            ]
        for name in LOSERS:
            loser = getattr(contexts, name)
            with m.If(loser.valid & (loser.context == command.context)):
                m.d.comb += [lost.eq(1), lost_cause.eq(loser.cause)]
