# amaranth: UnusedElaboratable=no
"""A block whose clock stands still while it says that nothing is under way."""

from collections import defaultdict, deque
from typing import Any

from amaranth.hdl import Cat, EnableInserter, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.bus.activity import Activity

__all__ = ["Gated", "Streams"]

#: The fewest clocks that a block may be enabled after it had work.
_IDLE_CLOCKS = 2


class Gated(wiring.Component):
    """Ports of a block, which has a clock only while it is busy or a transfer is offered to it.

    Parameters
    ----------
    block : wiring.Component
        With an output ``busy`` or ``idle``.

    Members
    -------
    force : ``In(1)``
        Gives it all clocks.
    enable : ``Out(1)``
        It has a clock.
    """

    def __init__(self, block: Any):
        self.block = block
        ports = dict(block.signature.members)
        self.streams = [name for name, member in ports.items() if member.is_signature]
        super().__init__(ports | {"force": In(1), "enable": Out(1)})

    def elaborate(self, platform):
        m = Module()
        block = self.block
        m.submodules.activity = activity = Activity(_IDLE_CLOCKS)
        m.submodules.block = EnableInserter(self.enable)(block)
        members = block.signature.members
        inputs = [name for name in self.streams if members[name].flow == In]

        offered = Cat(getattr(self, name).valid for name in inputs).any()
        busy = ~block.idle if "idle" in members else block.busy
        m.d.comb += [
            activity.work.eq(busy | offered),
            activity.test_enable.eq(self.force),
            self.enable.eq(activity.enable),
        ]
        for name in members:
            outer, inner = getattr(self, name), getattr(block, name)
            if name not in self.streams:
                source, target = (outer, inner) if members[name].flow == In else (inner, outer)
                m.d.comb += target.eq(source)
            else:
                source, target = (outer, inner) if name in inputs else (inner, outer)
                m.d.comb += [
                    target.payload.eq(source.payload),
                    target.valid.eq(source.valid & self.enable),
                    source.ready.eq(target.ready & self.enable),
                ]

        return m


class Streams:
    """Drivers of all streams of a design, and what came out.

    Parameters
    ----------
    dut : wiring.Component
        Not a stream of it may be always ready.

    Attributes
    ----------
    queues : dict of str to deque
        Payloads to send, by name of the stream.
    taken : dict of str to list
        Payloads that came.
    """

    def __init__(self, dut: Any):
        self.dut = dut
        self.queues: dict[str, deque[Any]] = defaultdict(deque)
        self.taken: dict[str, list[Any]] = defaultdict(list)

    def benches(self) -> list[Any]:
        """Testbenches to be added in the background."""
        found = []
        for name, member in self.dut.signature.members.items():
            if member.is_signature:
                bench = self._send if member.flow == In else self._take
                found.append(bench(name, getattr(self.dut, name)))
        return found

    def _send(self, name, stream):
        async def bench(ctx):
            queue = self.queues[name]
            while True:
                if not queue:
                    ctx.set(stream.valid, 0)
                    await ctx.tick()
                    continue
                ctx.set(stream.payload, queue[0])
                ctx.set(stream.valid, 1)
                _, _, ready = await ctx.tick().sample(stream.ready)
                if ready:
                    queue.popleft()

        return bench

    def _take(self, name, stream):
        async def bench(ctx):
            ctx.set(stream.ready, 1)
            while True:
                _, _, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
                if valid:
                    self.taken[name].append(payload)

        return bench

    async def take(self, ctx: Any, name: str, count: int) -> list[Any]:
        """Wait for payloads of a stream, and remove them."""
        while len(self.taken[name]) < count:
            await ctx.tick()
        found, self.taken[name] = self.taken[name][:count], self.taken[name][count:]
        return found
