"""Sphinx: `python -m sphinx -W docs OUTPUT`, with pscompy and its extra 'docs' installed."""

from __future__ import annotations

import re
import sys
from enum import Enum
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import variables
from sphinx.application import Sphinx

import pscompy

project = "pscompy"
author = "the pscompy developers"
version = release = pscompy.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_title = f"pscompy {version}"
html_theme_options = {"description": "Message passing for Python", "page_width": "1100px"}
myst_heading_anchors = 2
default_role = "code"  # docstrings write `name`
autodoc_typehints = "signature"
autodoc_default_options = {"member-order": "bysource"}


def setup(app: Sphinx) -> None:
    app.connect("source-read", insert_variables)
    app.connect("autodoc-process-docstring", adapt_docstring)
    app.connect("autodoc-process-signature", adapt_signature)


def insert_variables(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "configuration":
        source[0] = source[0].replace(variables.MARK, variables.as_markdown())


def adapt_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Convert a docstring, which is plain text, to reStructuredText: a part that is indented after
    a colon becomes code, and a name such as PSP_ is escaped, so that it is no reference."""
    for number, line in enumerate(lines):
        following = lines[number + 1 : number + 3]
        if line.endswith(":") and len(following) == 2 and following[1].startswith("    "):
            lines[number] = f"{line}:"
        else:
            lines[number] = re.sub(r"\b(PSP_(<\w+>_)?)(?!\w)", lambda m: m[1][:-1] + r"\_", line)


# Classes whose instances a program gets from pscompy and never constructs.
_GIVEN = {f"pscompy.{name}" for name in ("Socket", "Connection", "MemoryRegion", "Request")}


def adapt_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Write wildcards by name, and remove the signatures of classes that only pscompy
    constructs."""
    if name in _GIVEN or (what == "class" and issubclass(obj, (Enum, tuple))):
        return "", returns
    for value, word in ((pscompy.ANY_SOURCE, "ANY_SOURCE"), (pscompy.ANY_TAG, "ANY_TAG")):
        signature = signature and signature.replace(f"={value}", f"={word}")
    return signature, returns
