"""The one memory wrapper: every storage larger than a few registers goes through it."""

import contextvars
import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.hdl import Array, ClockSignal, Fragment, Instance, Module, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = [
    "Memory",
    "MemoryShape",
    "black_boxes",
    "connecting",
    "memories",
    "random_contents",
    "recording",
    "without_contents",
]

_PORTS = ("1r1w", "1rw")
_STORAGES = ("array", "registers")

_black_boxes: contextvars.ContextVar[bool] = contextvars.ContextVar("black_boxes", default=False)
_random: contextvars.ContextVar[random.Random | None] = contextvars.ContextVar(
    "random", default=None
)
_found: contextvars.ContextVar["list[MemoryShape] | None"] = contextvars.ContextVar(
    "found", default=None
)


@dataclasses.dataclass(frozen=True)
class _Connections:
    """What black boxes get beside their ports."""

    enable: Value | None = None
    sideband: Value | None = None


_UNCONNECTED = _Connections()
_connections: contextvars.ContextVar[_Connections] = contextvars.ContextVar(
    "connections", default=_UNCONNECTED
)


@dataclasses.dataclass(frozen=True)
class MemoryShape:
    """Shape of a memory.

    Parameters
    ----------
    depth : int
        Rows, at least 2.
    width : int
        Bits of a row, at least 1.
    ports : {"1r1w", "1rw"}
        One read and one write port, or one port for both.
    granularity : int, optional
        Bits that one write enable covers; divides ``width``. Unset: the whole row.
    sideband : int
        Bits of the black box's port ``i_sideband``; 0: it has none. See :func:`connecting`.

    Raises
    ------
    TypeError
        If a number is no integer.
    ValueError
        If a value is out of its range.
    """

    depth: int
    width: int
    ports: str = "1r1w"
    granularity: int | None = None
    sideband: int = 0

    def __post_init__(self):
        for name, value, minimum in (
            ("Depth", self.depth, 2),
            ("Width", self.width, 1),
            ("Granularity", self.granularity, 1),
            ("Sideband", self.sideband, 0),
        ):
            if value is None and name == "Granularity":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, not {value!r}")
            if value < minimum:
                raise ValueError(f"{name} must be at least {minimum}, not {value!r}")
        if self.ports not in _PORTS:
            raise ValueError(f"Ports must be one of {', '.join(_PORTS)}, not {self.ports!r}")
        if self.granularity and self.width % self.granularity:
            raise ValueError(
                f"Granularity must divide width ({self.width}), not {self.granularity!r}"
            )

    @property
    def enables(self) -> int:
        """Write enables of a row."""
        return self.width // self.granularity if self.granularity else 1

    @property
    def macro(self) -> str:
        """Verilog module that stands for this memory in a netlist of black boxes."""
        suffix = f"_g{self.granularity}" if self.granularity else ""
        return f"kvsmith_mem_{self.ports}_{self.depth}x{self.width}{suffix}"


@contextmanager
def black_boxes() -> Iterator[None]:
    """Elaborate memories as instances of modules that the user supplies, one per shape."""
    token = _black_boxes.set(True)
    try:
        yield
    finally:
        _black_boxes.reset(token)


@contextmanager
def connecting(*, enable: Value, sideband: Value | None = None) -> Iterator[None]:
    """Give the memories that are elaborated meanwhile what black boxes need beside their ports.

    Parameters
    ----------
    enable : Value
        Clock enable of the logic around them (``EnableInserter``), which does not reach inside a
        black box: while it is low, the instance is neither read nor written.
    sideband : Value, optional
        Test, repair and margin pins, of no meaning here: every instance gets them as
        ``i_sideband``.
    """
    token = _connections.set(_Connections(enable, sideband))
    try:
        yield
    finally:
        _connections.reset(token)


@contextmanager
def random_contents(seed: int) -> Iterator[None]:
    """Elaborate memories with random contents, for simulation."""
    token = _random.set(random.Random(seed))
    try:
        yield
    finally:
        _random.reset(token)


@contextmanager
def recording() -> Iterator[list[MemoryShape]]:
    """List the memories that are elaborated meanwhile, registers excepted."""
    found: list[MemoryShape] = []
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def memories(component: wiring.Component) -> list[MemoryShape]:
    """Memories inside a component, in the order of elaboration."""
    with recording() as found:
        Fragment.get(component, None)
    return found


def without_contents(verilog: str) -> str:
    """Remove the initial contents of memories, which no silicon has, from emitted Verilog."""
    kept, inside = [], False
    lines = verilog.splitlines(keepends=True)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        text = line.strip()
        inside = inside or (text == "initial begin" and "] = " in following)
        if not inside:
            kept.append(line)
        inside = inside and text != "end"
    return "".join(kept)


