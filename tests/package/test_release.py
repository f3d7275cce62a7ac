"""The files for releases say the same as the package."""

import re
from configparser import ConfigParser
from pathlib import Path

import pscompy

ROOT = Path(__file__).parents[2]


def test_the_conda_recipe_agrees_with_setup_cfg() -> None:
    recipe = (ROOT / ".ci/conda/recipe.yaml").read_text()
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"].split()
    run = recipe.partition("  run:\n")[2].partition("  ignore_run_exports")[0]
    assert re.findall(r'version: "(.*)"', recipe) == [pscompy.__version__]
    assert re.findall(r"- (\w+) >=(\S+)", run) == [tuple(need.split(">=")) for need in needed]
