"""A PDK with its liberty files read: everything that mapping and reports ask of it."""

import dataclasses
import hashlib
import re
from functools import cached_property
from pathlib import Path

from synth import liberty, macros
from synth import pdk as pdks
from synth.liberty import Cell, Liberty
from synth.pdk import Pdk

__all__ = ["Technology", "load"]

_NAND2 = re.compile(r"\(?!\(?(\w+)[&*](\w+)\)?\)?|\(?!\(?\w+\)?\)?[|+]\(?!\(?\w+\)?\)?")
_BUFFER = re.compile(r"\(?\w+\)?")


@dataclasses.dataclass(frozen=True)
class Technology:
    """Settings of a PDK and its libraries."""

    pdk: Pdk
    libraries: tuple[Liberty, ...]

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Cells of all libraries, by name."""
        return {name: cell for library in self.libraries for name, cell in library.cells.items()}

    @cached_property
    def gate_area(self) -> float:
        """Area of the two-input NAND that gate equivalents count."""
        return self.cells[self.pdk.nand2].area

    @cached_property
    def memory_macros(self) -> list[macros.Macro]:
        """Memory macros of the PDK."""
        return macros.available(self.pdk)

    @cached_property
    def digest(self) -> str:
        """Hash of everything in here that a figure may depend on."""
        parts = [repr(self.pdk), repr(self.memory_macros)]
        parts += [library.text for library in self.libraries]
        sums = [hashlib.sha256(part.encode()).hexdigest() for part in parts]
        return hashlib.sha256("".join(sums).encode()).hexdigest()

    def write(self, folder: Path) -> list[Path]:
        """Libraries as plain files in a folder, for tools that read no other."""
        paths = []
        for number, library in enumerate(self.libraries):
            path = folder / f"cells_{number}.lib"
            path.write_text(library.text)
            paths.append(path)
        return paths


def load(name: str | None, files: list[Path]) -> Technology:
    """Technology of a PDK, of liberty files, or of a PDK whose files are elsewhere.

    Parameters
    ----------
    name : str, optional
        PDK. Unset: the built-in one if there are no ``files``, else the described PDK whose cells
        are in them, else settings derived from the cells' functions.
    files : list of Path
        Liberty files; empty: found as the PDK says.

    Raises
    ------
    ValueError
        If the PDK is unknown or not found, a file is not whole, or cells are missing.
    """
    described = pdks.pdk(name or pdks.BUILTIN) if name or not files else None
    paths = files or (described.files() if described else ())
    libraries = tuple(liberty.read(path) for path in paths)
    liberty.check_complete(list(libraries))
    cells = {name: cell for library in libraries for name, cell in library.cells.items()}
    if described is None:
        described = _recognise(cells) or _derive(cells, libraries)
    for role in ("driving_cell", "nand2"):
        if getattr(described, role) not in cells:
            raise ValueError(
                f"Cell {getattr(described, role)} of PDK {described.name} is not in "
                f"{_list(libraries)}; give that PDK's liberty files, or leave --pdk out"
            )
    return Technology(described, libraries)


def _list(libraries: tuple[Liberty, ...]) -> str:
    return ", ".join(library.path.name for library in libraries)


def _recognise(cells: dict[str, Cell]) -> Pdk | None:
    candidates = (pdks.pdk(name) for name in pdks.names())
    wanted = ((pdk, (pdk.driving_cell, pdk.nand2, pdk.flop)) for pdk in candidates)
    return next((pdk for pdk, roles in wanted if all(cell in cells for cell in roles)), None)


def _derive(cells: dict[str, Cell], libraries: tuple[Liberty, ...]) -> Pdk:
    """Derive settings for a library that no description fits, from its cells' functions."""
    gates = sorted(
        (cell for cell in cells.values() if cell.kind == "gate"), key=lambda c: (c.area, c.name)
    )
    nands = [c.name for c in gates if c.inputs == 2 and _NAND2.fullmatch(c.function)]
    buffers = [c.name for c in gates if c.inputs == 1 and _BUFFER.fullmatch(c.function)]
    if not nands or not buffers:
        missing = "two-input NAND" if not nands else "buffer"
        raise ValueError(f"No {missing} in {_list(libraries)}; it is needed for gate equivalents"
                         " and as the driver of inputs")
    buffer = buffers[min(1, len(buffers) - 1)]
    flop = min((c for c in cells.values() if c.kind == "flop"), key=lambda c: (c.area, c.name))
    return dataclasses.replace(
        pdks.pdk(pdks.BUILTIN),
        name="liberty",
        title=_list(libraries),
        dont_use=(),
        nand2=nands[0],
        flop=flop.name,
        buffer=buffer,
        clock_gate=None,
        driving_cell=buffer,
        memory=None,
    )
