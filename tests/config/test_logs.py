"""The log, tested in separate processes, because logging is configured once per process."""

import os
import re
import subprocess
import sys

import pytest

from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from tests.program import program


def log_each_level(own_logging):
    import logging

    from pscompy.config import logs
    from pscompy.config.config import Config
    from pscompy.config.variables import VARIABLES

    if own_logging:
        logging.basicConfig(format="mine: %(message)s")
    config = Config.load({"": VARIABLES}, known=None)
    index = logs.configure(config)
    log = logging.getLogger("pscompy.part")
    for number in (50, 40, 30, 20, 10, logs.VERBOSE, logs.TRACE):
        log.log(number, "at %d", number)
    logs.notice("asked for")
    print(index)


def run(own_logging=False, **environ):
    ended = subprocess.run(
        [sys.executable, "-c", program(log_each_level, own_logging)],
        env=os.environ | {f"PSP_{name}": text for name, text in environ.items()},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.split(), ended.stderr


@pytest.mark.parametrize("debug", range(7))
def test_each_level_adds_one_kind(debug):
    _, lines = run(DEBUG=str(debug))
    assert re.findall(r"at (\d+)", lines) == ["50", "40", "30", "20", "10", "7", "5"][: debug + 1]


def test_errors_only_by_default_and_notices_always():
    _, lines = run()
    assert re.sub(r"\d+\]", "N]", lines).splitlines() == [
        "pscompy[N] critical: at 50",
        "pscompy[N] error: at 40",
        "pscompy[N] asked for",
    ]


def test_the_last_level():
    (level,), lines = run(DEBUG="6")
    assert "at 5\n" in lines
    assert level == "6"


def test_a_file_whose_name_is_expanded(tmp_path):
    _, lines = run(DEBUG_OUT=f"{tmp_path}/log_${{PSP_RANK_IN_TEST}}_$$", RANK_IN_TEST="3")
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"log_3_\d+", file.name)
    assert "error: at 40" in file.read_text()
    assert lines == ""


def test_a_file_that_cannot_be_written_is_a_config_error(tmp_path):
    from pscompy.config import logs
    from pscompy.errors import ConfigError

    config = Config.load({"": VARIABLES}, {"DEBUG_OUT": f"{tmp_path}/no/log"}, {})
    with pytest.raises(ConfigError, match="PSP_DEBUG_OUT"):
        logs.configure(config)


@pytest.mark.parametrize(
    ("timing", "stamp"),
    [
        ("1", r"0\d{3}\.\d{6} "),
        ("us", r"0\d{3}\.\d{6} "),
        ("date", r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d\.\d{6} "),
        ("wall", r"\d{10}\.\d{6} "),
        ("delta", r"0\d{3}\.\d{6} "),
        ("0", ""),
        ("off", ""),
    ],
)
def test_timing(timing, stamp):
    _, lines = run(DEBUG_TIMING=timing)
    assert re.match(stamp + r"pscompy\[", lines)


def test_a_program_with_its_own_logging_keeps_it():
    _, lines = run(own_logging=True)
    assert lines.splitlines() == ["mine: at 50", "mine: at 40", "mine: asked for"]


def test_param_logs_changed_or_all_variables():
    _, changed = run(DEBUG_PARAM="1", SPIN_US="7", KEY="hunter2")
    assert "PSP_SPIN_US=7 (environment)" in changed
    assert "PSP_RETRY" not in changed
    assert "hunter2" not in changed
    _, everything = run(DEBUG_PARAM="2")
    assert "PSP_RETRY=10 (default)" in everything


def test_version_is_logged_when_asked_for():
    from pscompy import __version__

    assert f"version {__version__}" in run(DEBUG_VERSION="1")[1]
