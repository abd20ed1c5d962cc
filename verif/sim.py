"""Stream drivers and a runner for the Amaranth simulator."""

import numpy as np
from amaranth.hdl import Const
from amaranth.sim import Simulator

__all__ = ["collect", "drive", "gaps", "get", "put", "run"]


async def put(ctx, stream, payload):
    """Transfer one payload into the design; it may be always ready."""
    ctx.set(stream.payload, payload)
    ctx.set(stream.valid, 1)
    await ctx.tick().until(stream.ready)
    ctx.set(stream.valid, 0)


async def get(ctx, stream):
    """Transfer one payload out of the design; its stream may be always ready."""
    always_ready = isinstance(stream.ready, Const)
    if not always_ready:
        ctx.set(stream.ready, 1)
    (payload,) = await ctx.tick().sample(stream.payload).until(stream.valid)
    if not always_ready:
        ctx.set(stream.ready, 0)
    return payload


def gaps(seed, longest):
    """Endless idle-clock counts from 0 to ``longest``; always 0 if that is 0."""
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.integers(longest + 1, size=256).tolist()


async def drive(ctx, stream, payloads, idle=None):
    """Transfer payloads in, the next of ``idle`` (e.g. `gaps`) clocks before each."""
    for payload in payloads:
        for _ in range(next(idle) if idle else 0):
            await ctx.tick()
        await put(ctx, stream, payload)


async def collect(ctx, stream, count, idle=None):
    """Transfer ``count`` payloads out, the next of ``idle`` clocks before each.

    Leave ``idle`` out for a stream that is always ready: it would lose what comes meanwhile.
    """
    payloads = []
    for _ in range(count):
        for _ in range(next(idle) if idle else 0):
            await ctx.tick()
        payloads.append(await get(ctx, stream))
    return payloads


def run(dut, *testbenches, timeout=10_000):
    """Simulate until every testbench has returned; fail after ``timeout`` cycles."""

    async def watchdog(ctx):
        for _ in range(timeout):  # not `.repeat()`, which cannot be abandoned half-way
            await ctx.tick()
        raise TimeoutError(f"Testbenches still running after {timeout} cycles")

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for testbench in testbenches:
        sim.add_testbench(testbench)
    sim.add_testbench(watchdog, background=True)
    sim.run()
