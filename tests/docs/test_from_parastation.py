"""The page for users of ParaStation has what our tables of variables have, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pscompy
from pscompy.config.config import full_name
from pscompy.config.variables import OTHER_NAMES, WITHOUT_EFFECT
from pscompy.discovery import registry

PAGE = Path(pscompy.get_include()) / "docs/from-parastation.md"

pytestmark = pytest.mark.skipif(
    not PAGE.exists(), reason="pscompy is installed without its source folder"
)

Row = tuple[list[str], list[str]]


def rows(title: str) -> list[Row]:
    """The rows of a section's table: the variables that each names, and its further cells."""
    (section,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    cells = [line.strip("|").split("|") for line in re.findall(r"^\| `.*$", section, re.M)]
    return [
        (re.findall(r"`PSP_(\w+)`", first), [cell.strip(" `") for cell in further])
        for first, *further in cells
    ]


def names(title: str) -> list[str]:
    return [name for row, _ in rows(title) for name in row]


def defaults() -> dict[str, str]:
    """Our default of each variable that pscompy declares, by all of its names."""
    config, found = registry.load(environ={})
    known = {row.name.removeprefix("PSP_"): row.default for row in config.rows()}
    return known | {alias: known[name] for name, alias in aliases(found)}


def aliases(found: registry.Transports) -> Iterator[tuple[str, str]]:
    yield from ((section, alias) for section, names in OTHER_NAMES.items() for alias in names)
    for it in found:
        for var in it.transport.variables if it.transport else ():
            yield from ((full_name(it.name.upper(), var.name), alias) for alias in var.aliases)


def test_no_variable_is_there_twice() -> None:
    titles = (
        *("The same", "Another default", "Another meaning", "Without effect"),
        *("Of psmpi", "Of psmpi, without effect"),
    )
    everything = [name for title in titles for name in names(title)]
    assert len(everything) == len(set(everything)) > 120


def test_defaults_that_are_the_same() -> None:
    ours = defaults()
    assert {name: further[0] for (name,), further in rows("The same")} == {
        name: ours[name] for name in names("The same")
    }


def test_defaults_that_differ() -> None:
    ours = defaults()
    for row, (theirs, here, _) in [*rows("Another default"), *rows("Of psmpi")]:
        for name in row:
            assert ours[name] == here != theirs, name


def test_variables_with_another_meaning_are_declared() -> None:
    assert {*names("Another meaning"), *names("Of psmpi")} <= set(defaults())


@pytest.mark.parametrize("title", ["The same", "Another default", "Another meaning", "Of psmpi"])
def test_variables_that_are_declared_have_an_effect(title: str) -> None:
    assert not [name for name in names(title) if covers(name)]


def test_variables_without_effect() -> None:
    """Each variable of the page is mentioned as without effect, and each one of the table is on the
    page. A family of the table stands for the names that begin with it."""
    page = [*names("Without effect"), *names("Of psmpi, without effect")]
    assert not [name for name in page if not covers(name) or name in defaults()]
    assert {entry for name in page for entry in covers(name)} == set(WITHOUT_EFFECT)


@pytest.mark.parametrize("title", ["Without effect", "Of psmpi, without effect"])
def test_the_page_and_the_warning_say_the_same(title: str) -> None:
    for row, (why,) in rows(title):
        plain = re.sub(r" \(\[.*?\]\(.*?\)\)|`", "", why)
        assert {WITHOUT_EFFECT[entry] for name in row for entry in covers(name)} == {plain}


def covers(name: str) -> list[str]:
    """The entries of WITHOUT_EFFECT that a name falls under."""
    return [
        entry
        for entry in WITHOUT_EFFECT
        if name == entry or (entry.endswith("_") and f"{name}_".startswith(entry))
    ]


def test_other_names_of_variables_are_on_the_page() -> None:
    """pscompy has other names for the sake of ParaStation only."""
    found = registry.load(environ={})[1]
    page = set(re.findall(r"`PSP_(\w+)`", PAGE.read_text()))
    missing = {alias for _, alias in aliases(found)} - page
    assert missing == {"GW_WINDOW", "PORTALS_SENDRQ_SIZE"}  # not names of pscom
