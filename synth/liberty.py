"""What the flow needs to know of liberty files: whole or not, cells, areas, kinds."""

import dataclasses
import gzip
import re
import zlib
from pathlib import Path

__all__ = ["Cell", "Liberty", "check_complete", "read"]

# Literal beginnings keep these fast on files of 20 MB and more.
_NOISE = re.compile(r'/\*.*?\*/|"[^"]*"', re.DOTALL)
_LIBRARY = re.compile(r"library\s*\(")
_CELL = re.compile(r'cell\s*\(\s*"?([^")\s]+)"?\s*\)\s*\{')
_AREA = re.compile(r'area\s*:\s*"?([-+.\deE]+)')
_FUNCTION = re.compile(r'function\s*:\s*"([^"]*)"')
_INPUT = re.compile(r'direction\s*:\s*"?input\b')
_KINDS = (
    ("clock_gate", re.compile(r"clock_gating_integrated_cell\s*:")),
    ("flop", re.compile(r"ff(_bank)?\s*\(")),
    ("latch", re.compile(r"(latch(_bank)?|statetable)\s*\(")),
)
# Both timers add the library's default wire load by themselves; figures here are without wires.
_WIRE_LOAD = re.compile(r"default_wire_load\w*\s*:[^;\n]*;?")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a library.

    Parameters
    ----------
    name : str
    area : float
        In the library's unit, µm² in every library met; 0 where the library states none.
    kind : {"gate", "flop", "latch", "clock_gate"}
    function : str
        Function of the only output, without spaces; empty with none or several.
    inputs : int
    """

    name: str
    area: float
    kind: str
    function: str
    inputs: int


@dataclasses.dataclass(frozen=True)
class Liberty:
    """A liberty file's text without default wire loads, and its cells by name."""

    path: Path
    text: str
    cells: dict[str, Cell]


def read(path: Path) -> Liberty:
    """Liberty file, plain or gzip.

    Raises
    ------
    ValueError
        If there is no such file, or it is no complete liberty file with cells.
    """
    text = _text(path)
    if not _LIBRARY.search(text):
        raise ValueError(
            f"{path} is no liberty file: it has no library group; give a .lib or .lib.gz file"
        )
    unclosed = _unclosed(text) and _unclosed(_NOISE.sub("", text))
    if unclosed:
        raise ValueError(
            f"{path} is truncated or damaged: braces are out of balance by {abs(unclosed)}; "
            "get the file again"
        )
    cells = _cells(text)
    if not cells:
        raise ValueError(f"{path} has no cells; give a liberty file of standard cells or macros")
    return Liberty(path, _WIRE_LOAD.sub("", text), cells)


def check_complete(libraries: list[Liberty]) -> None:
    """Whether logic can be mapped at all.

    Raises
    ------
    ValueError
        If no library has a flip-flop, or none has an inverting gate.
    """
    cells = [cell for library in libraries for cell in library.cells.values()]
    names = ", ".join(library.path.name for library in libraries)
    if not any(cell.kind == "flop" for cell in cells):
        raise ValueError(f"No flip-flop in {names}; add the liberty file of the sequential cells")
    if not any(cell.kind == "gate" and cell.function for cell in cells):
        raise ValueError(f"No logic gate in {names}; add the combinational cells' liberty file")


def _unclosed(text: str) -> int:
    return text.count("{") - text.count("}")


def _text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"No liberty file {path}; check the path")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            message = f"{path} is no complete gzip file; get the file again"
            raise ValueError(message) from None
    return content.decode("utf-8", errors="replace")


def _cells(text: str) -> dict[str, Cell]:
    starts = [m for m in _CELL.finditer(text) if not _continues_a_word(text, m.start())]
    ends = [start.start() for start in starts[1:]] + [len(text)] * bool(starts)
    cells = {}
    for start, end in zip(starts, ends, strict=True):
        body = text[start.end() : end]
        area = _AREA.search(body)
        matches = _FUNCTION.finditer(body)
        functions = [m[1] for m in matches if not _continues_a_word(body, m.start())]
        cells[start[1]] = Cell(
            name=start[1],
            area=float(area[1]) if area else 0.0,
            kind=_kind(body),
            function=functions[0].replace(" ", "") if len(functions) == 1 else "",
            inputs=len(_INPUT.findall(body)),
        )
    return cells


def _continues_a_word(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")


def _kind(body: str) -> str:
    for kind, mark in _KINDS:
        if any(not _continues_a_word(body, m.start()) for m in mark.finditer(body)):
            return kind
    return "gate"
