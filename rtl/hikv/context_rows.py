"""State and minimum of every context, in memories."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.rows import Rows
from rtl.hikv.scoreboard_layouts import context_shape, minimum_layout, state_layout
from rtl.sorting.queue import Queue

__all__ = ["ContextRows"]

_IN_FLIGHT = 4


class ContextRows(wiring.Component):
    """Two rows per context: the state, which commands write, and the minimum, which the heap gives.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    read, context
        Read both rows of a context; they stand on ``state`` and ``minimum`` from the next clock on.
    write, writer, new_state
        Write the state of the context ``writer``; not in a clock with ``read``.
    block : ``In(1)``
        Give ``writer`` a minimum that nothing outranks: it has no important bank.
    i_sorted : ``In(stream)``
        Context whose new minimum the heap gives next.
    i_minimum : ``In(stream)``
        The heap's answers.
    renewed, renewed_context
        A minimum is written in this clock.
    idle : ``Out(1)``
        The heap owes nothing.
    error : ``Out(1)``
        Parity, in the clock after a read.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "read": In(1),
            "context": In(context_shape(p)),
            "state": Out(state_layout(p)),
            "minimum": Out(minimum_layout(p)),
            "write": In(1),
            "writer": In(context_shape(p)),
            "new_state": In(state_layout(p)),
            "block": In(1),
            "i_sorted": In(stream.Signature(context_shape(p))),
            "i_minimum": In(stream.Signature(minimum_layout(p))),
            "renewed": Out(1),
            "renewed_context": Out(context_shape(p)),
            "idle": Out(1),
            "error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        depth = max(2, p.contexts)
        states, minima = (
            Rows(depth, 1, layout(p).size, parity=p.parity, storage=p.storage)
            for layout in (state_layout, minimum_layout)
        )
        m.submodules.states, m.submodules.minima = states, minima
        m.submodules.queue = queue = Queue(context_shape(p), depth=_IN_FLIGHT)
        wiring.connect(m, wiring.flipped(self.i_sorted), queue.i)
        blocked = Signal(minimum_layout(p))

        m.d.comb += [
            states.en.eq(self.read | self.write),
            states.write.eq(self.write),
            states.addr.eq(Mux(self.write, self.writer, self.context)),
            states.write_data.eq(self.new_state.as_value()),
            self.state.eq(data.View(state_layout(p), states.read_data)),

            blocked.as_value().eq(~0),
            self.i_minimum.ready.eq(queue.o.valid & ~self.read & ~self.block),
            self.renewed.eq(self.i_minimum.valid & self.i_minimum.ready),
            self.renewed_context.eq(queue.o.payload),
            queue.o.ready.eq(self.renewed),
            minima.en.eq(self.read | self.renewed | self.block),
            minima.write.eq(self.renewed | self.block),
            minima.addr.eq(
                Mux(self.block, self.writer, Mux(self.read, self.context, queue.o.payload))
            ),
            minima.write_data.eq(
                Mux(self.block, blocked.as_value(), self.i_minimum.payload.as_value())
            ),
            self.minimum.eq(data.View(minimum_layout(p), minima.read_data)),
            self.idle.eq(~queue.o.valid),
            self.error.eq(states.error | minima.error),
        ]

        return m
