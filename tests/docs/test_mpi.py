"""The page about MPI lists the functions that the library has."""

from __future__ import annotations

from pathlib import Path

import pytest

import pscompy

ROOT = Path(pscompy.get_include())
PAGE = ROOT / "docs/mpi.md"

pytestmark = pytest.mark.skipif(
    not PAGE.exists(), reason="pscompy is installed without its source folder"
)


def test_the_list_of_functions() -> None:
    from pscompy_mpi import generate

    text = PAGE.read_text()
    made = "made again by: python -m pscompy_mpi.generate --page docs/mpi.md"
    assert generate.page(text) == text, made


def test_a_function_that_is_lacking_is_noticed() -> None:
    from pscompy_mpi import generate

    text = PAGE.read_text()
    for name in ("`Allreduce` ", "`Win_create` "):
        assert generate.page(text.replace(name, "")) == text