class Memory(wiring.Component):
    """Rows with synchronous read, without reset and without known contents at power-up.

    A read enabled in one clock shows its row in the next; ``read_data`` then holds until a read is
    enabled again. A row that is read while it is written gives its old contents here; a macro may
    give anything, so nothing may depend on it. An address beyond the depth must not be used.

    Inside :func:`black_boxes` it becomes an instance of the module ``shape.macro`` with ports of
    the same names, prefixed ``i_`` or ``o_``, plus ``i_clk``, and ``i_sideband`` inside
    :func:`connecting` with one.

    Parameters
    ----------
    shape : MemoryShape
    storage : {"array", "registers"}
        ``registers``: flip-flops, for a few rows; never a black box, and not listed.

    Members
    -------
    read_en, read_addr, read_data
        Read port of ``1r1w``.
    write_en, write_addr, write_data
        Write port of ``1r1w``; one bit of ``write_en`` per ``granularity`` bits.
    en, addr, write_en, write_data, read_data
        Port of ``1rw``: a row is read if ``en`` and no bit of ``write_en`` is set, written if
        ``en`` and some are.
    """

    def __init__(self, shape: MemoryShape, storage: str = "array"):
        if storage not in _STORAGES:
            raise ValueError(f"Storage must be one of {', '.join(_STORAGES)}, not {storage!r}")
        self.shape = shape
        self.storage = storage
        address = ceil_log2(shape.depth)
        if shape.ports == "1r1w":
            control = {
                "read_en": In(1),
                "read_addr": In(address),
                "write_addr": In(address),
            }
        else:
            control = {"en": In(1), "addr": In(address)}
        super().__init__(control | {
            "read_data": Out(shape.width),
            "write_en": In(shape.enables),
            "write_data": In(shape.width),
        })

    def elaborate(self, platform):
        m = Module()

        if self.storage == "registers":
            self._registers(m)
            return m
        found, shape = _found.get(), self.shape
        if _black_boxes.get():
            sideband = _connections.get().sideband
            shape = dataclasses.replace(shape, sideband=0 if sideband is None else len(sideband))
            self._instance(m)
        else:
            self._array(m)
        if found is not None:
            found.append(shape)
        return m

    def _contents(self) -> list[int]:
        source = _random.get()
        if source is None:
            return []
        return [source.getrandbits(self.shape.width) for _ in range(self.shape.depth)]

    def _access(self):
        """Read enable and address, write enables and address, whatever the ports."""
        if self.shape.ports == "1r1w":
            return self.read_en, self.read_addr, self.write_en, self.write_addr
        write = self.write_en & self.en.replicate(self.shape.enables)
        return self.en & ~self.write_en.any(), self.addr, write, self.addr

    def _array(self, m):
        m.submodules.words = words = memory.Memory(
            shape=self.shape.width, depth=self.shape.depth, init=self._contents()
        )
        read = words.read_port()
        write = words.write_port(granularity=self.shape.granularity)
        read_en, read_addr, write_en, write_addr = self._access()

        m.d.comb += [
            read.en.eq(read_en),
            read.addr.eq(read_addr),
            self.read_data.eq(read.data),
            write.en.eq(write_en),
            write.addr.eq(write_addr),
            write.data.eq(self.write_data),
        ]

    def _registers(self, m):
        contents = self._contents() or [0] * self.shape.depth
        rows = Array(
            Signal(self.shape.width, name=f"row_{row}", init=init, reset_less=True)
            for row, init in enumerate(contents)
        )
        output = Signal(self.shape.width, reset_less=True)
        step = self.shape.granularity or self.shape.width
        read_en, read_addr, write_en, write_addr = self._access()

        m.d.comb += self.read_data.eq(output)
        with m.If(read_en):
            m.d.sync += output.eq(rows[read_addr])
        for row, stored in enumerate(rows):
            for part in range(self.shape.enables):
                bits = slice(part * step, (part + 1) * step)
                with m.If(write_en[part] & (write_addr == row)):
                    m.d.sync += stored[bits].eq(self.write_data[bits])

    def _instance(self, m):
        connections = _connections.get()
        ports: dict[str, Any] = {"i_i_clk": ClockSignal()}
        for path, member, value in self.signature.flatten(self):
            direction = "i" if member.flow == In else "o"
            if connections.enable is not None and str(path[0]).endswith("en"):
                value = value & connections.enable.replicate(len(value))
            ports[f"{direction}_{direction}_{path[0]}"] = value
        if connections.sideband is not None:
            ports["i_i_sideband"] = connections.sideband
        m.submodules.macro = Instance(self.shape.macro, **ports)
