"""Construction of heaps node by node, and raw access to their rows."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.hikv.heap_layouts import (
    access_layout,
    build_layout,
    entry_of,
    group_of,
    outranks,
    place_layout,
)

__all__ = ["HeapBuilder"]


class _Job(enum.Enum, shape=2):
    BUILD = 0
    READ = 1
    WRITE = 2


class HeapBuilder(wiring.Component):
    """Takes one node, or one raw access, at a time, and has the memories to itself meanwhile.

    A new node is merged with its parent, the lower half goes on to the next parent, until a merge
    would change nothing: at most one invocation of the sorter per node and level, and one for the
    root by itself. The nodes of one heap follow one another; raw accesses may come in between.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i_build : stream of :func:`rtl.hikv.heap_layouts.build_layout`
    i_row : stream of :func:`rtl.hikv.heap_layouts.access_layout`
        Goes first.
    o_row : stream of group
        One per raw read.
    o_minimum : stream of entry
        Lowest entry of a heap whose last node is done.
    go : ``In(1)``
        Something new may be taken.
    busy : ``Out(1)``
        The memories, the sorter's ports and ``held`` are in use from here.
    idle : ``Out(1)``
        Neither busy nor in the middle of a heap.
    base : ``Out(range)``
        First row of the context that is being worked on.
    read, row : ``Out``
        Reads a row; it must stand on ``row_data`` in the next clock.
    write, place : ``Out``
        Writes ``group`` and its minimum.
    row_data : ``In(group)``
    hold : ``Out(1)``
        ``held`` must take ``row_data``.
    held : ``In(group)``
    group : ``Out(group)``
        The node that moves up.
    sort, pick : ``Out(1)``
        Offers ``group`` and ``held``, or ``group`` alone, to the sorter.
    taken : ``In(1)``
        The sorter takes what is offered.
    result : ``In(1)``
        Its answer is here: ``lower`` is what moves on.
    lower : ``In(group)``
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i_build": In(stream.Signature(build_layout(p))),
            "i_row": In(stream.Signature(access_layout(p))),
            "o_row": Out(stream.Signature(group_of(p))),
            "o_minimum": Out(stream.Signature(entry_of(p))),
            "go": In(1),
            "busy": Out(1),
            "idle": Out(1),
            "base": Out(range(p.heap_rows)),
            "read": Out(1),
            "row": Out(range(p.heap_rows)),
            "write": Out(1),
            "place": Out(place_layout(p)),
            "row_data": In(group_of(p)),
            "hold": Out(1),
            "held": In(group_of(p)),
            "group": Out(group_of(p)),
            "sort": Out(1),
            "pick": Out(1),
            "taken": In(1),
            "result": In(1),
            "lower": In(group_of(p)),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        group = Signal(group_of(p), reset_less=True)
        place = Signal(place_layout(p), reset_less=True)
        minimum = Signal(entry_of(p), reset_less=True)
        base = Signal(range(p.heap_rows), reset_less=True)
        node, parent = Signal.like(base), Signal.like(base)
        count = Signal(range(p.heap_rows))
        job = Signal(_Job, reset_less=True)
        first, last, sent = Signal(), Signal(), Signal()

        m.d.comb += [
            self.group.eq(group),
            self.place.eq(place),
            self.base.eq(base),
            self.o_row.payload.eq(group),
            self.o_minimum.payload.eq(minimum),
            self.idle.eq(~self.busy & (count == 0)),
            self.row.eq(Mux(job == _Job.READ, place.row, base + parent)),
        ]

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                self._take(m, base, node, count, group, job, first, last)
            with m.State("LOCATE"):
                m.d.sync += [
                    place.row.eq(base + node),
                    place.pair.eq((base >> 1) + ((node - 1) >> 1)),
                    place.side.eq(~node[0]),
                    place.root.eq(node == 0),
                    parent.eq((node - 1) >> 1),
                ]
                with m.If(job == _Job.WRITE):
                    m.next = "WRITE"
                with m.Elif((job == _Job.READ) | (node != 0)):
                    m.next = "READ"
                with m.Elif(first):
                    m.next = "PICK"
                with m.Else():
                    m.next = "WRITE"
            with m.State("READ"):
                m.d.comb += self.read.eq(1)
                m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += self.hold.eq(job == _Job.BUILD)
                m.next = "DECIDE"
                with m.If(job == _Job.READ):
                    m.d.sync += group.eq(self.row_data)
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.o_row.valid.eq(1)
                with m.If(self.o_row.ready):
                    m.next = "IDLE"
            with m.State("DECIDE"):
                # A new node's lowest entry is not known yet.
                m.next = "WRITE"
                with m.If(first | outranks(self.held[-1], group[0])):
                    m.next = "SORT"
            with m.State("SORT"):
                m.d.comb += self.sort.eq(~sent)
                self._await(m, sent, first, group)
                with m.If(self.result):
                    m.d.sync += node.eq(parent)
                    m.next = "LOCATE"
            with m.State("PICK"):
                m.d.comb += self.pick.eq(~sent)
                self._await(m, sent, first, group)
                with m.If(self.result):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.write.eq(1)
                with m.If(place.root):
                    m.d.sync += minimum.eq(group[0])
                m.next = "IDLE"
                with m.If((job == _Job.BUILD) & last):
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += self.o_minimum.valid.eq(1)
                with m.If(self.o_minimum.ready):
                    m.next = "IDLE"

        return m

    def _take(self, m, base, node, count, group, job, first, last):
        """Accept a raw access or a node."""
        row, build = self.i_row.payload, self.i_build.payload
        m.d.comb += [
            self.i_row.ready.eq(self.go),
            self.i_build.ready.eq(self.go & ~self.i_row.valid),
        ]
        m.d.sync += first.eq(1)
        with m.If(self.go & self.i_row.valid):
            m.d.sync += [
                base.eq(row.region.base),
                node.eq(row.node),
                group.eq(row.data),
                job.eq(Mux(row.write, _Job.WRITE, _Job.READ)),
            ]
            m.next = "LOCATE"
        with m.Elif(self.go & self.i_build.valid):
            m.d.sync += [
                base.eq(build.region.base),
                node.eq(count),
                count.eq(Mux(build.last, 0, count + 1)),
                group.eq(build.entries),
                job.eq(_Job.BUILD),
                last.eq(build.last),
            ]
            m.next = "LOCATE"

    def _await(self, m, sent, first, group):
        """Offer once, then take the answer, which may come in the same clock."""
        with m.If(self.taken):
            m.d.sync += sent.eq(1)
        with m.If(self.result):
            m.d.sync += [sent.eq(0), first.eq(0), group.eq(self.lower)]
