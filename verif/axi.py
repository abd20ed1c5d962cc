"""AXI ports in the cocotb benches: registers by name, streams of payloads, and the streams' rules.

The drivers are those of ``cocotbext-axi``; make them when :meth:`Environment.start` is over::

    env = await Environment.start(dut)
    axi = Axi(env, register_map())
    await axi.write("control", enable=1, grouping=2)
    axi.pause("random")
    axi.send("s_axis_q", {"values": (beats, lanes), "last": (beats,)})
    got = await axi.take("m_axis_k", count)
"""

from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from rtl.bus.register_map import Register, RegisterMap
from verif.environment import Environment, pack, unpack

__all__ = ["Axi", "AxiResp", "diagram"]

_PARTS = ("tdata", "tlast")


def _pauses(rng: np.random.Generator, kind: str) -> Iterator[bool] | None:
    """Whether to pause, one per clock: never, at random, or in bursts."""
    if kind == "never":
        return None

    def random() -> Iterator[bool]:
        probability = rng.uniform(0.1, 0.9)
        while True:
            yield from (rng.random(256) < probability).tolist()

    def bursts() -> Iterator[bool]:
        while True:
            for pause in (False, True):
                for _ in range(int(rng.geometric(1 / 8))):
                    yield pause

    return {"random": random, "bursts": bursts}[kind]()


