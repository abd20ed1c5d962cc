"""Fixtures and settings of all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# Found examples are replayed from the printed blob, not from a database in the work folder.
settings.register_profile(
    "kvsmith", deadline=None, print_blob=True, derandomize=True, database=None
)
settings.load_profile("kvsmith")

ROOT = Path(__file__).parent.parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nightly tests out unless ``-m`` speaks of them."""
    if "nightly" in config.option.markexpr:
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in nightly]


@pytest.fixture(scope="session")
def shared_pdk() -> Path:
    """Folder of PDK files beside the checkout; the test is skipped where there is none."""
    folder = ROOT.parent / "shared" / "pdk"
    if not folder.is_dir():
        pytest.skip(f"No PDK files at {folder}")
    return folder
