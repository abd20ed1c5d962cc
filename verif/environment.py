"""Environment of the cocotb benches: clock, reset, stream drivers and monitors, comparison.

How to write a bench
--------------------
``verif/tb_<block>.toml`` lists the configurations to run it at (see :mod:`verif.regression`);
``verif/tb_<block>.py`` holds the tests::

    import cocotb
    import numpy as np

    from verif.environment import STALLS, Environment, beats, parameters_under_test
    from golden.parameters import SorterParameters

    P = parameters_under_test(SorterParameters)   # of the configuration that is running


    @cocotb.test()
    @cocotb.parametrize(i_stall=STALLS, o_stall=STALLS)
    async def matches_golden(dut, i_stall, o_stall):
        env = await Environment.start(dut)         # clock runs, reset is over
        count = beats(verilator=2000, icarus=40)   # Icarus is about 200 times slower
        groups = {
            "key": env.rng.integers(2**P.key_width, size=(count, P.ways)),
            "index": env.rng.integers(2**P.index_width, size=(count, P.ways)),
        }
        env.source("i", stall=i_stall).send(groups)
        got = await env.sink("o", stall=o_stall).take(count)
        env.compare("o", got, golden(groups))

Payloads
    A payload is given and taken for a whole run at once, the beat first: an array of shape
    ``(beats,)`` if the payload is a number; for a struct a dict of them by field; an array layout
    adds an axis: ``{"lo": {"key": (beats, ways), "index": (beats, ways)}, "mode": (beats,)}``.
    Fields are unsigned integers, enum members count as their values; a field wider than 64 bits (a
    mask) is an axis of its bits, the lowest first; :func:`as_bits` makes that of any field.
    :func:`pack` and :func:`unpack` do it; layouts come from the component, so that the bench never
    slices bits.

Streams
    ``env.source(name, stall=)`` drives an input stream, ``env.sink(name, stall=)`` takes an output
    stream; names as in the component (``i``, ``o_sort``, ``lanes__0``). Call them once per stream
    and test. Output streams without a sink of the test's are taken without stalls, and monitored
    all the same. `Source.send` queues beats and returns at once; ``await source.sent()`` waits
    until all are accepted; ``await sink.take(n)`` waits for the next n beats and returns them.
    ``source.cycles`` and ``sink.cycles`` are the clock numbers of the accepted beats: latency is a
    difference of the two, the initiation interval one of neighbours; :func:`check_full_rate` tests
    both.

Stalls
    ``"never"``: every clock; ``"random"``: each clock with one probability, drawn once;
    ``"bursts"``: runs of go and wait, 1 to about 30 clocks; ``"sparse"``: one beat, then a long
    wait; a sink also has ``"late"``: ready rises only after valid has been seen, so that a
    valid that waits for ready hangs. `STALLS` are those for both sides. An iterator of booleans,
    one per clock, serves as well.

Rules checked on every output stream, always: valid is never unknown; valid does not fall, and
payload does not change, until ready; a valid payload has no unknown bit (Icarus); no valid during
reset. While an input's valid is low its payload is unknown (Icarus) or wrong (Verilator).

Other ports
    Inputs start at their ``init``. ``env.set("clear", 1)`` sets one from the next clock on;
    ``env.get("busy")`` is an output after the latest clock edge; ``env.record("busy")`` returns a
    list that grows by the port's value just before each clock edge; ``await env.clocks(n)`` waits.

Reset in mid-operation
    ``await env.reset()`` drops what sources still have queued and what sinks hold, and starts
    again; it checks that nothing is valid afterwards.

Randomness
    ``env.rng`` (NumPy) depends on the seed and on the test's name only. ``SEED`` is the seed,
    ``SIMULATOR`` the simulator. Do not seed anything else. For hypothesis-generated cases use the
    tests of the Amaranth simulator.

Time
    The clock stops with an error after ``Environment.start(dut, timeout=clocks)``; the message
    says where each stream stands.
"""

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, TypeVar

import cocotb
import numpy as np
from amaranth.hdl import Const, Shape, Value
from amaranth.lib import data
from cocotb.triggers import Event, NullTrigger, Timer
from numpy.typing import NDArray

from golden.llm.trace import EMBEDDED, Trace
from golden.parameters import Parameters
from rtl.catalogue import block as find_block
from rtl.generate import component_ports

__all__ = [
    "BLOCK",
    "SEED",
    "SIMULATOR",
    "STALLS",
    "Environment",
    "Sink",
    "Source",
    "as_bits",
    "beats",
    "compare",
    "pack",
    "parameters_under_test",
    "trace_under_test",
    "unpack",
]

