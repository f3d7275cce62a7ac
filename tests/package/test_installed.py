"""The table of what is installed, which a launcher hands to its ranks, and when it is believed."""

import json
import os

import pytest

from pscompy.discovery import installed, registry
from pscompy.discovery.validation import flaw

PACK = "from pscompy.discovery import installed; print(installed.pack())"
REPORT = """
import json, sys
from pscompy.discovery import registry
from pscompy.config import logs
from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
logs.configure(Config.load({"": VARIABLES}, known=None))
_, found = registry.load()
looked = "importlib.metadata" in sys.modules
print(json.dumps([{it.name: it.unavailable() for it in found}, looked]))
"""


def table(site):
    ended = site.run("-c", PACK, cwd=empty(site))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def empty(site):
    folder = site.folder / "empty"
    folder.mkdir(exist_ok=True)
    return folder


def report(site, text, cwd=None):
    """The transports that a process with this table finds, whether it had to look for itself,
    and what it says."""
    ended = site.run("-c", REPORT, cwd=cwd or empty(site), INSTALLED=text, DEBUG="4")
    assert ended.returncode == 0, ended.stderr
    found, looked = json.loads(ended.stdout)
    return found, looked, ended.stderr


def test_a_table_tells_what_looking_finds(site):
    site.transport("alpha")
    site.transport("beta")
    found, looked, said = report(site, table(site))
    assert found["alpha"] is None
    assert found["beta"] is None
    assert not looked
    assert "PSP_INSTALLED" not in said


def test_without_a_table_a_process_looks_for_itself(site):
    site.transport("alpha")
    found, looked, said = report(site, "")
    assert found["alpha"] is None
    assert looked
    assert "PSP_INSTALLED" not in said


def test_where_nobody_has_a_transport_nothing_is_read(site):
    site.install("other", {"other.py": ""}, "[console_scripts]\nother = other:main\n")
    found, looked, _ = report(site, "")
    assert {"loop", "shm", "tcp"} <= {*found}
    assert not looked


@pytest.mark.parametrize(
    "text",
    [
        "[pscompy]\nalpha = alpha_fabric\n",
        "[other]\nx = y\n\n[ pscompy ]\r\n  alpha=alpha_fabric \r\n[more]\nz = y\n",
        "[pscompy]\nshm = pscompy.plugins.shm\n# a comment\nalpha = alpha_fabric\n",
    ],
)
def test_entries_are_noticed_however_they_are_written(site, text):
    site.transport("alpha")
    (site.packages / "fabric_alpha-1.0.dist-info" / "entry_points.txt").write_text(text)
    assert report(site, "")[1]


def test_what_was_installed_later_is_found(site):
    site.transport("alpha")
    old = table(site)
    site.transport("beta")
    found, looked, said = report(site, old)
    assert found["beta"] is None
    assert looked
    assert f"PSP_INSTALLED is not used: {site.packages} has changed" in said


def test_a_folder_that_the_launcher_did_not_know(site):
    old = table(site)
    site.transport("alpha")
    found, looked, said = report(site, old, cwd=site.packages)
    assert found["alpha"] is None
    assert looked
    assert "PSP_INSTALLED is not used" in said


def test_a_stranger_is_noticed_with_a_table_too(site):
    site.transport("alpha")
    known = table(site)
    (empty(site) / "alpha_fabric.py").write_text("raise SystemExit('the stranger was run')")
    found, looked, _ = report(site, known)
    assert "of fabric-alpha is hidden by" in found["alpha"]
    assert not looked


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "2|",
        "1",
        "1|x,/nowhere|",
        "1|1|",
        "1||alpha",
        "1||alpha,os;system,dist",
        "1||alpha,,dist",
        "1||,alpha,dist",
        "1|" + "|" * 1000,
        "\x00\udcff",
    ],
)
def test_a_malformed_table_is_not_used(text):
    with pytest.raises(installed.Unbelievable):
        installed.unpack(text)


def test_a_malformed_table_is_a_line_of_the_log_and_nothing_else(site):
    site.transport("alpha")
    found, looked, said = report(site, "1|nonsense|")
    assert found["alpha"] is None
    assert looked
    assert "debug: PSP_INSTALLED is not used: it is malformed" in said


def test_a_table_of_another_python_is_not_used(monkeypatch):
    text = installed.pack()
    assert text
    monkeypatch.setattr("sys.path", [*os.sys.path[:1], *reversed(os.sys.path[1:])])
    with pytest.raises(installed.Unbelievable, match=r"another sys\.path"):
        installed.unpack(text)


def test_a_path_that_does_not_fit_into_a_table(monkeypatch, tmp_path):
    odd = tmp_path / "a,b|c"
    odd.mkdir()
    monkeypatch.setattr("sys.path", [*os.sys.path, str(odd)])
    assert installed.pack() == ""


def test_what_is_built_in_declares_no_nonsense():
    """Sessions do not check it."""
    _, found = registry.load(environ={})
    own = [it for it in found if it.source.startswith("pscompy.plugins.")]
    assert {"loop", "shm", "tcp"} <= {it.name for it in own}
    assert [flaw(it.transport, it.name) for it in own] == [None] * len(own)
