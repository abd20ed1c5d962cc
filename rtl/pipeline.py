"""Valid bits, enables and payload registers of a row of register sets."""

from collections.abc import Sequence

from amaranth import *

__all__ = ["advance", "delay", "register"]


def advance(
    m: Module, numbers: Sequence[int], valid, ready
) -> tuple[Value, Value, Sequence[Value]]:
    """Control of register sets in a row, each of which moves as soon as there is room behind it.

    Parameters
    ----------
    m : Module
        Where the control is built.
    numbers : sequence of int
        Stages after which the sets stand, for names.
    valid : Value
        A beat stands before the first set.
    ready : Value
        What follows the last set takes a beat.

    Returns
    -------
    valid : Value
        The last set holds a beat.
    ready : Value
        The first set takes a beat.
    loads : list of Value
        Per set: a beat moves in. Payload registers load at no other time.
    """
    held = [Signal(name=f"valid_{number}") for number in numbers]
    moves = [Signal(name=f"move_{number}") for number in numbers]
    loads = [Signal(name=f"load_{number}") for number in numbers]
    behind = [*moves[1:], ready]
    before = [valid, *held[:-1]]
    for k in range(len(numbers)):
        m.d.comb += [
            moves[k].eq(~held[k] | behind[k]),
            loads[k].eq(moves[k] & before[k]),
        ]
        with m.If(moves[k]):
            m.d.sync += held[k].eq(before[k])
    return ([valid, *held])[-1], ([*moves, ready])[0], loads


def register(m: Module, value, load: Value | None, name: str) -> Signal:
    """Payload register without reset; with ``load`` one that holds, as clock gating wants it."""
    held = Signal(value.shape(), name=name, reset_less=True)
    if load is None:
        m.d.sync += held.eq(value)
    else:
        with m.If(load):
            m.d.sync += held.eq(value)
    return held


def delay(m: Module, value, loads: Sequence[Value | None], name: str) -> Value:
    """Value after as many registers as there are ``loads``, beside the sets that these drive."""
    for k, load in enumerate(loads, 1):
        value = register(m, value, load, f"{name}_{k}")
    return value
