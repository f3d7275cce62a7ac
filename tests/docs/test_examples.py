"""Every example of the README and of the documentation runs, and prints the output on the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pscompy

sys.path.insert(0, str(Path(__file__).parent))
from conftest import ROOT, Block, Desk, blocks, differs

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

pytestmark = pytest.mark.skipif(
    not PAGES[0].exists(), reason="pscompy is installed without its source folder"
)


def check_page(page: Path, desk: Desk) -> int:
    """Run a page's examples; returns how many there were."""
    printed, count = "", 0
    for block in blocks(page):
        if block.name:
            desk.write(block.name, block.text)
        elif block.language in ("python", "sh"):
            printed = desk.run(block)
            count += 1
        elif block.language == "output":
            assert not differs(block.text, printed), f"line {block.line}: {printed}"
        else:
            assert block.language in ("text", "toctree"), f"line {block.line}: not run"
    return count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path, desk: Desk) -> None:
    if page.name in ("from-mpi4py.md", "mpi.md"):
        pytest.importorskip("mpi4py", reason="no MPI: pip install mpi4py mpich")
    check_page(page, desk)


@pytest.mark.parametrize("page", ["from-mpi4py.md", "from-parastation.md"])
def test_the_calls_that_a_page_maps_to(page: str) -> None:
    """Each name that such a page has of an object of pscompy is an attribute of its class."""
    text = (ROOT / "docs" / page).read_text()
    objects = {
        "pscompy": pscompy,
        "session": pscompy.Session,
        "socket": pscompy.Socket,
        "connection": pscompy.Connection,
        "status": pscompy.Status,
        "World": pscompy.World,
        "world": pscompy.World,
    }
    column = re.findall(r"^\| .*? \| (.*) \|$", text, re.M)
    found = re.findall(r"\b(\w+)\.(\w+)", " ".join(column))
    named = [(objects[name], attribute) for name, attribute in found if name in objects]
    assert len(named) > 6
    assert not [pair for pair in named if not hasattr(*pair)]


def test_the_example_of_the_readme(desk: Desk) -> None:
    (example,) = (block for block in blocks(PAGES[0]) if block.language == "python")
    desk.write("ring.py", example.text)
    printed = desk.run(Block("sh", "pscompy run -n 4 ring.py", 0))
    assert sorted(line[0] for line in printed.splitlines()) == list("0123")
    assert "2 got hello from 1 over shm" in printed


def test_an_example_that_fails_is_noticed(desk: Desk, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(6 * 7)\n```\n\n```output\n42\n```\n")
    assert check_page(page, desk) == 1
    for wrong in ("43", "42\n42"):
        page.write_text(f"```python\nprint(6 * 7)\n```\n\n```output\n{wrong}\n```\n")
        with pytest.raises(AssertionError, match="line 5"):
            check_page(page, desk)
    page.write_text("\n```python\nraise SystemExit(1)\n```\n")
    with pytest.raises(AssertionError, match="line 2"):
        check_page(page, desk)
