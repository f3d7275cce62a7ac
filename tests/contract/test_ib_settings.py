"""The values that PSP_IB_GID_INDEX accepts."""

from __future__ import annotations

import pytest

from pscompy.config.config import Config
from pscompy.errors import ConfigError
from pscompy.plugins.ib.config import VARIABLES


def load(value: str) -> object:
    config = Config.load({"IB": VARIABLES}, {"IB_GID_INDEX": value}, environ={}, known=None)
    return config["IB_GID_INDEX"]


def test_a_path_names_its_gid_by_8_bits() -> None:
    assert load("255") == 255
    with pytest.raises(ConfigError, match="PSP_IB_GID_INDEX"):
        load("256")
