"""The tests that docs/corner-cases.md names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.findall(r"`(t(?:est|b)_\w+)\.(\w+)`", (ROOT / "docs" / "corner-cases.md").read_text())


def test_the_page_names_tests():
    assert len(NAMED) > 30


@pytest.mark.parametrize("module, name", NAMED)
def test_named_test_exists(module, name):
    source = (ROOT / "verif" / f"{module}.py").read_text()

    assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE)
