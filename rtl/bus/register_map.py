"""Register maps: one SystemRDL description yields decoder, documentation table and C header."""

import dataclasses
import enum
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peakrdl_cheader.exporter import CHeaderExporter
from systemrdl.compiler import RDLCompiler
from systemrdl.messages import MessagePrinter
from systemrdl.node import AddrmapNode, FieldNode, Node
from systemrdl.rdltypes.builtin_enums import AccessType, OnWriteType

__all__ = ["Access", "Field", "Register", "RegisterMap"]

_BYTES = 4


class Access(enum.Enum):
    """What software can do with a field."""

    CONSTANT = "constant"
    READ = "read"
    READ_WRITE = "read, write"
    CLEAR = "read, write 1 to clear"
    PULSE = "write 1 to act"
    COUNTER = "read, write to clear"

    @property
    def writable(self) -> bool:
        """Whether a write has an effect."""
        return self not in (Access.CONSTANT, Access.READ)


@dataclasses.dataclass(frozen=True)
class Field:
    """Field of a register.

    Parameters
    ----------
    name, meaning : str
    low, width : int
        Place of its lowest bit, and its bits.
    access : Access
    reset : int
        Value after reset; of a constant its value.
    saturates : bool
        Of a counter: it stays at its highest value instead of starting over.
    """

    name: str
    meaning: str
    low: int
    width: int
    access: Access
    reset: int
    saturates: bool

    @property
    def bits(self) -> slice:
        """Its place in the register."""
        return slice(self.low, self.low + self.width)


@dataclasses.dataclass(frozen=True)
class Register:
    """32-bit register at a byte address."""

    name: str
    meaning: str
    address: int
    fields: tuple[Field, ...]

    @property
    def writable(self) -> bool:
        """Whether a write has an effect on any field."""
        return any(field.access.writable for field in self.fields)


class _Messages(MessagePrinter):
    """Keeps the compiler's messages for the exception."""

    def __init__(self):
        self.texts: list[str] = []

    def print_message(self, severity: Any, text: str, src_ref: Any) -> None:
        """Keep one message.

        Parameters
        ----------
        severity : Severity
            How bad it is.
        text : str
            What is wrong.
        src_ref : SourceRefBase
            Where in the file, if it is known.
        """
        self.texts.append(text)


def _access(node: FieldNode) -> Access:
    """Access of a field, from its SystemRDL properties.

    Raises
    ------
    ValueError
        If there is no hardware for that combination.
    """
    software, on_write = node.get_property("sw"), node.get_property("onwrite")
    hardware = node.get_property("hw")
    wins = node.get_property("precedence").name == "hw"
    if node.get_property("counter") and on_write == OnWriteType.wclr and wins:
        return Access.COUNTER
    if node.get_property("singlepulse") and node.is_sw_writable:
        return Access.PULSE
    if node.get_property("stickybit") and on_write == OnWriteType.woclr and wins:
        return Access.CLEAR
    if software == AccessType.r and hardware == AccessType.w:
        return Access.READ
    if software == AccessType.r and not node.is_hw_writable:
        return Access.CONSTANT
    if software == AccessType.rw and on_write is None and not node.is_hw_writable:
        return Access.READ_WRITE
    raise ValueError(
        f"Field {node.get_path()} must be one of {'; '.join(a.value for a in Access)}: "
        "other combinations of sw, hw, onwrite and precedence have no hardware"
    )


def _meaning(node: Node) -> str:
    return " ".join((node.get_property("desc") or "").split())


def _field(node: FieldNode) -> Field:
    reset = node.get_property("reset")
    return Field(
        name=node.inst_name,
        meaning=_meaning(node),
        low=node.low,
        width=node.width,
        access=_access(node),
        reset=reset if isinstance(reset, int) else 0,
        saturates=bool(node.get_property("counter") and node.get_property("incrsaturate")),
    )


def _registers(top: AddrmapNode) -> Iterator[Register]:
    for node in top.registers():
        if node.get_property("regwidth") != 8 * _BYTES:
            raise ValueError(f"Register {node.get_path()} must have 32 bits")
        fields = tuple(_field(field) for field in node.fields())
        yield Register(node.inst_name, _meaning(node), node.absolute_address, fields)


@dataclasses.dataclass(frozen=True)
class RegisterMap:
    """Registers of one block, ascending by address.

    Parameters
    ----------
    name : str
    registers : tuple of Register
    path : Path
        The description, an ``.rdl`` file.
    """

    name: str
    registers: tuple[Register, ...]
    path: Path

    @classmethod
    def load(cls, path: Path) -> "RegisterMap":
        """Compile a description; its one ``addrmap`` is the map.

        Raises
        ------
        ValueError
            If it is no legal SystemRDL, a register has not 32 bits, or a field has an access that
            there is no hardware for.
        """
        top = _compile(path)
        return cls(top.inst_name, tuple(_registers(top)), path)

    def __iter__(self) -> Iterator[tuple[Register, Field]]:
        for register in self.registers:
            for field in register.fields:
                yield register, field

    def markdown(self) -> str:
        """Table of all registers and fields."""
        heads = ("address", "register", "bits", "field", "access", "reset", "meaning")
        rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for register in self.registers:
            rows.append(f"| {register.address:#05x} | `{register.name}` | | | | | "
                        f"{register.meaning} |")  # fmt: skip
            for field in register.fields:
                high = field.low + field.width - 1
                bits = f"{high}:{field.low}" if field.width > 1 else str(field.low)
                rows.append(f"| | | {bits} | `{field.name}` | {field.access.value} | "
                            f"{field.reset:#x} | {field.meaning} |")  # fmt: skip
        return "\n".join(rows) + "\n"

    def c_header(self) -> str:
        """Header with a struct of the registers, and mask, place and width of each field."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{self.name}.h")
            CHeaderExporter().export(_compile(self.path), str(path), reuse_typedefs=False)
            return path.read_text()


@functools.cache
def _compile(path: Path) -> AddrmapNode:
    messages = _Messages()
    compiler = RDLCompiler(message_printer=messages)
    try:
        compiler.compile_file(str(path))
        return compiler.elaborate().top
    except Exception as error:
        text = "; ".join(messages.texts[:1]) or str(error)
        raise ValueError(f"{path.name} must be a legal register description: {text}") from None