BLOCK = os.environ.get("KVSMITH_BLOCK", "")
SIMULATOR = os.environ.get("KVSMITH_SIMULATOR", "verilator")
SEED = int(os.environ.get("COCOTB_RANDOM_SEED", "0"))
STALLS = ("never", "random", "bursts", "sparse")

_PERIOD = 10
_FOUR_STATE = SIMULATOR == "icarus"
_INVERT = str.maketrans("01", "10")

P = TypeVar("P", bound=Parameters)


def parameters_under_test(kind: type[P]) -> P:
    """Parameters of the configuration that is running; the defaults outside a simulation."""
    return kind.parse(json.loads(os.environ.get("KVSMITH_PARAMETERS", "{}")))


def trace_under_test() -> Trace:
    """Decode trace to replay: the one that comes with the project unless another one was given."""
    return Trace.load(os.environ.get("KVSMITH_TRACE", EMBEDDED))


def beats(*, verilator: int, icarus: int) -> int:
    """Length of a run: many beats in the fast simulator, few in the four-state one."""
    return icarus if _FOUR_STATE else verilator


def _cast(shape: Any) -> Any:
    if isinstance(shape, type) and issubclass(shape, data.Struct | data.Union):
        return data.Layout.cast(shape)
    return shape if isinstance(shape, data.Layout) else None


