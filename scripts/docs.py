"""Generated parts of the documentation: ``python -m scripts.docs`` writes them anew.

What stands between ``<!-- NAME -->`` and ``<!-- end NAME -->`` of a page is generated, and so are
the C headers beside the pages. The timing diagram of ``hikv_selector_axi`` comes from its bench.
"""

import re
from pathlib import Path
from typing import Any

from rtl.catalogue import block
from rtl.generate import component_ports
from rtl.hikv.selector_registers import register_map

__all__ = ["generated", "main"]

_DOCS = Path(__file__).parent.parent / "docs"


def _element(name: str) -> tuple[str, int | None]:
    """Name of an array and place in it, of a field that is one of its elements."""
    array, _, place = name.rpartition(".")
    return (array, int(place)) if array and place.isdigit() else (name, None)


def _layout(port: dict[str, Any]) -> list[str]:
    """Bits of each field; of an array those of its first element."""
    parts = []
    for field in port["fields"]:
        name, place = _element(field["field"])
        high, low = field["offset"] + field["width"] - 1, field["offset"]
        if place in (None, 0):
            bits = f"{high}:{low}" if high > low else str(low)
            parts.append(f"`{name}[0]` {bits} …" if place == 0 else f"`{name}` {bits}")
    return parts


def stream_table(component: Any) -> str:
    """Table of a component's AXI4-Streams: direction, meaning, bits of TDATA."""
    rows = ["| stream | direction | meaning | TDATA, bits | fields | TLAST |", "|---" * 6 + "|"]
    ports = {port["name"]: port for port in component_ports(component)}
    for prefix in component.axi_streams:
        data = ports[f"{prefix}_tdata"]
        way = "in" if data["direction"] == "input" else "out"
        meaning = data["meaning"].rpartition(": ")[0]
        last = "yes" if f"{prefix}_tlast" in ports else ""
        rows.append(f"| `{prefix}` | {way} | {meaning} | {data['width']} "
                    f"| {', '.join(_layout(data))} | {last} |")  # fmt: skip
    return "\n".join(rows) + "\n"


def _with_parts(text: str, parts: dict[str, str]) -> str:
    """Page with its generated parts replaced.

    Raises
    ------
    ValueError
        If a part has no place in the page.
    """
    for name, content in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        text, count = re.subn(
            pattern, lambda found, c=content: f"{found[1]}{c}{found[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"The page must have one place for {name}, not {count}")
    return text


def generated() -> dict[Path, str]:
    """Content that every generated file, and page with generated parts, should have."""
    entry = block("hikv_selector_axi")
    page, registers = _DOCS / "hikv_selector_axi.md", register_map()
    parts = {
        "streams": stream_table(entry.make(entry.parameters())),
        "registers": registers.markdown(),
    }
    return {
        page: _with_parts(page.read_text(), parts),
        _DOCS / "hikv_selector_axi.h": registers.c_header(),
    }


def main() -> None:
    """Write all that is generated."""
    for path, text in generated().items():
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    main()
