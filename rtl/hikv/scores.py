"""Importance scores of the recent banks, by slot, and their accumulation."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import ScoreboardParameters
from rtl.arithmetic.tisg import Tisg
from rtl.hikv.rows import Rows
from rtl.hikv.scoreboard_layouts import context_shape
from rtl.pipeline import register

__all__ = ["Scores", "access_layout", "beat_layout", "transfer_layout"]


def beat_layout(p: ScoreboardParameters) -> data.StructLayout:
    """One beat of P with the row it is added to; ``end``: the last one of a step."""
    return data.StructLayout({
        "row": range(p.score_rows),
        "values": data.ArrayLayout(16, p.lanes),
        "context": context_shape(p),
        "end": 1,
    })


def access_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Access of a decode step: read a row, or write one lane of it."""
    return data.StructLayout({
        "valid": 1,
        "row": range(p.score_rows),
        "write": 1,
        "lane": range(p.lanes),
        "score": p.score_width,
    })


def transfer_layout(p: ScoreboardParameters) -> data.StructLayout:
    """Access of a transfer: read a row, or write those lanes of it that ``write`` names."""
    return data.StructLayout({
        "valid": 1,
        "row": range(p.score_rows),
        "write": p.lanes,
        "data": p.lanes * p.score_width,
    })


