"""Border of the selection: commands and values in, sort keys and jobs out."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from golden.parameters import SelectionParameters
from rtl.sorting.entry import Mode
from rtl.sorting.sort_key import EMPTY, is_nan, sort_key

__all__ = [
    "SelectionInput",
    "Status",
    "beat_layout",
    "command_layout",
    "job_layout",
    "outcome_layout",
]


class Status(data.Struct):
    """Sticky flags: what was wrong with the input."""

    nan: unsigned(1)
    short: unsigned(1)
    long: unsigned(1)
    bad_command: unsigned(1)


def command_layout(parameters: SelectionParameters) -> data.StructLayout:
    """Announcement of one vector."""
    return data.StructLayout({
        "mode": Mode,
        "length": range(parameters.max_length + 1),
        "b_ii": range(parameters.head_dim + 1),
        "tag": parameters.tag_width,
    })


def beat_layout(parameters: SelectionParameters) -> data.StructLayout:
    """One beat of values, as bit patterns."""
    values = data.ArrayLayout(parameters.key_width, parameters.ways)
    return data.StructLayout({"values": values, "last": 1})


def job_layout(parameters: SelectionParameters) -> data.StructLayout:
    """Work for the sequencer: so many groups follow; select ``full`` of them and ``rest`` entries.

    ``rest`` is 0 if no boundary group is wanted.
    """
    return data.StructLayout({
        "chunk_sort": 1,
        "groups": range(parameters.groups + 1),
        "full": range(parameters.groups + 1),
        "rest": range(parameters.ways),
    })


def outcome_layout(parameters: SelectionParameters) -> data.StructLayout:
    """All of a selection but its mask.

    ``prefix``: the mask is the first ``count`` entries.
    """
    chunks = -(-parameters.max_length // parameters.head_dim)
    return data.StructLayout({
        "tag": parameters.tag_width,
        "chunk": range(max(2, chunks)),
        "last": 1,
        "count": range(parameters.head_dim + 1),
        "error": 1,
        "prefix": 1,
    })


class SelectionInput(wiring.Component):
    """Cuts vectors into chunks, values into groups of sort keys, and finds what is wrong with them.

    Each command is followed by its values on ``i``, up to and including a beat with ``last``. Per
    chunk one payload leaves on ``o_outcome``, in order, at the chunk's last beat; and, unless all
    or none of its entries are selected, one on ``o_job``, followed by its groups on ``o``. Lanes
    beyond the chunk's length are empty.

    One beat per clock, plus one clock per chunk and one per command.

    Parameters
    ----------
    parameters : SelectionParameters

    Members
    -------
    i_command : stream of :func:`command_layout`
    i : stream of :func:`beat_layout`
    o_job : stream of :func:`job_layout`
    o : stream of ways sort keys
    o_outcome : stream of :func:`outcome_layout`
    status : ``Out(Status)``
    clear : ``In(1)``
        Takes the flags back; what sets one in the same clock wins.
    """

    def __init__(self, parameters: SelectionParameters):
        self.parameters = p = parameters
        super().__init__({
            "i_command": In(stream.Signature(command_layout(p))),
            "i": In(stream.Signature(beat_layout(p))),
            "o_job": Out(stream.Signature(job_layout(p))),
            "o": Out(stream.Signature(data.ArrayLayout(p.key_width, p.ways))),
            "o_outcome": Out(stream.Signature(outcome_layout(p))),
            "status": Out(Status),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        lane_bits = exact_log2(p.ways)
        offered = self.i_command.payload
        command = Signal(command_layout(p), reset_less=True)
        remaining = Signal(range(p.max_length + 1), reset_less=True)
        chunk = Signal.like(self.o_outcome.payload.chunk, reset_less=True)
        illegal = Signal(reset_less=True)
        # What START finds out about a chunk; `left` counts its entries from the next beat on.
        left = Signal(range(p.head_dim + 1), reset_less=True)
        count = Signal(range(p.head_dim + 1), reset_less=True)
        group = Signal(range(max(2, p.groups)), reset_less=True)
        trivial = Signal(reset_less=True)
        final_chunk = Signal(reset_less=True)

        size = Signal(range(p.head_dim + 1))
        whole, none, final_next = Signal(), Signal(), Signal()
        m.d.comb += [
            final_next.eq(remaining <= p.head_dim),
            size.eq(Mux(final_next, remaining, p.head_dim)),
            whole.eq(command.b_ii >= size),
            none.eq(command.b_ii == 0),
            self.o_job.payload.chunk_sort.eq(command.mode == Mode.CHUNK_SORT),
            self.o_job.payload.groups.eq((size + (p.ways - 1)) >> lane_bits),
            self.o_job.payload.full.eq(command.b_ii >> lane_bits),
            self.o_job.payload.rest.eq(command.b_ii[:lane_bits]),
        ]

        last = self.i.payload.last
        filling, taken, passed, nans = Signal(), Signal(), Signal(), Signal()
        last_beat, wrong, room = Signal(), Signal(), Signal()
        so_far = Signal(range(p.groups * p.ways + 1))
        self._keys(m, command.mode == Mode.GLOBAL_SORT, Mux(filling, 0, left), nans)
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            passed.eq(self.o.valid & self.o.ready),
            last_beat.eq(left <= p.ways),
            wrong.eq(last != (last_beat & final_chunk)),
            room.eq(~self.o_outcome.valid),
            so_far.eq((group + 1) << lane_bits),
        ]

        found = Signal(Status)
        outcome = self.o_outcome.payload
        with m.If(self.o_outcome.ready):
            m.d.sync += self.o_outcome.valid.eq(0)
        with m.If(taken | passed):
            m.d.sync += [left.eq(left - p.ways), group.eq(group + 1)]

        def emit(**fields):
            known = {"tag": command.tag, "chunk": chunk} | fields
            m.d.sync += [self.o_outcome.valid.eq(1)]
            m.d.sync += [outcome[name].eq(value) for name, value in known.items()]
            m.d.sync += [chunk.eq(chunk + 1), remaining.eq(remaining - p.head_dim)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i_command.ready.eq(1)
                m.d.sync += [command.eq(offered), chunk.eq(0)]
                with m.If(self.i_command.valid):
                    with m.If(self._legal(offered)):
                        m.d.sync += [remaining.eq(offered.length), illegal.eq(0)]
                        m.next = "START"
                    with m.Else():
                        m.d.comb += found.bad_command.eq(1)
                        m.d.sync += [remaining.eq(1), illegal.eq(1)]
                        m.next = "MISSING"

            with m.State("START"):
                m.d.comb += self.o_job.valid.eq(~whole & ~none)
                with m.If(whole | none | self.o_job.ready):
                    m.d.sync += [
                        left.eq(size),
                        count.eq(Mux(whole, size, command.b_ii)),
                        group.eq(0),
                        trivial.eq(whole | none),
                        final_chunk.eq(final_next),
                    ]
                    m.next = "VALUES"

            with m.State("VALUES"):
                m.d.comb += [
                    self.i.ready.eq(room & (trivial | self.o.ready)),
                    self.o.valid.eq(room & ~trivial & self.i.valid),
                    found.nan.eq(taken & nans),
                    found.short.eq(taken & wrong & last),
                    found.long.eq(taken & last_beat & wrong & ~last),
                ]
                with m.If(taken & (last | last_beat)):
                    emit(
                        last=final_chunk,
                        count=Mux(last_beat | (count < so_far), count, so_far),
                        error=wrong,
                        prefix=trivial,
                    )
                    with m.If(~last):
                        with m.If(final_chunk):
                            m.next = "DISCARD"
                        with m.Else():
                            m.next = "START"
                    with m.Elif(~last_beat & ~trivial):
                        m.next = "FILL"
                    with m.Elif(final_chunk):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "MISSING"

            with m.State("FILL"):
                m.d.comb += [filling.eq(1), self.o.valid.eq(1)]
                with m.If(passed & last_beat):
                    with m.If(final_chunk):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "MISSING"

            with m.State("MISSING"):
                with m.If(room):
                    emit(last=final_next, count=0, error=1, prefix=1)
                    with m.If(illegal):
                        m.next = "DISCARD"
                    with m.Elif(final_next):
                        m.next = "IDLE"

            with m.State("DISCARD"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(taken & last):
                    m.next = "IDLE"

        cleared = Value.cast(self.status) & ~self.clear.replicate(len(Value.cast(self.status)))
        m.d.sync += Value.cast(self.status).eq(cleared | found.as_value())

        return m

    def _legal(self, command):
        p = self.parameters
        limit = Mux(command.mode == Mode.GLOBAL_SORT, p.head_dim, p.max_length)
        selects = (command.mode == Mode.GLOBAL_SORT) | (command.mode == Mode.CHUNK_SORT)
        fits = (command.length != 0) & (command.length <= limit)
        return selects & fits & (command.b_ii <= p.head_dim)

    def _keys(self, m, magnitude, present, nans):
        """Sort keys of the lanes that are present; the others are empty."""
        found = []
        for lane, bits in enumerate(self.i.payload.values):
            in_chunk = Signal(name=f"in_chunk_{lane}")
            m.d.comb += [
                in_chunk.eq(lane < present),
                self.o.payload[lane].eq(Mux(in_chunk, sort_key(bits, magnitude), EMPTY)),
            ]
            found.append(in_chunk & is_nan(bits))
        m.d.comb += nans.eq(Cat(found).any())
