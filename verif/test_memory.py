# amaranth: UnusedElaboratable=no
"""Unit tests of :class:`rtl.memory.Memory`, in the Amaranth simulator."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Signal

from rtl.memory import (
    Memory,
    MemoryShape,
    black_boxes,
    connecting,
    memories,
    random_contents,
    recording,
    without_contents,
)
from verif import sim

SHAPES = [
    MemoryShape(2, 1),
    MemoryShape(5, 12, "1r1w", 4),
    MemoryShape(8, 16, "1rw"),
    MemoryShape(6, 12, "1rw", 3),
]


def masked(shape, enables):
    """Bits that the write enables cover."""
    step = shape.granularity or shape.width
    return sum(((1 << step) - 1) << step * n for n in range(shape.enables) if enables >> n & 1)


@pytest.mark.parametrize("storage", ["array", "registers"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.macro)
def test_reads_what_was_written(shape, storage):
    """Random traffic: enables, held output; a row read while written gives its old contents."""
    rng = np.random.default_rng(shape.depth)
    dut = Memory(shape, storage)
    rows = [None] * shape.depth
    single = shape.ports == "1rw"

    async def bench(ctx):
        expected = None
        for row in [*range(shape.depth), *rng.integers(shape.depth, size=300).tolist()]:
            first = rows[row] is None
            enables = (1 << shape.enables) - 1 if first else int(rng.integers(1 << shape.enables))
            value = int(rng.integers(1 << shape.width))
            other = row if single else int(rng.integers(shape.depth))
            en, read = (int(first or rng.integers(4) > 0) for _ in range(2))
            ctx.set(dut.write_data, value)
            if single:
                ctx.set(dut.en, en)
                ctx.set(dut.addr, row)
                ctx.set(dut.write_en, enables)
                read, enables = en and not enables, enables if en else 0
            else:
                ctx.set(dut.write_en, enables)
                ctx.set(dut.write_addr, row)
                ctx.set(dut.read_en, read)
                ctx.set(dut.read_addr, other)
            if read:
                expected = rows[other]
            if enables:
                bits = masked(shape, enables)
                rows[row] = (rows[row] or 0) & ~bits | value & bits
            await ctx.tick()
            if expected is not None:
                assert ctx.get(dut.read_data) == expected

    sim.run(dut, bench)


@pytest.mark.parametrize("storage", ["array", "registers"])
def test_random_contents_are_random_and_reproducible(storage):
    def first_rows(seed):
        rows = []

        async def bench(ctx):
            ctx.set(dut.read_en, 1)
            for row in range(8):
                ctx.set(dut.read_addr, row)
                await ctx.tick()
                rows.append(ctx.get(dut.read_data))

        with random_contents(seed):
            dut = Memory(MemoryShape(8, 32), storage)
            sim.run(dut, bench)
        return rows

    assert first_rows(1) == first_rows(1) != first_rows(2)
    assert len(set(first_rows(1))) == 8


def emit(component):
    return verilog.convert(component, emit_src=False, strip_internal_attrs=True)


def test_emitted_memory_has_no_contents():
    text = emit(Memory(MemoryShape(4, 8)))
    assert "initial begin" in text
    stripped = without_contents(text)
    assert "initial" not in stripped
    assert [line for line in text.splitlines() if "rows[" in line and " = " not in line] == [
        line for line in stripped.splitlines() if "rows[" in line
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.macro)
def test_black_box_is_an_instance_with_the_same_ports(shape):
    with black_boxes():
        text = emit(Memory(shape))
    instance = re.search(rf"{shape.macro} macro \((.*?)\);", text, re.DOTALL)
    assert instance is not None
    found = set(re.findall(r"\.(\w+)\((\w+)\)", instance[1]))
    names = {"read_data", "write_data", "write_en"}
    names |= {"read_en", "read_addr", "write_addr"} if shape.ports == "1r1w" else {"en", "addr"}
    wanted = {(f"{'o' if name == 'read_data' else 'i'}_{name}", name) for name in names}
    assert found == wanted | {("i_clk", "clk")}
    assert "reg" not in text


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.macro)
def test_black_box_gets_sideband_and_is_still_while_disabled(shape):
    enable, sideband = Signal(name="clock_enable"), Signal(7, name="pins")
    with black_boxes(), connecting(enable=enable, sideband=sideband), recording() as found:
        text = verilog.convert(
            dut := Memory(shape),
            ports=[enable, sideband, *(value for _, _, value in dut.signature.flatten(dut))],
            emit_src=False, strip_internal_attrs=True,
        )  # fmt: skip
    ports = dict(re.findall(r"\.i_(\w+)\((.+?) ?\)", text))
    gates = dict(re.findall(r"assign (\S+) += (.*);", text))

    assert found == [dataclasses.replace(shape, sideband=7)]
    assert ports["sideband"] == "pins"
    for name in ("read_en", "write_en") if shape.ports == "1r1w" else ("en", "write_en"):
        source = gates[ports[name]]
        assert re.search(rf"\b{name}\b", source) and "clock_enable" in source


def test_sideband_is_for_black_boxes_only():
    with connecting(enable=Signal(), sideband=Signal(3)):
        assert memories(Memory(MemoryShape(4, 8))) == [MemoryShape(4, 8)]


def test_names_of_macros():
    assert [shape.macro for shape in SHAPES] == [
        "kvsmith_mem_1r1w_2x1",
        "kvsmith_mem_1r1w_5x12_g4",
        "kvsmith_mem_1rw_8x16",
        "kvsmith_mem_1rw_6x12_g3",
    ]


def test_memories_are_listed_and_registers_are_not():
    shape = MemoryShape(4, 8)
    assert memories(Memory(shape)) == [shape]
    assert memories(Memory(shape, "registers")) == []
    with recording() as found, black_boxes():
        emit(Memory(shape))
    assert found == [shape]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((1, 8), ValueError, "Depth must be at least 2, not 1"),
        ((4, 0), ValueError, "Width must be at least 1, not 0"),
        ((4, True), TypeError, "Width must be an integer, not True"),
        ((4.0, 8), TypeError, "Depth must be an integer, not 4.0"),
        ((4, 8, "2rw"), ValueError, "Ports must be one of 1r1w, 1rw, not '2rw'"),
        ((4, 8, "1rw", 3), ValueError, "Granularity must divide width (8), not 3"),
        ((4, 8, "1rw", 0), ValueError, "Granularity must be at least 1, not 0"),
        ((4, 8, "1rw", None, -1), ValueError, "Sideband must be at least 0, not -1"),
    ],
)
def test_rejects_bad_shapes(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        MemoryShape(*arguments)


def test_rejects_unknown_storage():
    message = "Storage must be one of array, registers, not 'sram'"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Memory(MemoryShape(4, 8), "sram")
