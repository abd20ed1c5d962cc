"""What is known of every context at any time: a few bits each."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.interface import Cause
from rtl.hikv.scoreboard_layouts import cause_of_layout, context_shape

__all__ = ["Contexts"]

#: Who can lose a context.
LOSERS = ("abort", "p_length", "parity", "p_parity", "p_row_parity", "heap_parity")


def _event(p: ScoreboardParameters) -> data.StructLayout:
    return data.StructLayout({"valid": 1, "context": context_shape(p)})


class Contexts(wiring.Component):
    """Which contexts are initialised, which wait for P or for their heap, and why some are lost.

    All inputs take effect in the next clock. A context that is lost stays so until a command makes
    it anew, and no step of it waits for P any more.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    query : ``In(context)``
    quiet : ``Out(1)``
        It waits neither for P nor for the heap.
    initialised, cause : ``Out``
        Whether commands may use it, and the cause if not.
    discards, completes, steps, promotes : ``In({"valid", "context"})``
        It is being made anew; it is made; a step waits for P from now on; and for the heap.
    received, accumulated, renewed : ``In({"valid", "context"})``
        P of the step has come; it is in the scores; the heap has its new minimum.
    looking, expects, writing, alive
        Whether a step of that context waits for a beat of P / for beats to be written.
    abort, p_length, parity, p_parity, p_row_parity, heap_parity : ``In(cause_of_layout)``
        Contexts that are lost.
    kills : ``Out(contexts)``
        One bit for each that is lost now.
    forget : ``In(1)``
        All are uninitialised.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        events = ("discards", "completes", "steps", "promotes", "received", "accumulated",
                  "renewed")
        super().__init__({
            "query": In(context_shape(p)),
            "quiet": Out(1),
            "initialised": Out(1),
            "cause": Out(Cause),
            "looking": In(context_shape(p)),
            "expects": Out(1),
            "writing": In(context_shape(p)),
            "alive": Out(1),
            "kills": Out(p.contexts),
            "forget": In(1),
            **{name: In(_event(p)) for name in events},
            **{name: In(cause_of_layout(p)) for name in LOSERS},
        })

    def elaborate(self, platform):
        m = Module()
        count = self.parameters.contexts
        initialised, expecting, adding, sorting = (
            Signal(count, name=name) for name in ("made", "expecting", "adding", "sorting")
        )
        causes = [
            Signal(Cause, init=Cause.UNINITIALISED, name=f"cause_{c}") for c in range(count)
        ]

        def at(bits, context):
            return bits.bit_select(context, 1)

        m.d.comb += [
            self.quiet.eq(~at(adding | sorting, self.query)),
            self.initialised.eq(at(initialised, self.query)),
            self.cause.eq(Array(causes)[self.query]),
            self.expects.eq(at(expecting, self.looking)),
            self.alive.eq(at(adding, self.writing)),
        ]
        for c in range(count):
            def names(event, c=c):
                return event.valid & (event.context == c)

            lost = [names(getattr(self, name)) for name in LOSERS]
            m.d.comb += self.kills[c].eq(Cat(lost).any())
            with m.If(names(self.received)):
                m.d.sync += expecting[c].eq(0)
            with m.If(names(self.accumulated)):
                m.d.sync += adding[c].eq(0)
            with m.If(names(self.renewed)):
                m.d.sync += sorting[c].eq(0)
            with m.If(names(self.steps)):
                m.d.sync += [expecting[c].eq(1), adding[c].eq(1)]
            with m.If(names(self.promotes)):
                m.d.sync += sorting[c].eq(1)
            with m.If(names(self.discards)):
                m.d.sync += [initialised[c].eq(0), causes[c].eq(Cause.UNINITIALISED)]
            with m.If(names(self.completes)):
                m.d.sync += initialised[c].eq(1)
            with m.If(self.kills[c] | self.forget):
                m.d.sync += [initialised[c].eq(0), expecting[c].eq(0), adding[c].eq(0)]
            for name, loses in zip(LOSERS, lost, strict=True):
                # Who was lost before keeps the first cause; nobody is lost who was not there.
                with m.If(loses & initialised[c]):
                    m.d.sync += causes[c].eq(getattr(self, name).cause)
            with m.If(self.forget):
                m.d.sync += causes[c].eq(Cause.UNINITIALISED)

        return m
