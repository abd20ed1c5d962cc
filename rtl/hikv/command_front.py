"""Commands in, responses out, in order: what may run now, and what is wrong."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import (
    Cause,
    Grouping,
    Operation,
    command_layout,
    release_layout,
    response_layout,
    scoreboard_command_layout,
)
from rtl.hikv.release_tracker import ReleaseTracker
from rtl.hikv.step_ring import step_layout

__all__ = ["CommandFront"]

_CLOCKS = 32


class CommandFront(wiring.Component):
    """Checks commands, gives them to the scoreboard, and steps to the selection.

    One command at a time. A STEP that is ``first`` admits a newcomer; the group's other heads must
    follow in order, commands of other contexts but STEP may come in between. A command waits until
    the P of all earlier steps of its context is through, and ``first`` until the step before is
    released; if that takes longer than ``release_limit`` clocks, it fails.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i_command, o_response : stream
        Of the selector.
    o_core, i_core : stream
        Commands to the scoreboard, and its responses.
    o_step : stream of :func:`rtl.hikv.step_ring.step_layout`
    i_release : stream of :func:`rtl.hikv.interface.release_layout`
    context, pending
        Context of the command; whether the P of one of its steps is not through.
    b_iik, b_iiv, grouping, release_limit
        Of the selector.
    abort, abort_context
        The context becomes uninitialised.
    step, stray_release : ``Out(1)``
        A STEP was accepted; a release came that nobody waited for.
    idle : ``Out(1)``
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        context = command_layout(p)["context"].shape
        b_ii = range(p.head_dim + 1)
        super().__init__({
            "i_command": In(stream.Signature(command_layout(p))),
            "o_response": Out(stream.Signature(response_layout(p))),
            "o_core": Out(stream.Signature(scoreboard_command_layout(p))),
            "i_core": In(stream.Signature(response_layout(p))),
            "o_step": Out(stream.Signature(step_layout(p))),
            "i_release": In(stream.Signature(release_layout(p))),
            "context": Out(context),
            "pending": In(1),
            "b_iik": In(b_ii),
            "b_iiv": In(b_ii),
            "grouping": In(Grouping),
            "release_limit": In(_CLOCKS),
            "abort": In(1),
            "abort_context": In(context),
            "step": Out(1),
            "stray_release": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.releases = releases = ReleaseTracker(p)
        wiring.connect(m, wiring.flipped(self.i_release), releases.i_release)
        command = Signal(command_layout(p), reset_less=True)
        settings = Signal(step_layout(p), reset_less=True)
        group = Signal(response_layout(p), reset_less=True)
        answer = Signal(response_layout(p), reset_less=True)
        opened, aborted = Signal(), Signal()
        next_query = Signal(range(max(2, p.queries) + 1), reset_less=True)
        clocks = Signal(_CLOCKS, reset_less=True)
        limited = Signal(reset_less=True)

        steps, aborts, blocked = Signal(), Signal(), Signal()
        cause = self._check(m, command, opened, group, next_query)
        answered = self.o_response.payload
        m.d.comb += [
            steps.eq(command.operation == Operation.STEP),
            aborts.eq(self.abort & (self.abort_context == command.context)),
            blocked.eq(self.pending | (steps & releases.waits)),
            self.context.eq(command.context),
            self.stray_release.eq(releases.stray),
            self.o_core.payload.operation.eq(command.operation),
            self.o_core.payload.context.eq(command.context),
            self.o_core.payload.tag.eq(command.tag),
            answered.eq(answer),
            answered.operation.eq(command.operation),
            answered.context.eq(command.context),
            answered.tag.eq(command.tag),
            releases.context.eq(command.context),
            releases.arm_tag.eq(command.tag),
            releases.abort.eq(self.abort),
            releases.abort_context.eq(self.abort_context),
        ]
        self._step(m, command, settings, group, aborts)

        def fail(cause):
            m.d.sync += [answer.eq(0), answer.cause.eq(cause)]
            m.next = "ANSWER"

        m.d.sync += aborted.eq(aborted | aborts)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.idle.eq(1), self.i_command.ready.eq(1)]
                m.d.sync += [
                    command.eq(self.i_command.payload),
                    settings.b_iik.eq(self.b_iik),
                    settings.b_iiv.eq(self.b_iiv),
                    clocks.eq(self.release_limit),
                    limited.eq(self.release_limit.any()),
                    aborted.eq(0),
                ]
                with m.If(self.i_command.valid & self.i_command.payload.first):
                    m.d.sync += settings.grouping.eq(self.grouping)
                with m.If(self.i_command.valid):
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.d.sync += answer.eq(group)
                with m.If(cause != Cause.NONE):
                    fail(cause)
                with m.Elif(steps & ~command.first):
                    m.next = "STEP"
                with m.Else():
                    m.next = "WAIT"

            with m.State("WAIT"):
                m.d.sync += clocks.eq(clocks - 1)
                with m.If(~blocked):
                    m.next = "FORWARD"
                with m.Elif(limited & (clocks == 0)):
                    fail(Cause.RELEASE_TIMEOUT)

            with m.State("FORWARD"):
                m.d.comb += self.o_core.valid.eq(1)
                with m.If(self.o_core.ready):
                    m.next = "SCOREBOARD"

            with m.State("SCOREBOARD"):
                m.d.comb += self.i_core.ready.eq(1)
                with m.If(self.i_core.valid):
                    m.d.sync += answer.eq(self.i_core.payload)
                    m.next = "ANSWER"
                    with m.If(~steps):
                        m.d.comb += releases.forget.eq(command.operation != Operation.SAVE)
                    with m.Elif(self.i_core.payload.cause == Cause.NONE):
                        m.d.sync += group.eq(self.i_core.payload)
                        m.next = "STEP"

            with m.State("STEP"):
                with m.If(aborted):
                    fail(Cause.ABORTED)
                with m.Else():
                    m.d.comb += self.o_step.valid.eq(1)
                    with m.If(self.o_step.ready):
                        m.d.comb += [self.step.eq(1), releases.arm.eq(command["last"])]
                        m.d.sync += [opened.eq(~command["last"]), next_query.eq(command.query + 1)]
                        m.next = "ANSWER"

            with m.State("ANSWER"):
                m.d.comb += self.o_response.valid.eq(1)
                with m.If(self.o_response.ready):
                    m.next = "IDLE"

        with m.If(self.abort & (self.abort_context == Mux(self.step, command.context,
                                                          group.context))):
            m.d.sync += opened.eq(0)

        return m

    def _check(self, m, command, opened, group, next_query):
        """Find what is wrong with a command by itself, or where it stands."""
        p = self.parameters
        cause = Signal(Cause)
        in_group = opened & (command.context == group.context)
        follows = in_group & ~command.first & (command.query == next_query)
        begins = ~opened & command.first & (command.query == 0)
        with m.If(command.operation.as_value() > Operation.CLEAR.value):
            m.d.comb += cause.eq(Cause.BAD_OPERATION)
        with m.Elif(command.context >= p.contexts):
            m.d.comb += cause.eq(Cause.BAD_CONTEXT)
        with m.Elif(command.operation == Operation.STEP):
            with m.If(~follows & ~begins):
                m.d.comb += cause.eq(Cause.BAD_QUERY)
        with m.Elif(in_group):
            m.d.comb += cause.eq(Cause.BAD_QUERY)
        return cause

    def _step(self, m, command, settings, group, aborts):
        step = self.o_step.payload
        m.d.comb += [step[n].eq(settings[n]) for n in ("b_iik", "b_iiv", "grouping")]
        m.d.comb += [step[n].eq(command[n]) for n in ("context", "query", "tag", "first", "last")]
        m.d.comb += [step.occupied.eq(group.occupied), step.aborted.eq(aborts)]