class Scores(wiring.Component):
    """Rows of ``lanes`` scores in two single-port halves, even rows and odd ones.

    A beat of P is added to the lanes whose sign bit is clear. Its row is read in one clock and
    written three clocks later (five with ``adder_registers``), when the beat behind it reads the
    other half: one beat per clock along the rows of a context. A beat waits while its row is still
    to be written.

    Steps have the ports first, then P; a transfer takes a clock in which its half is free.

    Parameters
    ----------
    parameters : ScoreboardParameters

    Members
    -------
    i : ``In(stream)``
        Of :func:`beat_layout`; its payload should come from registers.
    reserve : ``In(1)``
        ``access`` will be valid in the next clock. Comes one clock before each.
    access : ``In(access_layout)``
    access_row : ``Out``
        Row that ``access`` or ``transfer`` asked for in the clock before.
    transfer : ``In(transfer_layout)``
    granted : ``Out(1)``
        ``transfer`` is done in this clock.
    writing : ``Out(context)``, alive : ``In(1)``
        Context whose row would be written now, and whether it may be.
    done, done_end, done_bad : ``Out(1)``
        A beat of ``writing`` leaves; it is the last of its step; it had a weight that was NaN or
        negative in a recent slot.
    idle : ``Out(1)``
        No beat is on its way.
    error, p_error, p_context
        Parity, in the clock after a read: of ``access`` or ``transfer``, of a beat and its context.
    """

    def __init__(self, parameters: ScoreboardParameters):
        self.parameters = p = parameters
        super().__init__({
            "i": In(stream.Signature(beat_layout(p))),
            "reserve": In(1),
            "access": In(access_layout(p)),
            "access_row": Out(data.ArrayLayout(p.score_width, p.lanes)),
            "transfer": In(transfer_layout(p)),
            "granted": Out(1),
            "writing": Out(context_shape(p)),
            "alive": In(1),
            "done": Out(1),
            "done_end": Out(1),
            "done_bad": Out(1),
            "idle": Out(1),
            "error": Out(1),
            "p_error": Out(1),
            "p_context": Out(context_shape(p)),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        m.submodules.tisg = tisg = Tisg(p.tisg())
        for name in ("even", "odd"):
            m.submodules[name] = Rows(
                p.score_rows // 2, p.lanes, p.score_width, parity=p.parity, storage=p.storage
            )
        side = data.StructLayout({
            "row": range(p.score_rows), "context": context_shape(p), "end": 1
        })
        beat = self.i.payload
        issued, takes = Signal(), Signal()
        now = Cat(beat.row, beat.context, beat.end)
        first = data.View(side, register(m, now, takes, "issued_side"))
        values = register(m, beat.values.as_value(), takes, "issued_values")
        # `issued` needs no back-pressure: nothing is issued in the clock before an access.
        held, moves, loads = self._sets(m, issued)
        sides = [first]
        for number, load in enumerate(loads):
            copied = register(m, sides[-1].as_value(), load, f"side_{number}")
            sides.append(data.View(side, copied))
        last, done = sides[-1], held[-1] & ~self.access.valid

        waits = [
            present & (passing.row == beat.row)
            for present, passing in zip([issued, *held[:-1]], sides, strict=False)
        ]
        m.d.comb += [
            # The row of `last` needs no comparison: it takes the port of the same half.
            self.i.ready.eq(~(self.reserve | self.access.valid | Cat(waits).any()
                              | (held[-1] & (last.row[0] == beat.row[0])))),
            takes.eq(self.i.valid & self.i.ready),
            self.writing.eq(last.context),
            self.done.eq(done),
            self.done_end.eq(last.end),
            self.idle.eq(~issued & ~Cat(held).any()),
            self.p_context.eq(first.context),
        ]
        m.d.sync += issued.eq(takes)
        sums = self._add(m, tisg, first, values, held, moves, loads)
        self._access(m, takes, issued, first, last, sums)

        return m

    def _sets(self, m, issued):
        """Control the register sets behind the memory, those inside the adders included.

        Their number is even, so that sums leave after an odd number of clocks, when the next beat
        reads the other half.
        """
        count = 4 if self.parameters.adder_registers else 2
        held = [Signal(name=f"held_{number}") for number in range(count)]
        moves = [Signal(name=f"moves_{number}") for number in range(count)]
        behind = [*moves[1:], ~self.access.valid]
        before = [issued, *held[:-1]]
        loads = [move & there for move, there in zip(moves, before, strict=True)]
        for number in range(count):
            m.d.comb += moves[number].eq(~held[number] | behind[number])
            with m.If(moves[number]):
                m.d.sync += held[number].eq(before[number])
        return held, moves, loads

    def _add(self, m, tisg, first, values, held, moves, loads):
        """Lead rows and weights to the adders; return the sums in the last set."""
        p = self.parameters
        row = Mux(first.row[0], m.submodules.odd.read_data, m.submodules.even.read_data)
        scores = data.View(
            data.ArrayLayout(p.score_width, p.lanes), register(m, row, loads[0], "row")
        )
        m.d.comb += [
            tisg.i.valid.eq(held[0]),
            tisg.i.payload.scores.eq(scores),
            tisg.i.payload.p.as_value().eq(register(m, values, loads[0], "values")),
            tisg.i.payload.enable.eq(~Cat(scores[lane][-1] for lane in range(p.lanes))),
        ]
        sums, bad = tisg.o.payload.scores.as_value(), tisg.o.payload.bad.any()
        if p.adder_registers:
            m.d.comb += [
                tisg.o.ready.eq(moves[-1]),
                self.done_bad.eq(register(m, bad, loads[-1], "bad")),
            ]
            return register(m, sums, loads[-1], "sums")
        m.d.comb += [tisg.o.ready.eq(~self.access.valid), self.done_bad.eq(bad)]
        return sums

    def _access(self, m, takes, issued, first, last, sums):
        """Serve both halves, and hand over what other accesses have read."""
        access, transfer = self.access, self.transfer
        self._halves(m, takes, self.done & self.alive, last.row, sums)
        halves = m.submodules.even, m.submodules.odd
        asks = (access.valid & ~access.write) | (self.granted & ~transfer.write.any())
        asked = Signal()
        m.d.sync += asked.eq(asks)
        half = register(m, Mux(access.valid, access.row[0], transfer.row[0]), None, "half")
        errors = Cat(rows.error for rows in halves)
        m.d.comb += [
            self.access_row.as_value().eq(Mux(half, halves[1].read_data, halves[0].read_data)),
            self.p_error.eq(issued & errors.bit_select(first.row[0], 1)),
            self.error.eq(asked & errors.bit_select(half, 1)),
        ]

    def _halves(self, m, reads, writes, written_row, sums):
        """Give each memory its access of this clock."""
        p = self.parameters
        access, transfer = self.access, self.transfer
        beat_half, written_half = self.i.payload.row[0], written_row[0]
        blocked = Signal(2)
        for half, rows in enumerate((m.submodules.even, m.submodules.odd)):
            accessed = access.valid & (access.row[0] == half)
            written = writes & (written_half == half)
            read = reads & (beat_half == half)
            m.d.comb += blocked[half].eq(
                access.valid | (self.done & (written_half == half)) | read
            )
            moved = transfer.valid & (transfer.row[0] == half) & ~blocked[half]
            m.d.comb += rows.en.eq(accessed | written | read | moved)
            with m.If(access.valid):
                m.d.comb += [
                    rows.addr.eq(access.row[1:]),
                    rows.write.eq(access.write << access.lane),
                    rows.write_data.eq(access.score.replicate(p.lanes)),
                ]
            with m.Elif(written):
                m.d.comb += [
                    rows.addr.eq(written_row[1:]),
                    rows.write.eq(~0),
                    rows.write_data.eq(sums),
                ]
            with m.Elif(read):
                m.d.comb += rows.addr.eq(self.i.payload.row[1:])
            with m.Else():
                m.d.comb += [
                    rows.addr.eq(transfer.row[1:]),
                    rows.write.eq(transfer.write),
                    rows.write_data.eq(transfer.data),
                ]
        m.d.comb += self.granted.eq(
            transfer.valid & ~blocked.bit_select(transfer.row[0], 1)
        )
