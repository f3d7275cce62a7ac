"""The configuration page lists every variable, and the other pages name no unknown variable."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import pscompy
from pscompy.config.variables import KNOWN, OTHER_NAMES, WITHOUT_EFFECT
from pscompy.discovery import registry

ROOT = Path(pscompy.get_include())

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="pscompy is installed without its source folder"
)


def generated() -> str:
    spec = importlib.util.spec_from_file_location("docs_variables", ROOT / "docs/variables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.MARK in (ROOT / "docs/configuration.md").read_text()
    return str(module.as_markdown())


def declared() -> dict[str, str]:
    """Name and default of each variable that pscompy itself declares."""
    config, found = registry.load(environ={})
    ours = {
        it.name.upper()
        for it in found
        if it.source.startswith(("pscompy.plugins.", "pscompy_gateway"))
    }
    return {row.name: row.default for row in config.rows() if row.section in {"", *ours}}


def other_names() -> set[str]:
    """Aliases of variables, for example ParaStation's names."""
    _, found = registry.load(environ={})
    variables = [var for it in found if it.transport for var in it.transport.variables]
    of_switches = {f"PSP_{alias}" for names in OTHER_NAMES.values() for alias in names}
    return of_switches | {f"PSP_{alias}" for var in variables for alias in var.aliases}


def test_every_variable_is_in_the_documentation() -> None:
    table = dict(re.findall(r"^\| `(PSP_\w+)` \| (?:`(.*?)`|\(none\)) \| \S", generated(), re.M))
    assert table == declared()


def test_the_papers_name_no_variable_that_is_not_there() -> None:
    known = (
        {f"PSP_{name}".rstrip("_") for name in (*KNOWN, *WITHOUT_EFFECT)}
        | set(declared())
        | {"PSP_PACKETS", "PSP_CABLE"}
    )
    known |= other_names()
    families = tuple(f"PSP_{name}" for name in WITHOUT_EFFECT if name.endswith("_"))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        named = set(re.findall(r"\bPSP_[A-Z_]*[A-Z]\b(?!_)", page.read_text()))
        assert {name for name in named if not name.startswith(families)} <= known, page.name
