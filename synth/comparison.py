"""Measured blocks beside the table of areas that the HiKV paper prints."""

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["beside_paper"]

_TABLE = Path(__file__).with_name("hikv_table_1.toml")


def beside_paper(results: list[dict[str, Any]], copies: dict[str, int]) -> list[list[str]]:
    """Rows of text: our blocks and their memories in gate equivalents, and the paper's areas.

    Parameters
    ----------
    results : list of dict
        Of :func:`synth.flow.measure`.
    copies : dict
        How many of a measured block make up the paper's component, by block; others are left out.

    Returns
    -------
    list of list of str
        The first row is the heading.
    """
    described = tomllib.loads(_TABLE.read_text())
    gate = described["gate_um2"]
    rows = [["component", "ours, gates", "paper, gates", "ours by paper", "paper's share of area"]]
    for result in results:
        if result["block"] not in copies:
            continue
        paper = described["component"][result["block"]]
        whole = result["area_um2"] + result["memory_area_um2"]
        ours = whole * result["area_ge"] / result["area_um2"] * copies[result["block"]]
        theirs = paper["area_mm2"] * 1e6 / gate
        rows.append([
            paper["what"], f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}",
            f"{paper['share']:.2%}",
        ])  # fmt: skip
    return rows
