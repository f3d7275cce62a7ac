"""The program `pscompy`: its commands, its errors, and the output of info."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.cli.capabilities import capability_words
from pscompy.config.variables import VARIABLES
from pscompy.plugin import Transport, Var, count, hookimpl
from tests.names import A_KEY
from tests.program import module, program


def info(site, *arguments, **environ):
    ended = site.run("-m", "pscompy", "info", *arguments, **environ)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_version(site):
    assert site.run("-m", "pscompy", "--version").stdout == f"pscompy {pscompy.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(site, arguments):
    ended = site.run("-m", "pscompy", *arguments)
    assert ended.returncode == 0
    assert re.search(r"^  info +Show the transports", ended.stdout, re.M)
    assert re.search(r"^  run +\S", ended.stdout, re.M)


def test_help_has_whole_sentences(site):
    _, _, rows = site.run("-m", "pscompy", "--help").stdout.partition("commands:\n")
    entries = re.sub(r"\n {4,}", " ", rows.partition("\n\n")[0]).splitlines()
    assert len(entries) >= 5
    assert [entry for entry in entries if not entry.endswith(".")] == []
    assert max(map(len, rows.splitlines())) <= 100


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["--help"], ["--version"], ["info"], ["info", "--json"], ["endpoint-model"]),
        *(["run", "--help"], ["info", "--help"], ["gateway", "map", "--help"]),
        ["gateway", "routes", "plugin01", "--a", "one", "--b", "two", "--gateways", "gw:1"],
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_an_error(arguments, unbuffered):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pscompy", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=250,
        )
    text = "standard output cannot be written: No space left on device"
    assert (ended.returncode, ended.stderr) == (1, f"pscompy: error: {text}\n")


def test_an_error_that_is_not_of_the_output_is_not_called_one(tmp_path):
    (tmp_path / "routes.py").symlink_to("routes.py")  # cannot be read: a loop
    ended = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "--hostfile", tmp_path / "routes.py", "x.py"],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ended.returncode != 0
    assert "standard output" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "--bogus"), "unrecognized arguments: --bogus"),
        *(
            (
                ("info", "--peer", "127.0.0.1:9", "--timeout", bad),
                f"argument --timeout: '{bad}' is no time such as 0.5 or 200ms",
            )
            for bad in ("-1", "nan")
        ),
        (("inf",), "no command 'inf' (did you mean info?)"),
        (("--bogus",), "unknown option --bogus (pscompy --help)"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(site, arguments, message):
    ended = site.run("-m", "pscompy", *arguments)
    assert ended.returncode == 2
    assert re.fullmatch(rf"pscompy( info)?: error: {re.escape(message)}\n", ended.stderr)


def test_a_wrong_variable_is_one_line_and_code_2(site):
    ended = site.run("-m", "pscompy", "info", SPIN_US="soon")
    assert ended.returncode == 2
    assert ended.stderr == (
        "pscompy: error: PSP_SPIN_US: 'soon' (environment) must be"
        " a whole number, at most 60000000\n"
    )


def test_a_misspelt_variable_is_one_line(site):
    ended = site.run("-m", "pscompy", "info", SPIN_SU="5")
    assert ended.returncode == 0
    assert ended.stderr == (
        "pscompy: warning: unknown variable: PSP_SPIN_SU (did you mean PSP_SPIN_US?)\n"
    )


def test_a_misspelt_variable_is_told_where_the_program_opens_its_session(site):
    program = site.folder / "program.py"
    program.write_text("import pscompy\n\nwith pscompy.World():\n    pass\n")
    ended = site.run(program, SPIN_SU="5")
    assert ended.returncode == 0
    first, shown = ended.stderr.splitlines()
    assert first.startswith(f"{program}:3: ConfigWarning: unknown variable: PSP_SPIN_SU")
    assert shown.strip() == "with pscompy.World():"


def test_a_command_that_fails_with_an_error_of_ours(site):
    def main(arguments):
        raise pscompy.PeerLost("the peer\nis gone")

    files = {"losing.py": module(main)}
    site.install("losing", files, "[pscompy.commands]\nlose = losing:main\n")
    ended = site.run("-m", "pscompy", "lose")
    assert (ended.returncode, ended.stderr) == (1, "pscompy: error: the peer is gone\n")


def test_the_code_and_the_arguments_of_a_command(site):
    def main(arguments):
        return len(arguments)

    files = {"counting.py": module(main)}
    site.install("counting", files, "[pscompy.commands]\ncount = counting:main\n")
    assert site.run("-m", "pscompy", "count", "-n", "--", "-x").returncode == 3


def test_a_reader_that_goes_away_is_no_traceback(site):
    def goes_away():
        command = [sys.executable, "-m", "pscompy", "info", "--json"]
        info = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        info.stdout.close()
        sys.stdout.write(info.stderr.read().decode())
        info.wait()

    assert site.run("-c", program(goes_away)).stdout == ""


# ---- info -------------------------------------------------------------------


def test_info_shows_every_variable(site):
    shown = info(site)
    for var in VARIABLES:
        assert re.search(rf"^  PSP_{var.name} = .*\(default\)$", shown, re.M)
        assert " ".join(var.doc.split()) in " ".join(shown.split())


def test_info_changed_shows_only_those(site):
    shown = info(site, "--changed", SPIN_US="7")
    assert "PSP_SPIN_US = 7  (environment, default 50)" in shown
    assert "PSP_RETRY" not in shown


def test_info_hides_the_key(site):
    for arguments in ((), ("--json",)):
        shown = info(site, *arguments, KEY="hunter2")
        assert "hunter2" not in shown
        assert "(hidden)" in shown


def test_info_shows_a_transport_and_its_variables(site):
    @hookimpl
    def pscompy_transport():
        slots = Var("SLOTS", "8", count, "Slots.")
        return Transport("alpha", 5, (slots,), lambda: 0, lambda: "no device")

    site.transport("alpha", code=module(pscompy_transport))
    shown = info(site, ALPHA="3")
    assert re.search(r"^  alpha +priority 3, 5 +unavailable: no device$", shown, re.M)
    assert "PSP_ALPHA_SLOTS = 8  (default)" in shown
    (document,) = [
        it
        for it in json.loads(info(site, "--json", ALPHA="3"))["transports"]
        if it["name"] == "alpha"
    ]
    assert document == {
        "name": "alpha",
        "source": "alpha_fabric",
        "user_priority": 3,
        "priority": 5,
        "available": False,
        "reason": "no device",
        "capabilities": None,
    }


def test_json_and_text_tell_the_same_variables(site):
    document = json.loads(info(site, "--json", RETRY="3"))
    assert document["version"] == pscompy.__version__
    names = [row["name"] for row in document["variables"]]
    assert names == re.findall(r"^  (PSP_\w+) = ", info(site, RETRY="3"), re.M)


def test_the_capabilities_are_those_of_the_header():
    header = (Path(pscompy.get_include()) / "pscompy/transport/transport.h").read_text()
    bits = re.findall(r"#define PSC_CAP_(\w+) (0x\w+)ull", header)
    assert capability_words((1 << 64) - 1) == [name.lower() for name, _ in bits]
    for name, bit in bits:
        assert capability_words(int(bit, 16)) == [name.lower()]


def test_info_explains_the_connection_to_a_peer(site):
    with pscompy.Session(config={"KEY": A_KEY}) as session, session.listen("127.0.0.1") as socket:
        address = ("--peer", socket.address)
        text = info(site, *address, KEY=A_KEY, TCP="9", SHM="1")
        document = json.loads(info(site, *address, "--json", KEY=A_KEY, TCP="9", SHM="1"))
    assert "  tcp: chosen\n" in text
    assert re.search(
        r"  shm: not needed, although estimated to be \S+ times as fast for \d+ bytes"
        r" \(PSP_SHM sets its priority\)\n",
        text,
    )
    assert document["faster"]["shm"][0] > 2


def test_info_about_a_peer_that_is_not_there(site):
    ended = site.run("-m", "pscompy", "info", "--peer", "127.0.0.1:1")
    assert ended.returncode == 1
    assert "127.0.0.1:1 cannot be reached" in ended.stderr
