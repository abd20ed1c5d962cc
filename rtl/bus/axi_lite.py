"""AXI4-Lite to a plain register bus."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["AxiLite", "AxiLiteSlave", "RegisterBus", "Response"]


class Response(enum.Enum, shape=2):
    """Outcome of an access, as AXI encodes it."""

    OKAY = 0
    SLAVE_ERROR = 2
    DECODE_ERROR = 3


class AxiLite(wiring.Signature):
    """AXI4-Lite with 32-bit data, seen by the master; the slave looks at no protection bits.

    Parameters
    ----------
    address_width : int
        Bits of a byte address.
    """

    def __init__(self, address_width: int):
        self.address_width = address_width
        super().__init__({
            "awaddr": Out(address_width),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(Response),
            "bvalid": In(1),
            "bready": Out(1),
            "araddr": Out(address_width),
            "arvalid": Out(1),
            "arready": In(1),
            "rdata": In(32),
            "rresp": In(Response),
            "rvalid": In(1),
            "rready": Out(1),
        })

    @staticmethod
    def meanings(prefix: str) -> dict[str, str]:
        """One line per flat port ``<prefix>_<part>``."""
        parts = {
            "awaddr": "byte address of a write",
            "awvalid": "high while a write address is offered",
            "awready": "high when the write address is taken at this clock edge",
            "wdata": "data of a write",
            "wstrb": "which bytes of the data are written",
            "wvalid": "high while write data is offered, before, with or after the address",
            "wready": "high when the write data is taken at this clock edge",
            "bresp": "outcome of a write",
            "bvalid": "high while the outcome of a write is offered",
            "bready": "high when the master takes the outcome of a write",
            "araddr": "byte address of a read",
            "arvalid": "high while a read address is offered",
            "arready": "high when the read address is taken at this clock edge",
            "rdata": "data of a read",
            "rresp": "outcome of a read",
            "rvalid": "high while the data of a read is offered",
            "rready": "high when the master takes the data of a read",
        }
        return {f"{prefix}_{part}": f"registers: {text}" for part, text in parts.items()}


class RegisterBus(wiring.Signature):
    """One access per clock, answered in the same clock; seen by the master.

    Parameters
    ----------
    address_width : int
        Bits of a word address.
    """

    def __init__(self, address_width: int):
        self.address_width = address_width
        super().__init__({
            "write": Out(1),
            "write_address": Out(address_width),
            "write_data": Out(32),
            "write_strobe": Out(4),
            "write_response": In(Response),
            "read": Out(1),
            "read_address": Out(address_width),
            "read_data": In(32),
            "read_response": In(Response),
        })


class AxiLiteSlave(wiring.Component):
    """AXI4-Lite slave: one write and one read outstanding, in any order of one another.

    Write address and write data may come in either order. An address within a word means the word:
    strobes say which bytes are written. A strobe below the address answers ``SLAVE_ERROR`` without
    an access. No output follows from an input within a clock. With
    a master that never waits, a write or read takes place every second clock; its outcome is
    offered two clocks after its address (and data) are taken.

    Parameters
    ----------
    address_width : int
        Bits of a byte address, at least 3.

    Members
    -------
    axi : AxiLite, as its slave
    bus : RegisterBus, as its master
    """

    def __init__(self, address_width: int):
        self.address_width = address_width
        super().__init__({
            "axi": In(AxiLite(address_width)),
            "bus": Out(RegisterBus(address_width - 2)),
        })

    def elaborate(self, platform):
        m = Module()
        self._write(m, self.axi, self.bus)
        self._read(m, self.axi, self.bus)
        return m

    def _write(self, m, axi, bus):
        address = Signal(self.address_width, reset_less=True)
        wanted, supplied = Signal(), Signal()
        go, legal = Signal(), Signal()
        below = Array([0b0000, 0b0001, 0b0011, 0b0111])[address[:2]]

        m.d.comb += [
            axi.awready.eq(~wanted),
            axi.wready.eq(~supplied),
            go.eq(wanted & supplied & (~axi.bvalid | axi.bready)),
            legal.eq((bus.write_strobe & below) == 0),
            bus.write.eq(go & legal),
            bus.write_address.eq(address[2:]),
        ]

        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [wanted.eq(1), address.eq(axi.awaddr)]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += [
                supplied.eq(1),
                bus.write_data.eq(axi.wdata),
                bus.write_strobe.eq(axi.wstrb),
            ]
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(go):
            m.d.sync += [
                wanted.eq(0),
                supplied.eq(0),
                axi.bvalid.eq(1),
                axi.bresp.eq(Mux(legal, bus.write_response, Response.SLAVE_ERROR)),
            ]

    def _read(self, m, axi, bus):
        wanted, go = Signal(), Signal()

        m.d.comb += [
            axi.arready.eq(~wanted),
            go.eq(wanted & (~axi.rvalid | axi.rready)),
            bus.read.eq(go),
        ]

        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [wanted.eq(1), bus.read_address.eq(axi.araddr[2:])]
        with m.If(axi.rready):
            m.d.sync += axi.rvalid.eq(0)
        with m.If(go):
            m.d.sync += [
                wanted.eq(0),
                axi.rvalid.eq(1),
                axi.rdata.eq(bus.read_data),
                axi.rresp.eq(bus.read_response),
            ]
