"""Parameters of blocks from ``--set`` and ``--config``, the same for every command."""

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golden.parameters import Parameters
from rtl.catalogue import block as find_block

__all__ = ["add_arguments", "read"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--set`` and ``--config``."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[BLOCK.]NAME=VALUE",
        help="a parameter, of all named blocks or of one; may be repeated, wins over --config",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.toml",
        help="parameters from a TOML file with one table per block",
    )


def _load(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a TOML file: {error}") from error
    for name, table in content.items():
        find_block(name)
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} must be a table of parameters, not {table!r}")
    return content


def read(blocks: Sequence[str], sets: Sequence[str], config: Path | None) -> dict[str, Parameters]:
    """Parameters of each block.

    Parameters
    ----------
    blocks : sequence of str
        Names; if empty, those that ``config`` has tables for.
    sets : sequence of str
        ``name=value`` for all the blocks, ``block.name=value`` for one.
    config : Path, optional
        TOML file with one table per block; tables of other blocks are ignored.

    Raises
    ------
    ValueError
        If a block or parameter is unknown, or a value illegal; the message names the block.
    """
    tables = _load(config) if config else {}
    names = list(dict.fromkeys(blocks or tables))
    if not names:
        raise ValueError("No block named: name one or more, or give --config with a table for each")
    settings = {find_block(name).name: dict(tables.get(name, {})) for name in names}
    for text in sets:
        target, equals, value = text.partition("=")
        owner, dot, parameter = target.rpartition(".")
        if not equals or not parameter:
            raise ValueError(f"Setting must be name=value or block.name=value, not {text!r}")
        if dot and owner not in settings:
            raise ValueError(f"Setting {text!r} must name one of {', '.join(names)}")
        for name in [owner] if dot else names:
            settings[name][parameter] = value
    parsed = {}
    for name, values in settings.items():
        try:
            parsed[name] = find_block(name).parameters.parse(values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from error
    return parsed
