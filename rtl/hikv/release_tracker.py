"""Steps whose reads of V are not known to be done."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden.parameters import HikvSelectorParameters
from rtl.hikv.interface import command_layout, release_layout
from rtl.memory import Memory, MemoryShape

__all__ = ["ReleaseTracker"]


class ReleaseTracker(wiring.Component):
    """Knows for each context whether its latest step is still to be released.

    Parameters
    ----------
    parameters : HikvSelectorParameters

    Members
    -------
    i_release : stream of :func:`rtl.hikv.interface.release_layout`
        At most one in two clocks.
    context, waits
        Context that is asked about; whether its step is not released.
    arm, arm_tag
        The step of ``context`` with that tag is to be released, from the next clock on.
    forget, abort, abort_context
        No step of ``context``, or of ``abort_context``, is to be released any more.
    stray : ``Out(1)``
        A release came that nobody waited for.
    """

    def __init__(self, parameters: HikvSelectorParameters):
        self.parameters = p = parameters
        context = command_layout(p)["context"].shape
        super().__init__({
            "i_release": In(stream.Signature(release_layout(p))),
            "context": In(context),
            "waits": Out(1),
            "arm": In(1),
            "arm_tag": In(p.tag_width),
            "forget": In(1),
            "abort": In(1),
            "abort_context": In(context),
            "stray": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.parameters
        depth = 1 << len(self.context)
        waiting = Signal(depth)
        looked_up = Signal()
        m.submodules.tags = tags = Memory(MemoryShape(depth, p.tag_width))
        release = self.i_release.payload
        match = Signal()

        m.d.comb += [
            self.waits.eq(waiting.bit_select(self.context, 1)),
            tags.read_en.eq(self.i_release.valid & ~looked_up),
            tags.read_addr.eq(release.context),
            tags.write_en.eq(self.arm),
            tags.write_addr.eq(self.context),
            tags.write_data.eq(self.arm_tag),
            self.i_release.ready.eq(looked_up),
            match.eq(
                waiting.bit_select(release.context, 1) & (tags.read_data == release.tag)
            ),
            self.stray.eq(looked_up & ~match),
        ]

        m.d.sync += looked_up.eq(self.i_release.valid & ~looked_up)
        with m.If(looked_up & match):
            m.d.sync += waiting.bit_select(release.context, 1).eq(0)
        with m.If(self.arm):
            m.d.sync += waiting.bit_select(self.context, 1).eq(1)
        with m.If(self.forget):
            m.d.sync += waiting.bit_select(self.context, 1).eq(0)
        with m.If(self.abort):
            m.d.sync += waiting.bit_select(self.abort_context, 1).eq(0)

        return m