class Axi:
    """Masters, sources and sinks at the AXI ports of the block under test.

    Every output stream is checked: valid does not fall, and data does not change, before ready.

    Parameters
    ----------
    env : Environment
        Its component names the streams in ``axi_streams``.
    registers : RegisterMap
        Behind the AXI4-Lite port ``s_axil``.
    """

    def __init__(self, env: Environment, registers: RegisterMap):
        self.env = env
        self.registers = {register.name: register for register in registers.registers}
        bus = AxiLiteBus.from_prefix(env.dut, "s_axil")
        self.master = AxiLiteMaster(bus, env.dut.clk, env.dut.rst)
        self.sources: dict[str, AxiStreamSource] = {}
        self.sinks: dict[str, AxiStreamSink] = {}
        for prefix in env.component.axi_streams:
            port = AxiStreamBus.from_prefix(env.dut, prefix)
            if prefix.startswith("s_"):
                self.sources[prefix] = AxiStreamSource(port, env.dut.clk, env.dut.rst)
            else:
                self.sinks[prefix] = AxiStreamSink(port, env.dut.clk, env.dut.rst)
                cocotb.start_soon(self._check_rules(prefix))

    def pause(self, kind: str) -> None:
        """Pause all ports: ``never``, ``random`` or ``bursts``."""
        write: Any = self.master.write_if
        read: Any = self.master.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel,
                    read.r_channel)  # fmt: skip
        for port in (*channels, *self.sources.values(), *self.sinks.values()):
            port.set_pause_generator(_pauses(self.env.rng, kind))

    async def write(self, name: str, **fields: int) -> AxiResp:
        """Write a register, fields that are not named as 0."""
        register = self.registers[name]
        return await self.write_word(register.address, self._word(register, fields))

    async def write_word(self, address: int, word: int) -> AxiResp:
        """Write a word wherever it goes."""
        return (await self.master.write(address, word.to_bytes(4, "little"))).resp

    async def read(self, name: str) -> dict[str, int]:
        """Read a register, by field."""
        register = self.registers[name]
        word, response = await self.read_word(register.address)
        assert response == AxiResp.OKAY, f"{name} answers {response!r}"
        return {
            field.name: word >> field.low & ((1 << field.width) - 1) for field in register.fields
        }

    async def read_word(self, address: int) -> tuple[int, AxiResp]:
        """Read a word wherever it is."""
        answer = await self.master.read(address, 4)
        return int.from_bytes(answer.data, "little"), answer.resp

    @staticmethod
    def _word(register: Register, values: dict[str, int]) -> int:
        fields = {field.name: field for field in register.fields}
        return sum(value << fields[name].low for name, value in values.items())

    def _layout(self, prefix: str) -> Any:
        return getattr(self.env.component, f"{prefix}_tdata").shape()

    def send(self, prefix: str, values: dict[str, Any]) -> None:
        """Queue transfers: fields as :func:`verif.environment.pack` takes them, ``last`` as TLAST.

        Parameters
        ----------
        prefix : str
            Of the stream's ports.
        values : dict
            Field to values, a transfer each.
        """
        source, layout = self.sources[prefix], self._layout(prefix)
        ends = values.get("last") if hasattr(source.bus, "tlast") else None
        names = {name for name, _ in layout}
        strings = pack(layout, {name: array for name, array in values.items() if name in names})
        packet = bytearray()
        for index, text in enumerate(strings):
            packet += int(text, 2).to_bytes(len(text) // 8, "little")
            if ends is None or ends[index]:
                source.send_nowait(AxiStreamFrame(bytes(packet)))
                packet.clear()
        assert not packet, f"{prefix}: the last transfer must end a packet"

    async def take(self, prefix: str, count: int) -> dict[str, Any]:
        """Wait for transfers, whole packets; their fields, and TLAST as ``last``."""
        packets: list[bytes] = []
        lanes = self.sinks[prefix].byte_lanes
        while sum(map(len, packets)) < count * lanes:
            packets.append(bytes((await self.sinks[prefix].recv()).tdata))
        found = sum(map(len, packets)) // lanes
        assert found == count, f"{prefix}: a packet ends after {found} transfers, not {count}"
        return self._fields(prefix, packets)

    async def packet(self, prefix: str) -> dict[str, Any]:
        """Wait for one packet, of any length; as :meth:`take` gives it."""
        return self._fields(prefix, [bytes((await self.sinks[prefix].recv()).tdata)])

    def _fields(self, prefix: str, packets: list[bytes]) -> dict[str, Any]:
        sink = self.sinks[prefix]
        lanes = sink.byte_lanes
        strings: list[str] = []
        last: list[bool] = []
        for data in packets:
            for start in range(0, len(data), lanes):
                number = int.from_bytes(data[start : start + lanes], "little")
                strings.append(f"{number:0{8 * lanes}b}")
                last.append(start + lanes == len(data))
        fields = unpack(self._layout(prefix), strings)
        return fields | {"last": np.array(last)} if hasattr(sink.bus, "tlast") else fields

    async def _check_rules(self, prefix: str) -> None:
        dut = self.env.dut
        parts = [getattr(dut, f"{prefix}_{part}") for part in _PARTS
                 if hasattr(dut, f"{prefix}_{part}")]  # fmt: skip
        valid, ready = getattr(dut, f"{prefix}_tvalid"), getattr(dut, f"{prefix}_tready")
        held = None
        while True:
            await RisingEdge(dut.clk)
            offered = str(valid.value)
            assert offered in "01", f"{prefix}_tvalid is {offered} at clock {self.env.cycle}"
            assert held is None or offered == "1", f"{prefix}_tvalid fell, not taken"
            if offered == "1":
                now = [str(part.value) for part in parts]
                assert set("".join(now)) <= {"0", "1"}, f"{prefix}: unknown bits {now}"
                assert held in (None, now), f"{prefix} changed while waiting: {held}, {now}"
                held = None if str(ready.value) == "1" else now


def diagram(records: dict[str, tuple[list[int], list[int]]]) -> str:
    """Draw a character per clock: ``#`` transfer, ``-`` offered and not taken, else ``.``.

    Parameters
    ----------
    records : dict
        Stream to its valid and ready, a value per clock; clocks before the first offer are left
        out.
    """
    rows = {
        name: "".join(".-"[v] if not (v and r) else "#" for v, r in zip(*pair, strict=True))
        for name, pair in records.items()
    }
    first = min(len(row) - len(row.lstrip(".")) for row in rows.values())
    last = max(len(row.rstrip(".")) for row in rows.values())
    width = max(map(len, rows))
    ruler = "".join(f"{clock:<10}" for clock in range(0, last - first, 10))
    lines = [f"{'clock':<{width}}  {ruler}".rstrip()]
    lines += [f"{name:<{width}}  {row[first:last]}" for name, row in rows.items()]
    return "\n".join(lines)
