"""Decoder and storage of a register map."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.bus.axi_lite import RegisterBus, Response
from rtl.bus.register_map import Access, Field, Register, RegisterMap

__all__ = ["RegisterFile"]


def _members(register: Register, field: Field):
    name, width = f"{register.name}_{field.name}", field.width
    return {
        Access.CONSTANT: {},
        Access.READ: {name: In(width)},
        Access.READ_WRITE: {name: Out(width)},
        Access.CLEAR: {name: Out(width), f"{name}_set": In(width)},
        Access.PULSE: {name: Out(width)},
        Access.COUNTER: {f"{name}_event": In(1)},
    }[field.access]


class RegisterFile(wiring.Component):
    """Registers of a map, for a register bus.

    An address without register answers ``DECODE_ERROR``, a write to a register without writable
    field ``SLAVE_ERROR``; neither has an effect. Strobes select bytes; a write without strobes does
    nothing. What is written holds from the next clock on, the ones of a ``PULSE`` field for that
    clock only. A bit of a ``CLEAR`` field is set by hardware and cleared by writing 1; if both
    happen in one clock it stays set. A counter counts the clocks in which its event is high, and
    any write to its bytes clears it; the event of that clock is counted. A read shows the values of
    the clock in which it takes place; bits without field, and pulses, read as 0.

    Parameters
    ----------
    description : RegisterMap
    address_width : int, optional
        Bits of a word address; unset: as many as the registers need.

    Members
    -------
    bus : RegisterBus, as its slave
    <register>_<field>
        Value of a field: an input of ``READ``, else an output.
    <register>_<field>_set
        Bits of a ``CLEAR`` field to set.
    <register>_<field>_event
        Event of a ``COUNTER``.
    """

    def __init__(self, description: RegisterMap, address_width: int | None = None):
        self.description = description
        top = max(register.address for register in description.registers)
        needed = max(1, (top // 4).bit_length())
        members = {"bus": In(RegisterBus(address_width or needed))}
        for register, field in description:
            members |= _members(register, field)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        mask = Cat(strobe.replicate(8) for strobe in bus.write_strobe)

        m.d.comb += [
            bus.write_response.eq(Response.DECODE_ERROR),
            bus.read_response.eq(Response.DECODE_ERROR),
        ]
        for register in self.description.registers:
            number = register.address // 4
            written = Signal(name=f"{register.name}_written")
            with m.If(bus.write_address == number):
                outcome = Response.OKAY if register.writable else Response.SLAVE_ERROR
                m.d.comb += [bus.write_response.eq(outcome), written.eq(bus.write)]
            with m.If(bus.read_address == number):
                m.d.comb += bus.read_response.eq(Response.OKAY)
            for field in register.fields:
                enable = mask[field.bits] & written.replicate(field.width)
                value = self._field(m, f"{register.name}_{field.name}", field, enable)
                with m.If(bus.read_address == number):
                    m.d.comb += bus.read_data[field.bits].eq(value)

        return m

    def _field(self, m, name: str, field: Field, enable):
        """Store one field; its value as read."""
        if field.access is Access.CONSTANT:
            return C(field.reset, field.width)
        if field.access is Access.COUNTER:
            return self._counter(m, name, field, enable)
        value = getattr(self, name)
        data = self.bus.write_data[field.bits] & enable
        if field.access is Access.READ_WRITE:
            stored = Signal(field.width, name=f"{name}_stored", init=field.reset)
            m.d.comb += value.eq(stored)
            m.d.sync += stored.eq(stored & ~enable | data)
        elif field.access is Access.CLEAR:
            m.d.sync += value.eq(value & ~data | getattr(self, f"{name}_set"))
        elif field.access is Access.PULSE:
            m.d.sync += value.eq(data)
            return C(0, field.width)
        return value

    def _counter(self, m, name: str, field: Field, enable):
        count = Signal(field.width, name=name)
        event = getattr(self, f"{name}_event")
        full = count.all() if field.saturates else C(0, 1)
        with m.If(enable.any()):
            m.d.sync += count.eq(event)
        with m.Elif(event & ~full):
            m.d.sync += count.eq(count + 1)
        return count
