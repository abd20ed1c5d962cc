"""AXI4-Stream ports with their standard flat names, over the streams of this project."""

import types
from collections.abc import Iterator
from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["AxiStream", "byte_layout", "flat", "flat_members"]

_PARTS = {
    "tdata": "what is transferred; stable while valid and not ready; bits without field are 0",
    "tvalid": "high while the sender offers a transfer; never waits for ready",
    "tready": "high when the receiver takes the transfer at this clock edge",
    "tlast": "end of the packet",
}


def _whole_bytes(shape: Any) -> Any:
    """Shape of a field in TDATA: elements of an array take whole bytes too."""
    if isinstance(shape, data.ArrayLayout):
        element = 8 * -(-Shape.cast(shape.elem_shape).width // 8)
        return data.ArrayLayout(unsigned(element), shape.length)
    return shape


def byte_layout(shape: data.Layout, last: str | None = None) -> data.FlexibleLayout:
    """Layout of TDATA: every field, and every element of an array, starts at a byte.

    Parameters
    ----------
    shape : data.Layout
        Of the stream's payload; its order is kept.
    last : str, optional
        Field that travels as TLAST, and is left out.
    """
    fields, offset = {}, 0
    for name, field in shape:
        if name != last:
            fields[name] = data.Field(_whole_bytes(field.shape), 8 * offset)
            offset += -(-fields[name].width // 8)
    return data.FlexibleLayout(8 * offset, fields)


class AxiStream(wiring.Signature):
    """AXI4-Stream for payloads of a layout, seen by the sender.

    Parameters
    ----------
    shape : data.Layout
        Payload of the stream it carries.
    last : str, optional
        Field of it that travels as TLAST; without it there is none.
    within : str, optional
        Field that must be set too for TLAST; for a stream that is sent.
    """

    def __init__(self, shape: data.Layout, last: str | None = None, within: str | None = None):
        self.shape = shape
        self.last = last
        self.within = within
        super().__init__({
            "tdata": Out(byte_layout(shape, last)),
            "tvalid": Out(1),
            "tready": In(1),
            **({"tlast": Out(1)} if last else {}),
        })

    def meanings(self, prefix: str, meaning: str) -> dict[str, str]:
        """One line per flat port ``<prefix>_<part>``."""
        return {f"{prefix}_{part}": f"{meaning}: {_PARTS[part]}" for part in self.members}

    def send(self, m: Module, stream: Any, axi: Any, enable: Any) -> None:
        """Connect a stream of the payload to the AXI4-Stream that it feeds.

        Parameters
        ----------
        m : Module
            Gets the assignments.
        stream : stream interface
            Of the payload, its receiver's side.
        axi : interface
            AXI4-Stream port, see :func:`flat`.
        enable : Value
            While it is low nothing is transferred; it must not fall while the stream is valid.
        """
        m.d.comb += [axi.tvalid.eq(stream.valid & enable), stream.ready.eq(axi.tready & enable)]
        for port, value in self._pairs(axi, stream.payload):
            m.d.comb += port.eq(value)
        if self.within:
            ends = stream.payload[self.last] & stream.payload[self.within]
            m.d.comb += axi.tlast.eq(ends)

    def receive(self, m: Module, axi: Any, stream: Any, enable: Any) -> None:
        """Connect an AXI4-Stream to the stream of the payload that it feeds.

        Parameters
        ----------
        m : Module
            Gets the assignments.
        axi : interface
            AXI4-Stream port, see :func:`flat`.
        stream : stream interface
            Of the payload, its sender's side.
        enable : Value
            While it is low nothing is transferred.
        """
        m.d.comb += [stream.valid.eq(axi.tvalid & enable), axi.tready.eq(stream.ready & enable)]
        for port, value in self._pairs(axi, stream.payload):
            m.d.comb += value.eq(port)

    def _pairs(self, axi: Any, payload: Any) -> Iterator[tuple[Value, Value]]:
        for name, field in self.shape:
            port = axi.tlast if name == self.last else axi.tdata[name]
            if isinstance(field.shape, data.ArrayLayout):
                for index in range(field.shape.length):
                    yield Value.cast(port[index]), Value.cast(payload[name][index])
            else:
                yield Value.cast(port), Value.cast(payload[name])


def flat_members(prefix: str, signature: wiring.Signature, *, output: bool) -> dict[str, Any]:
    """Members of a component that has an interface's parts as ports ``<prefix>_<part>``.

    Parameters
    ----------
    prefix : str
        Common beginning of the ports' names.
    signature : Signature
        Seen by the sender or master; it has plain members only.
    output : bool
        Whether the component is the sender or master.
    """
    members = {}
    for part, member in signature.members.items():
        outwards = (member.flow == Out) == output
        members[f"{prefix}_{part}"] = (Out if outwards else In)(member.shape)
    return members


def flat(component: Any, prefix: str, signature: wiring.Signature) -> Any:
    """Interface made of a component's flat ports."""
    ports = {part: getattr(component, f"{prefix}_{part}") for part in signature.members}
    return types.SimpleNamespace(signature=signature, **ports)
