"""Figures as text for people."""

from typing import Any

__all__ = ["describe", "table"]

_SHOWN = 12


def table(rows: list[list[str]], left: int = 1) -> str:
    """Rows as columns of equal width, the first one the heading; ``left`` columns flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def describe(result: dict[str, Any]) -> str:
    """One block's figures on a few lines, with a table of its scripts and sub-blocks."""
    parameters = result["parameters"] or {}
    settings = " ".join(f"{name}={_plain(value)}" for name, value in parameters.items())
    lines = [
        f"{result['block']} on {result['pdk']}" + (f": {settings}" if settings else ""),
        f"  area     {_number(result['area_um2'])} um2, {_number(result['area_ge'])} gate "
        f"equivalents, {result['flops']} flops, {result['clock_gates']} clock gates",
        f"  delay    {_number(result['delay_ps'])} ps worst path in ABC "
        f"(script {result['script']}, no setup, no clock to output, no wires)",
        f"  fmax     {_frequency(result)}",
    ]
    if result["critical_path"]:
        path = result["critical_path"]
        lines.append(f"  path     {path['from']} -> {path['to']}, {path['cells']} cells")
    if result["memory_bits"]:
        made_of = ", ".join(
            f"{row['depth']} x {row['width']} ({row['macros']})" for row in result["memories"]
        )
        lines.append(
            f"  memory   {result['memory_bits']} bits, {_number(result['memory_area_um2'])} um2 "
            f"beside the area: {made_of}"
        )
    lines += ["", _indent(table(_scripts(result)))]
    if result["sub_blocks"] and len(result["sub_blocks"]) > 1:
        lines += ["", _indent(table(_sub_blocks(result["sub_blocks"])))]
    return "\n".join(lines)


def _scripts(result: dict[str, Any]) -> list[list[str]]:
    rows = [["ABC script", "area um2", "delay ps", "fmax MHz"]]
    for run in result["scripts"]:
        figures = (run["area_um2"], run["delay_ps"], run["fmax_mhz"])
        rows.append([run["script"], *map(_number, figures)])
    return rows


def _sub_blocks(blocks: list[dict[str, Any]]) -> list[list[str]]:
    """List the whole, then its direct sub-blocks by falling area, and what is in none of them."""
    whole, *below = blocks
    direct = sorted(
        (block for block in below if "." not in block["path"]), key=lambda b: -b["area_um2"]
    )
    rest = {
        "path": "(in none)",
        "area_um2": whole["area_um2"] - sum(block["area_um2"] for block in direct),
        "flops": whole["flops"] - sum(block["flops"] for block in direct),
    }
    rows = [["sub-block (hierarchy kept)", "area um2", "share", "flops"]]
    shown = [whole | {"path": "(whole)"}, *direct[:_SHOWN], *_folded(direct[_SHOWN:]), rest]
    for block in shown:
        share = block["area_um2"] / whole["area_um2"] if whole["area_um2"] else 0
        rows.append(
            [block["path"], _number(block["area_um2"]), f"{share:.1%}", str(block["flops"])]
        )
    return rows


def _folded(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not blocks:
        return []
    return [
        {
            "path": f"({len(blocks)} more)",
            "area_um2": sum(block["area_um2"] for block in blocks),
            "flops": sum(block["flops"] for block in blocks),
        }
    ]


def _frequency(result: dict[str, Any]) -> str:
    if result["fmax_mhz"] is not None:
        return (
            f"{_number(result['fmax_mhz'])} MHz (script {result['fmax_script']}, then "
            f"{_number(result['fmax_area_um2'])} um2; ideal clock, ports included, no wires)"
        )
    if result["tools"]["opensta"] is None:
        return "not measured, OpenSTA is missing"
    return "none, no path is clocked"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _plain(value: Any) -> str:
    if value is None:
        return "default"
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value).lower()


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
