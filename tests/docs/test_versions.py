"""The page about versions has the versions of this release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pscompy
from pscompy.control.handshake.limits import VERSION_MAX

ROOT = Path(pscompy.get_include())


def number_in(header: str, name: str) -> str:
    match = re.search(rf"^#define {name} (\d+)u$", (ROOT / header).read_text(), re.M)
    assert match
    return match[1]


@pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="pscompy is installed without its source folder"
)
def test_the_page_names_the_versions() -> None:
    text = (ROOT / "docs/versions.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", text, re.M))
    assert rows == {
        "Python API": pscompy.__version__,
        "wire protocol": str(VERSION_MAX),
        "transport ABI": number_in("pscompy/transport/transport.h", "PSC_TRANSPORT_ABI"),
        "API for C": number_in("pscompy/core/api.h", "PSC_API_ABI"),
    }
