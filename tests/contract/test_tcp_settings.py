"""The values that PSP_TCP_HOST, _NETWORK and _PORT accept."""

from __future__ import annotations

import pytest

from pscompy.config.config import Config
from pscompy.errors import ConfigError
from pscompy.plugins.tcp.config import VARIABLES


def load(name: str, value: str) -> str:
    config = Config.load({"TCP": VARIABLES}, {f"TCP_{name}": value}, environ={}, known=None)
    return str(config[f"TCP_{name}"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOST", "192.0.2.1"),
        ("HOST", "192.0.2.1, 2001:db8::1"),
        ("NETWORK", "10.0.0.0/8"),
        ("NETWORK", "10.1.2.3/8;eth0, node-ib.cluster"),
        ("NETWORK", "2001:db8::/32"),
        ("PORT", "0"),
        ("PORT", "5000"),
        ("PORT", "5000-5100"),
    ],
)
def test_accepted(name: str, value: str) -> None:
    assert load(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOST", "localhost"),
        ("HOST", "192.0.2.1 192.0.2"),
        ("NETWORK", "10.0.0.0/33"),
        ("NETWORK", "eth 0!"),
        ("NETWORK", "2001:db8:::"),
        ("PORT", "65536"),
        ("PORT", "5100-5000"),
        ("PORT", "0-5"),
        ("PORT", "http"),
        ("BUFFER_SIZE", "1000"),
    ],
)
def test_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"PSP_TCP_{name}"):
        load(name, value)


def test_network_falls_back_to_the_general_variable() -> None:
    config = Config.load({"TCP": VARIABLES}, environ={"PSP_NETWORK": "lo"}, known=None)
    assert config["TCP_NETWORK"] == "lo"
