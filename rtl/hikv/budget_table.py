"""Head budget table: capacities of every context, and where its rows are."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.interface import budget_layout
from rtl.hikv.rows import Rows
from rtl.hikv.scoreboard_layouts import budget_row_layout, context_shape

__all__ = ["BudgetTable"]


class Phase(enum.Enum, shape=3):
    """What the table is doing: three phases lay out one context, two look at one."""

    READY = 0
    LOAD = 1
    READ = 2
    TAKE = 3
    WRITE = 4
    SEARCH = 5
    MATCH = 6


class BudgetTable(wiring.Component):
    """Divides the rows of the memories among the contexts, in the order of their numbers.

    After reset every context gets the mean capacities of the parameters. A table that is loaded
    replaces all budgets: contexts that it does not mention have none, and of two entries for one
    context the later counts. It is refused as a whole, and no context has a budget, if an entry
    names no context, a recent bank is empty, a context has more than ``max_slots``, or the rows do
    not suffice.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i : ``In(stream)``
        Of :func:`rtl.hikv.interface.budget_layout`.
    quiet : ``In(1)``
        Nothing goes on, so that a table may be replaced.
    forget : ``Out(1)``
        A new table begins: all contexts lose what they have.
    busy : ``Out(1)``
        A table is being loaded or laid out, or searched; no row may be read.
    read, context
        Read the row of a context, and whether it has a budget.
    row : ``Out(budget_row_layout)``
        From the clock after ``read`` on.
    has_budget : ``Out(1)``
        In the clock of ``read``.
    ok, refused : ``Out(1)``
        The latest table is in force / was refused.
    search, heap_base
        Find the context whose heap begins there. Another search meanwhile is not heard.
    found, found_context
        It is found, for one clock.
    error : ``Out(1)``
        Parity, in the clock after a read.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(budget_layout(p))),
            "quiet": In(1),
            "forget": Out(1),
            "busy": Out(1),
            "read": In(1),
            "context": In(context_shape(p)),
            "row": Out(budget_row_layout(p)),
            "has_budget": Out(1),
            "ok": Out(1),
            "refused": Out(1),
            "search": In(1),
            "heap_base": In(range(p.heap_rows)),
            "found": Out(1),
            "found_context": Out(context_shape(p)),
            "error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        layout = budget_row_layout(p)
        m.submodules.rows = rows = Rows(
            max(2, p.contexts), 1, layout.size, parity=p.parity, storage=p.storage
        )
        phase = Signal(Phase, init=Phase.READ)
        waits = Signal()
        default = Signal(init=1)
        mentioned, granted = Signal(p.contexts), Signal(p.contexts)
        context = Signal(context_shape(p))
        bad = Signal()
        entry, written = self.i.payload, Signal(layout)
        takes = Signal()
        loads = (phase == Phase.READY) | (phase == Phase.LOAD)
        reads = (phase == Phase.READ) | (phase == Phase.SEARCH)

        m.d.comb += [
            self.i.ready.eq((phase == Phase.LOAD) | ((phase == Phase.READY) & self.quiet)),
            takes.eq(self.i.valid & self.i.ready),
            self.forget.eq(takes & (phase == Phase.READY)),
            self.busy.eq((phase != Phase.READY) | waits),
            self.has_budget.eq(granted.bit_select(self.context, 1)),
            self.row.eq(data.View(layout, rows.read_data)),
            rows.en.eq(takes | self.read | reads | (phase == Phase.WRITE)),
            rows.write.eq(takes | (phase == Phase.WRITE)),
            rows.addr.eq(Mux(takes, entry.context, Mux(self.read, self.context, context))),
            rows.write_data.eq(written.as_value()),
            self.error.eq(rows.error & (phase == Phase.READY)),
        ]

        with m.If(takes):
            m.d.sync += [
                default.eq(0),
                bad.eq((bad & ~self.forget) | (entry.context >= p.contexts)),
                mentioned.eq(Mux(self.forget, 0, mentioned) | (1 << entry.context)),
                phase.eq(Mux(entry["last"], Phase.READ, Phase.LOAD)),
                self.ok.eq(0),
                self.refused.eq(0),
                granted.eq(0),
                context.eq(0),
            ]
        named = default | mentioned.bit_select(context, 1)
        caps, fits, sums = self._layout(m, phase, default, named)
        with m.If(loads):
            m.d.comb += [
                written.cap_recent.eq(entry.cap_recent),
                written.cap_important.eq(entry.cap_important),
            ]
        with m.Else():
            m.d.comb += [
                written.cap_recent.eq(caps.cap_recent),
                written.cap_important.eq(caps.cap_important),
                *(written[name].eq(total) for name, total in sums.items()),
            ]
        with m.Switch(phase):
            with m.Case(Phase.READ):
                m.d.sync += phase.eq(Phase.TAKE)
            with m.Case(Phase.TAKE):
                m.d.sync += phase.eq(Phase.WRITE)
            with m.Case(Phase.WRITE):
                m.d.sync += [
                    phase.eq(Phase.READ),
                    context.eq(context + 1),
                    bad.eq(bad | ~fits),
                ]
                with m.If(context == p.contexts - 1):
                    m.d.sync += [
                        phase.eq(Phase.READY),
                        self.ok.eq(~bad & fits),
                        self.refused.eq(bad | ~fits),
                        granted.eq((mentioned | default.replicate(p.contexts))
                                   & (~bad & fits).replicate(p.contexts)),
                    ]
        if p.parity:
            self._search(m, phase, context, takes, waits)

        return m

    def _search(self, m, phase, context, takes, waits):
        """Go through the rows; that of an empty heap may begin where another one does."""
        wanted = Signal(range(self.parameters.heap_rows), reset_less=True)
        row = self.row
        with m.If(self.search & ~waits):
            m.d.sync += [waits.eq(1), wanted.eq(self.heap_base)]
        with m.Switch(phase):
            with m.Case(Phase.READY):
                with m.If(waits & ~takes):
                    m.d.sync += [phase.eq(Phase.SEARCH), context.eq(0)]
            with m.Case(Phase.SEARCH):
                m.d.sync += phase.eq(Phase.MATCH)
            with m.Case(Phase.MATCH):
                m.d.comb += [
                    self.found.eq((row.heap_base == wanted) & (row.cap_important != 0)),
                    self.found_context.eq(context),
                ]
                m.d.sync += [phase.eq(Phase.SEARCH), context.eq(context + 1)]
                with m.If(self.found | (context == self.parameters.contexts - 1)):
                    m.d.sync += [phase.eq(Phase.READY), waits.eq(0)]

    def _layout(self, m, phase, default, named):
        """Capacities of the context in turn, whether they fit, and its first rows."""
        p = self.parameters
        caps = Signal(budget_row_layout(p), reset_less=True)
        stored = data.View(budget_row_layout(p), m.submodules.rows.read_data)
        slots = caps.cap_recent + caps.cap_important
        fits = Signal()
        m.d.comb += fits.eq(~named | ((caps.cap_recent != 0) & (slots <= p.max_slots)))
        with m.If(phase == Phase.TAKE):
            m.d.sync += [
                caps.cap_recent.eq(Mux(default, p.cap_recent, Mux(named, stored.cap_recent, 0))),
                caps.cap_important.eq(
                    Mux(default, p.cap_important, Mux(named, stored.cap_important, 0))
                ),
            ]
        sums = {}
        for name, entries, per_row, limit in (
            ("heap_base", caps.cap_important, p.ways, p.heap_rows),
            ("score_base", slots, p.lanes, p.score_rows),
            ("ring_base", caps.cap_recent, p.lanes, p.ring_rows),
        ):
            most = p.contexts * -(-(2 * p.max_slots + 2) // per_row)
            sums[name] = total = Signal(range(most + 1), name=name)
            after = Signal.like(total, name=f"{name}_after")
            m.d.comb += after.eq(total + ((entries + per_row - 1) >> (per_row.bit_length() - 1)))
            over = Signal(name=f"{name}_over")
            m.d.comb += over.eq(after > limit)
            with m.If(phase == Phase.WRITE):
                m.d.sync += total.eq(after)
            with m.Elif((phase == Phase.READY) | (phase == Phase.LOAD)):
                m.d.sync += total.eq(0)
            fits = fits & ~over
        return caps, fits, sums