def _fill(bits: NDArray[np.uint8], shape: Any, values: Any) -> None:
    """Write values into the last axis of ``bits``, the lowest bit first."""
    layout = _cast(shape)
    if isinstance(layout, data.ArrayLayout):
        split = bits.reshape(*bits.shape[:-1], layout.length, bits.shape[-1] // layout.length)
        _fill(split, layout.elem_shape, values)
    elif layout is not None:
        names = {key for key, _ in layout}
        if set(values) != names:
            raise ValueError(f"Fields must be {sorted(names)}, not {sorted(values)}")
        for key, field in layout:
            place = slice(field.offset, field.offset + field.width)
            _fill(bits[..., place], field.shape, values[key])
    elif bits.shape[-1] > 64:
        bits[...] = values
    else:
        width = bits.shape[-1]
        numbers = np.asarray(values).astype(np.uint64)
        if width < 64 and (numbers >> np.uint64(width)).any():
            raise ValueError(f"Field of {width} bits cannot hold {int(numbers.max())}")
        bits[...] = (numbers[..., None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)


def pack(shape: Any, values: Any) -> list[str]:
    """Bit strings, the highest bit first, of a payload's values (see the module's docstring)."""
    leaf = values
    while isinstance(leaf, dict):
        leaf = next(iter(leaf.values()))
    width = Shape.cast(shape).width
    bits = np.zeros((len(leaf), width), np.uint8)
    _fill(bits, shape, values)
    text = (bits[:, ::-1] + ord("0")).astype(np.uint8).tobytes().decode()
    return [text[start : start + width] for start in range(0, len(text), width)]


def _read(bits: NDArray[np.uint8], shape: Any) -> Any:
    layout = _cast(shape)
    if isinstance(layout, data.ArrayLayout):
        shape = (*bits.shape[:-1], layout.length, bits.shape[-1] // layout.length)
        return _read(bits.reshape(shape), layout.elem_shape)
    if layout is not None:
        return {
            key: _read(bits[..., field.offset : field.offset + field.width], field.shape)
            for key, field in layout
        }
    if bits.shape[-1] > 64:
        return bits.astype(bool)
    weights = np.uint64(1) << np.arange(bits.shape[-1], dtype=np.uint64)
    return (bits * weights).sum(axis=-1, dtype=np.uint64)


def as_bits(values: NDArray[Any], width: int) -> NDArray[np.bool_]:
    """Bits, the lowest first, of a field of any width as :func:`unpack` gives it."""
    if width > 64:
        return values.astype(bool)
    places = np.arange(width, dtype=np.uint64)
    return (values.astype(np.uint64)[..., None] >> places & np.uint64(1)).astype(bool)


def unpack(shape: Any, strings: list[str]) -> Any:
    """Inverse of :func:`pack`: values, ``uint64`` (bits of a wide field: bool), of bit strings."""
    width = Shape.cast(shape).width
    text = np.frombuffer("".join(strings).encode(), np.uint8).reshape(len(strings), width)
    return _read((text - ord("0"))[:, ::-1], shape)


def _leaves(values: Any, path: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, np.asarray(values)


def compare(name: str, got: Any, expected: Any) -> None:
    """Fail at the first difference of two payloads, telling where and how to replay it."""
    replay = f"kvsmith verify {BLOCK} --seed {SEED} --simulator {SIMULATOR}"
    wanted = dict(_leaves(expected))
    received = dict(_leaves(got))
    assert set(wanted) <= set(received), f"{name} has no {sorted(set(wanted) - set(received))}"
    first: list[tuple[tuple[int, ...], str, str]] = []
    wrong: set[int] = set()
    count = 0
    for field, values in wanted.items():
        other = received[field]
        if values.shape != other.shape:
            raise AssertionError(
                f"{name} {field}: expected shape {values.shape}, got {other.shape}; "
                f"replay: {replay}"
            )
        count = len(values)
        different = np.argwhere(values.astype(np.uint64) != other.astype(np.uint64))
        if len(different):
            place = tuple(different[0].tolist())
            wrong.update(different[:, 0].tolist())
            text = f"expected {int(values[place]):#x}, got {int(other[place]):#x}"
            first.append((place, field, text))
    if first:
        (beat, *entry), field, text = min(first)
        where = "".join(f", entry {index}" for index in entry) + (f", {field}" if field else "")
        raise AssertionError(
            f"{name} beat {beat}{where}: {text} ({len(wrong)} of {count} beats differ; "
            f"seed {SEED}; replay: {replay})"
        )


def _going(stall: str | Iterable[bool], rng: np.random.Generator) -> Iterator[bool] | None:
    """Whether to go, one per clock; None: always."""
    if stall == "never":
        return None
    if not isinstance(stall, str):
        return iter(stall)
    if stall == "random":
        probability = rng.uniform(0.1, 0.9)
        blocks = (rng.random(1024) < probability for _ in repeat(None))
        return chain.from_iterable(block.tolist() for block in blocks)
    if stall in ("bursts", "sparse"):
        go, wait = (8, 8) if stall == "bursts" else (1, 16)

        def runs():
            while True:
                yield from repeat(True, 1 if go == 1 else int(rng.geometric(1 / go)))
                yield from repeat(False, int(rng.geometric(1 / wait)))

        return runs()
    raise ValueError(f"Unknown stall {stall!r}: known are {', '.join(STALLS)}, late")


def _member(component: Any, name: str) -> Any:
    """Member of a component that the ports of that name belong to."""
    member = component
    for part in name.split("__"):
        member = member[int(part)] if part.isdigit() else getattr(member, part)
    return member


class _Stream:
    """What both ends of a stream share: its ports, its layout, and whom to wake at which count."""

    def __init__(self, env: "Environment", name: str, stall: str | Iterable[bool]):
        self.env, self.name = env, name
        member = _member(env.component, name)
        self.shape: Any = member.signature.members["payload"].shape
        self.payload = getattr(env.dut, f"{name}__payload")
        constant_valid = isinstance(member.valid, Const)
        self.valid = None if constant_valid else getattr(env.dut, f"{name}__valid")
        always_ready = isinstance(member.ready, Const)
        self.ready = None if always_ready else getattr(env.dut, f"{name}__ready")
        self.cycles: list[int] = []
        self.going = _going(stall, env.rng) if stall != "late" else None


class Source(_Stream):
    """Driver of an input stream.

    Attributes
    ----------
    cycles : list of int
        Clock numbers of the accepted beats.
    """

    def __init__(self, env: "Environment", name: str, stall: str | Iterable[bool]):
        super().__init__(env, name, stall)
        self.queue: list[str] = []
        self.offering = False
        self._idle("0" * len(self.payload))

    def send(self, values: Any) -> None:
        """Queue beats: values as :func:`pack` takes them, or its bit strings."""
        ready_made = isinstance(values, list) and (not values or isinstance(values[0], str))
        self.queue.extend(values if ready_made else pack(self.shape, values))

    async def sent(self) -> None:
        """Wait until all queued beats have been accepted."""
        await self.env.until(lambda: len(self.cycles) >= len(self.queue))

    def _idle(self, last: str) -> None:
        if self.valid is not None:
            self.valid.value = 0
        self.payload.value = "X" * len(last) if _FOUR_STATE else last.translate(_INVERT)
        self.offering = False

    def _drive(self) -> None:
        sent = len(self.cycles)
        if self.offering and self.accepted:
            if sent == len(self.queue) or (self.going is not None and not next(self.going)):
                self._idle(self.queue[sent - 1])
            else:
                self.payload.value = self.queue[sent]
        elif not self.offering and sent < len(self.queue):
            if self.going is None or next(self.going):
                self.payload.value = self.queue[sent]
                if self.valid is not None:
                    self.valid.value = 1
                self.offering = True

    def _sample(self, cycle: int) -> None:
        if not self.offering:
            return
        self.accepted = True
        if self.ready is not None:
            ready = str(self.ready.value)
            assert ready in "01", f"{self.name}__ready is {ready} at clock {cycle}"
            self.accepted = ready == "1"
        if self.accepted:
            self.cycles.append(cycle)

    def _reset(self) -> None:
        self.queue.clear()
        self.cycles.clear()
        self._idle("0" * len(self.payload))

    def _state(self) -> str:
        return f"{self.name} sent {len(self.cycles)} of {len(self.queue)}"


class Sink(_Stream):
    """Monitor and receiver of an output stream.

    Attributes
    ----------
    cycles : list of int
        Clock numbers of the accepted beats.
    """

    def __init__(self, env: "Environment", name: str, stall: str | Iterable[bool]):
        super().__init__(env, name, stall)
        self.late = stall == "late"
        if self.ready is None and (self.late or self.going is not None):
            raise ValueError(f"Stream {name} is always ready: its sink cannot stall")
        self.accepted: list[str] = []
        self.taken = 0
        self.stalled: str | None = None
        self.willing = self.going is None and not self.late
        if self.ready is not None:
            self.ready.value = int(self.willing)

    async def take(self, count: int) -> Any:
        """Wait for the next ``count`` beats; their values as :func:`unpack` gives them."""
        await self.env.until(lambda: len(self.accepted) >= self.taken + count)
        strings = self.accepted[self.taken : self.taken + count]
        self.taken += count
        return unpack(self.shape, strings)

    def pending(self) -> int:
        """Beats accepted and not yet taken by the test."""
        return len(self.accepted) - self.taken

    def _drive(self) -> None:
        if self.late:
            willing = self.stalled is not None
        elif self.going is not None:
            willing = next(self.going)
        else:
            return
        if willing != self.willing:
            self.willing = willing
            if self.ready is not None:
                self.ready.value = int(willing)

    def _sample(self, cycle: int) -> None:
        if self.valid is not None:
            valid = str(self.valid.value)
            if valid == "0":
                assert self.stalled is None, f"{self.name}: valid fell at clock {cycle}, not taken"
                return
            assert valid == "1", f"{self.name}__valid is {valid} at clock {cycle}"
        payload = str(self.payload.value)
        if self.stalled is not None:
            assert payload == self.stalled, f"{self.name}: payload changed at clock {cycle}"
        elif _FOUR_STATE:
            unknown = [len(payload) - 1 - i for i, bit in enumerate(payload) if bit not in "01"]
            assert not unknown, f"{self.name}: unknown payload bits {unknown} at clock {cycle}"
        if self.willing:
            self.accepted.append(payload)
            self.cycles.append(cycle)
            self.stalled = None
        else:
            self.stalled = payload

    def _reset(self) -> None:
        self.accepted.clear()
        self.cycles.clear()
        self.taken, self.stalled = 0, None

    def _quiet(self) -> None:
        if self.valid is not None:
            valid = str(self.valid.value)
            assert valid == "0", f"{self.name}__valid is {valid} in reset"

    def _state(self) -> str:
        return f"{self.name} received {len(self.accepted)}"


def check_full_rate(source: Source, sink: Sink, latency: int) -> None:
    """Fail unless a beat was accepted in every clock, and left ``latency`` clocks later."""
    first = source.cycles[0]
    for stream, start in ((source, first), (sink, first + latency)):
        expected = range(start, start + len(source.cycles))
        assert stream.cycles == list(expected), (
            f"{stream.name}: expected beats in clocks {expected.start} to {expected.stop - 1}, "
            f"one in each, got {stream.cycles}"
        )


class Environment:
    """Clock, reset and streams of the block under test; made by :meth:`start`.

    Attributes
    ----------
    component : wiring.Component
        The Amaranth component with the same parameters, for its layouts; it is not simulated.
    parameters : Parameters
    rng : numpy.random.Generator
        Depends on the seed and the test's name.
    cycle : int
        Clock edges so far.
    """

    def __init__(self, dut: Any, timeout: int):
        entry = find_block(BLOCK)
        self.dut, self.timeout = dut, timeout
        self.parameters = parameters_under_test(entry.parameters)
        self.component: Any = entry.make(self.parameters)
        self.rng = np.random.default_rng(random.getrandbits(64))  # cocotb seeds it for each test
        self.cycle = 0
        self.sources: dict[str, Source] = {}
        self.sinks: dict[str, Sink] = {}
        self._waiting: list[tuple[Callable[[], bool], Event]] = []
        self._records: list[tuple[Any, list[int]]] = []
        self._reset_clocks: int | None = 0
        self._deadline = timeout

    @classmethod
    async def start(cls, dut: Any, *, timeout: int = 100_000) -> "Environment":
        """Start the clock, reset, and give every stream a source or sink without stalls.

        Parameters
        ----------
        dut : handle
            What cocotb passes to the test.
        timeout : int
            Clocks after which the test fails, counted anew from each reset.
        """
        env = cls(dut, timeout)
        for port in component_ports(env.component):
            name = port.get("stream")
            if name is None:
                if port["direction"] == "input":
                    signal = Value.cast(_member(env.component, port["name"]))
                    env.set(port["name"], getattr(signal, "init", 0))
            elif port["name"].endswith("__payload"):
                env.source(name) if port["direction"] == "input" else env.sink(name)
        cocotb.start_soon(env._run())
        await env.reset()
        return env

    def source(self, name: str, stall: str | Iterable[bool] = "never") -> Source:
        """Driver of that input stream; before its first beat."""
        self.sources[name] = Source(self, name, stall)
        return self.sources[name]

    def sink(self, name: str, stall: str | Iterable[bool] = "never") -> Sink:
        """Receiver of that output stream; before its first beat."""
        self.sinks[name] = Sink(self, name, stall)
        return self.sinks[name]

    def set(self, name: str, value: int) -> None:
        """Set an input that belongs to no stream, for the next clock edge on."""
        getattr(self.dut, name).value = value

    def get(self, name: str) -> int:
        """Value of an output after the latest clock edge; unknown bits are an error."""
        value = str(getattr(self.dut, name).value)
        assert set(value) <= {"0", "1"}, f"{name} is {value} after clock {self.cycle}"
        return int(value, 2)

    def record(self, name: str) -> list[int]:
        """List that grows by the port's value just before each clock edge, from now on."""
        values: list[int] = []
        self._records.append((name, values))
        return values

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds, tested after each clock edge; at once if it does now."""
        if not reached():
            event = Event()
            self._waiting.append((reached, event))
            await event.wait()

    async def clocks(self, count: int) -> None:
        """Wait for that many clock edges."""
        target = self.cycle + count
        await self.until(lambda: self.cycle >= target)

    async def reset(self, clocks: int = 2) -> None:
        """Reset for ``clocks`` edges; queued and received beats are dropped."""
        self._reset_clocks = 0
        if hasattr(self.dut, "rst"):
            self.dut.rst.value = 1
        for stream in (*self.sources.values(), *self.sinks.values()):
            stream._reset()
        await self.clocks(clocks)
        if hasattr(self.dut, "rst"):
            self.dut.rst.value = 0
        self._reset_clocks = None
        self._deadline = self.cycle + self.timeout

    def compare(self, name: str, got: Any, expected: Any) -> None:
        """See :func:`compare`."""
        compare(name, got, expected)

    def _state(self) -> str:
        return ", ".join(s._state() for s in (*self.sources.values(), *self.sinks.values()))

    async def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        woken = False
        for reached, event in waiting:
            if reached():
                event.set()
                woken = True
            else:
                self._waiting.append((reached, event))
        if woken:
            await NullTrigger()  # let the test go on before this clock's inputs are driven

    def _sample(self) -> None:
        if self._reset_clocks is None:
            for stream in (*self.sources.values(), *self.sinks.values()):
                stream._sample(self.cycle)
        else:
            # In Icarus registers start unknown: nothing holds before the first edge of a reset.
            if self._reset_clocks or (self.cycle == 0 and not _FOUR_STATE):
                for sink in self.sinks.values():
                    sink._quiet()
            self._reset_clocks += 1
        for name, values in self._records:
            values.append(self.get(name))

    async def _run(self) -> None:
        """One clock after the other; the only task that touches streams.

        Inputs change at the falling edge, outputs are read just before the rising one, when both
        have settled: no simulator's order of events matters.
        """
        clock = getattr(self.dut, "clk", None)
        while True:
            if clock is not None:
                clock.value = 0
            if self._waiting:
                await self._wake()
            if self._reset_clocks is None:
                for stream in (*self.sources.values(), *self.sinks.values()):
                    stream._drive()
            await Timer(_PERIOD // 2, "ns")
            self._sample()
            self.cycle += 1
            if self.cycle > self._deadline:
                raise AssertionError(f"No end after {self.timeout} clocks: {self._state()}")
            if clock is not None:
                clock.value = 1
            await Timer(_PERIOD // 2, "ns")
