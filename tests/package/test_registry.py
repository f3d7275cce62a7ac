"""The registry: the plug-ins that it finds, their order, and its reports on the others."""

import json
import sys
from pathlib import Path

import pytest

import pscompy
import pscompy.plugins
from pscompy.config.config import ConfigWarning, Setting, Var
from pscompy.config.parsers import count
from pscompy.discovery import registry
from pscompy.discovery.sources import OWN
from pscompy.discovery.validation import flaw
from pscompy.errors import ConfigError
from pscompy.plugin import Native, PythonTransport, Transport, hookimpl
from tests.program import module, program


@hookimpl
def pscompy_transport():
    return Transport("alpha", 5, (), int, lambda: "no such device")


UNAVAILABLE = module(pscompy_transport)


def prints_what_is_unavailable():
    _, found = registry.load()
    print(json.dumps([[it.name, it.unavailable()] for it in found]))
    assert "unwanted" not in sys.modules


def prints_problems():
    problems = {}
    for it in registry.load()[1]:
        problems.setdefault(it.name, []).append(it.problem)
    print(json.dumps(problems))


def printed(site, main, **environ):
    """What the function prints where the site's distributions are installed."""
    ended = site.run("-W", "error", "-c", program(main), **environ)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def problems(site, **environ):
    """For each name the problems of all plug-ins with that name, in their order."""
    return json.loads(printed(site, prints_problems, **environ))


def report(site, **environ):
    return dict(json.loads(printed(site, prints_what_is_unavailable, **environ)))


def test_our_own_transports_are_plugins_as_all_others():
    _, found = registry.load(environ={"PSP_TCP": "0"})
    plugins = dict(found.plugins.list_name_plugin())
    for own in OWN:
        name = own.rpartition(".")[2]
        assert plugins[name] is (None if name == "tcp" else sys.modules[own])
    assert found.plugins.is_blocked("tcp")


def test_every_plugin_of_ours_is_registered():
    folders = Path(pscompy.plugins.__path__[0]).glob("*/__init__.py")
    assert sorted(OWN) == sorted(f"pscompy.plugins.{it.parent.name}" for it in folders)


def test_a_session_has_the_manager_of_its_plugins(site):
    def prints_plugins():
        with pscompy.Session(config={"TCP": 0}) as session:
            assert "pluggy" in sys.modules
            print(*(name for name, plugin in session.plugins.list_name_plugin() if plugin))

    site.transport("alpha", code=UNAVAILABLE)
    found = printed(site, prints_plugins).split()
    assert {*found} >= {"alpha", "ib", "loop", "portals", "shm"}
    assert "tcp" not in found


def test_an_installed_transport_is_found_with_its_variables(site):
    def prints_sources():
        config, found = registry.load()
        assert (config["ALPHA_SLOTS"], config["ALPHA"]) == (9, 1)
        assert config.settings("ALPHA") == (Setting("SLOTS", "9", 9),)
        print([it.source for it in found if it.name == "alpha"])

    site.transport("alpha")
    assert printed(site, prints_sources, ALPHA_SLOTS="9") == "['alpha_fabric']\n"


def test_order_is_by_the_users_priority_and_then_the_built_in(site):
    site.transport("alpha", priority=3000)
    site.transport("beta", priority=2000)
    site.transport("gamma", priority=1000)
    assert [*report(site)][:3] == ["alpha", "beta", "gamma"]
    assert [*report(site, GAMMA="2")][:3] == ["gamma", "alpha", "beta"]


def test_zero_excludes_without_importing(site):
    site.transport("alpha", code="import unwanted")
    assert report(site, ALPHA="0")["alpha"] == "excluded by PSP_ALPHA=0"
    site.transport("beta", priority=0)
    assert report(site, ALPHA="0")["beta"] == "excluded by its own priority 0"


@pytest.mark.parametrize("switch", ["IB", "OPENIB"])
def test_either_name_of_the_switch_of_ib_excludes_it(site, switch):
    def prints_whether_ib_was_imported():
        found = registry.load()[1]
        print(*(it.problem for it in found if it.name == "ib"), "pscompy.plugins.ib" in sys.modules)

    told = printed(site, prints_whether_ib_was_imported, **{switch: "0"})
    assert told == f"excluded by PSP_{switch}=0 False\n"


def test_either_name_of_the_switch_of_ib_is_its_priority():
    environ = {"PSP_OPENIB": "7"}
    config, found = registry.load(environ=environ)
    assert config["IB"] == 7
    assert found[0].name == "ib"
    assert config.asked("IB") == ["PSP_IB=7 (environment PSP_OPENIB)"]
    assert registry.load({"IB": 2}, environ)[0]["IB"] == 2
    assert registry.load(environ={**environ, "PSP_IB": "3"})[0]["IB"] == 3


def test_variables_of_an_excluded_transport_are_not_misspelt(site):
    site.transport("alpha")
    assert "excluded" in report(site, ALPHA="0", ALPHA_SLOTS="3", ALPHA_FUTURE="1")["alpha"]


@pytest.mark.parametrize("excluded", [{}, {"IB": "0", "PORTALS": "0", "GATEWAY": "0"}])
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("IB_PROT", "IB_PORT"),
        ("OPENIB_RECVQ_SIZES", "OPENIB_RECVQ_SIZE"),
        ("PORTALS_BUFER_SIZE", "PORTALS_BUFFER_SIZE"),
        ("GW_SERVERS", "GW_SERVER"),
        ("GATEWAY_MUT", "GATEWAY_MTU"),
        ("IB_PORT_OF_CALL", ""),
    ],
)
def test_no_name_of_ours_is_misspelt_without_a_word(misspelt, meant, excluded):
    """A misspelt variable is reported even if its transport is not built or is switched off."""
    hint = f" (did you mean PSP_{meant}?)" if meant else ""
    environ = {f"PSP_{name}": value for name, value in ({misspelt: "1"} | excluded).items()}
    with pytest.warns(ConfigWarning) as caught:
        registry.load({}, environ)
    assert [str(it.message) for it in caught] == [f"unknown variable: PSP_{misspelt}{hint}"]


def test_the_variables_of_what_is_excluded_are_right(recwarn):
    names = ("IB_PORT", "OPENIB_PORT", "PORTALS_SENDRQ_SIZE", "GW_MTU")
    environ = {f"PSP_{name}": "0" for name in ("IB", "PORTALS", "GATEWAY", *names)}
    registry.load({}, environ)
    assert not recwarn.list
    with pytest.raises(ConfigError, match=r"PSP_IB_PROT \(did you mean PSP_IB_PORT\?\)"):
        registry.load({"IB": 0, "IB_PROT": 1}, {})


def test_a_bad_priority_is_a_config_error():
    with pytest.raises(ConfigError, match="PSP_SHM: '-1'"):
        registry.load({}, {"PSP_PLUGINDIR": "", "PSP_SHM": "-1", "PSP_KEY": ""})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this"),
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("", "declares no transport: it needs a function pscompy_transport marked"),
        (
            "from pscompy.plugin import hookimpl\n@hookimpl\ndef pscompy_transport(config): ...",
            "Argument(s) {'config'} are declared in the hookimpl but can not be found",
        ),
        (
            "from pscompy.plugin import hookimpl\n@hookimpl\ndef pscompy_transports(): ...",
            "(the hook is pscompy_transport)",
        ),
        (
            "from pscompy.plugin import hookimpl\n@hookimpl\ndef pscompy_transport(): return 1",
            "returned int instead of a Transport",
        ),
    ],
)
def test_a_broken_plugin_says_what_is_wrong_and_stops_nobody(site, code, reason):
    site.transport("alpha", code=code)
    site.transport("beta")
    answers = report(site)
    assert reason in answers["alpha"]
    assert answers["beta"] is None


def test_a_plugin_that_ends_its_process_ends_nobody(site):
    """A plug-in that exits on import, for example a program found in its place, is only
    reported."""
    site.transport("alpha", code="import sys\nsys.exit('usage: alpha FILE')")
    site.transport("beta")
    answers = report(site)
    assert answers["alpha"] == "alpha_fabric raised SystemExit: usage: alpha FILE"
    assert answers["beta"] is None


def test_a_broken_plugin_leaves_its_name_to_the_next(site):
    site.install("broken", {"broken.py": "1 / 0"}, "[pscompy]\nshm = broken\n")
    reasons = problems(site)["shm"]
    assert sorted(map(str, reasons)) == [
        "None",
        "broken raised ZeroDivisionError: division by zero",
    ]


def test_two_of_one_name(site):
    site.transport("alpha")
    site.install("twin", {"twin.py": site.plugin("alpha", 3000)}, "[pscompy]\nalpha = twin\n")
    working, other = problems(site)["alpha"]
    assert working is None
    assert other in ("the name is taken by alpha_fabric", "the name is taken by twin")


def sends_to_itself():
    with pscompy.World() as world:
        world.isend(b"to myself", dest=0)
        print(world.recv().decode())


def test_broken_hidden_and_duplicate_plugins_are_named_and_sessions_work(site):
    site.transport("alpha", code=UNAVAILABLE)
    site.install("twin", {"twin.py": UNAVAILABLE}, "[pscompy]\nalpha = twin\n")
    site.transport("beta", code="1 / 0")
    site.transport("gamma")
    (site.folder / "gamma_fabric.py").write_text("raise SystemExit('the stranger was run')")
    ended = site.run("-m", "pscompy", "info", "--json")
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)["transports"]
    reasons = [(row["name"], row["reason"]) for row in rows]
    taken = [reason for name, reason in reasons if name == "alpha" and reason != "no such device"]
    assert taken in (["the name is taken by alpha_fabric"], ["the name is taken by twin"])
    assert ("beta", "beta_fabric raised ZeroDivisionError: division by zero") in reasons
    assert f"is hidden by {site.folder}/gamma_fabric.py" in dict(reasons)["gamma"]
    assert printed(site, sends_to_itself) == "to myself\n"


def test_one_plugin_of_two_names(site):
    both = "[pscompy]\nalpha = twin\nbeta = twin\n"
    site.install("twin", {"twin.py": site.plugin("alpha", 3000)}, both)
    assert problems(site)["alpha"] == [None]
    assert problems(site)["beta"] == ["twin: it is registered as 'alpha' already"]


def test_a_transport_is_not_named_as_a_variable_of_pscompy(site):
    """A transport `debug` would have PSP_DEBUG as its priority."""
    site.transport("debug")
    assert report(site, DEBUG="4")["debug"] == "PSP_DEBUG is another variable"


def test_a_name_that_no_transport_can_have_takes_no_variable(site):
    """The priority of a transport `ib_port` would be PSP_IB_PORT."""
    (site.folder / "ib_port.py").write_text("raise SystemExit")
    found = problems(site, PLUGINDIR=str(site.folder), IB_PORT="1")
    (problem,) = found["ib_port"]
    assert problem.startswith("the name 'ib_port' is not 1 to 15 lower-case letters and digits")
    assert "folder in PSP_PLUGINDIR" in problem
    assert found["ib"] == [None]


def test_a_plugin_that_cannot_tell_whether_it_is_enabled(site):
    @hookimpl
    def pscompy_transport():
        return Transport("alpha", 5, (), int, lambda: None, asked=lambda values: values["NIC"])

    site.transport("alpha", code=module(pscompy_transport))
    reason = "asked whether it is enabled it raised KeyError: 'NIC'"
    assert report(site)["alpha"] == reason


def test_a_variable_of_a_transport_has_a_name_of_its_own(site):
    """PSP_PRECON_TCP_NODELAY belongs to pscompy itself."""

    @hookimpl
    def pscompy_transport():
        return Transport("precon", 5, (Var("TCP_NODELAY", "0", count, "Doc."),), lambda: 0)

    site.transport("precon", code=module(pscompy_transport))
    reason = "precon_fabric: its variable 'TCP_NODELAY' is the name of another one"
    assert report(site)["precon"] == reason


def test_a_plugin_that_cannot_tell_its_availability(site):
    @hookimpl
    def pscompy_transport():
        return Transport("alpha", 5, (), lambda: 0, lambda: {}["nic"])

    site.transport("alpha", code=module(pscompy_transport))
    assert "raised KeyError: 'nic'" in report(site)["alpha"]


def test_a_plugin_that_exits_when_asked_for_its_availability(site):
    @hookimpl
    def pscompy_transport():
        return Transport("alpha", 5, (), lambda: 0, exit)

    site.transport("alpha", code=module(pscompy_transport))
    assert "raised SystemExit" in report(site)["alpha"]


def declare(**changes):
    fields = {"name": "alpha", "priority": 5, "variables": (), "ops": int} | changes
    return Transport(**fields)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "beta"}, "installed as 'alpha' and declares the transport 'beta'"),
        ({"priority": -1}, "its priority is -1"),
        ({"priority": True}, "its priority is True"),
        ({"ops": None}, "its `ops` is no function"),
        ({"ops": None, "python": int}, "its `python` is no subclass of"),
        ({"unavailable": "no"}, "its `unavailable` is no function"),
        ({"variables": [Var("X", "1", count, "Doc.")]}, "are a list instead of a tuple"),
        ({"variables": (3,)}, "hold 3, which is not a Var"),
        ({"variables": (Var("x", "1", count, "Doc."),)}, "'x' is not named in capitals"),
        ({"variables": (Var("X", "1", int, "Doc."),)}, "'X' has no Parser"),
        ({"variables": (Var("X", "1", count, " "),)}, "'X' has no documentation"),
        ({"variables": (Var("X", "y", count, "Doc."),)}, "has the default 'y'; it must be a whole"),
        ({"variables": (Var("X", "1", count, "Doc."),) * 2}, "'X' is declared twice"),
    ],
)
def test_each_flaw_of_a_declaration_is_named(changes, problem):
    assert problem in flaw(declare(**changes), "alpha")


def test_a_name_is_short_and_lower_case():
    for name in ("Alpha", "al_pha", "a" * 16, ""):
        assert "lower-case" in flaw(declare(name=name), name)
    assert flaw(declare(), "alpha") is None


class Pipes(PythonTransport):
    open = connect = send = disconnect = close = lambda *_: None


@pytest.mark.parametrize("name", ["open", "connect", "send", "disconnect", "close"])
def test_a_method_that_a_class_does_not_implement_is_named(name):
    assert flaw(declare(ops=None, python=Pipes), "alpha") is None
    lacking = type("Lacking", (Pipes,), {name: getattr(PythonTransport, name)})
    problem = flaw(declare(ops=None, python=lacking), "alpha")
    assert problem == f"the class Lacking does not implement {name}()"


# ---- PSP_PLUGINDIR ----------------------------------------------------------


def test_files_and_packages_of_plugindir(site):
    folder = site.folder / "plugins"
    (folder / "beta").mkdir(parents=True)
    (folder / "alpha.py").write_text(site.plugin("alpha", 3000))
    (folder / "beta" / "__init__.py").write_text("from .inner import *\n")
    (folder / "beta" / "inner.py").write_text(site.plugin("beta", 3000))
    for name in ("_helper", "2fast"):
        (folder / f"{name}.py").write_text("raise SystemExit")
    (folder / "notes.txt").write_text("none of ours")
    answers = report(site, PLUGINDIR=str(folder))
    assert [*answers][:2] == ["beta", "alpha"] or [*answers][:2] == ["alpha", "beta"]
    assert answers["alpha"] is None
    assert answers["beta"] is None
    assert "_helper" not in answers
    assert "is not 1 to 15 lower-case letters and digits" in answers["2fast"]


def test_plugindir_wins_over_what_is_installed_and_the_other_says_so(site):
    site.transport("alpha")
    (site.folder / "alpha.py").write_text(site.plugin("alpha", 3000))
    taken = f"the name is taken by {site.folder}/alpha.py"
    assert problems(site, PLUGINDIR=str(site.folder))["alpha"] == [None, taken]


def test_the_path_of_a_file_without_a_hook_is_named_once(site):
    file = site.folder / "alpha.py"
    file.write_text("def pscompy_transport(): ...")
    (problem,) = problems(site, PLUGINDIR=str(site.folder))["alpha"]
    assert problem.startswith(f"{file} declares no transport")


def test_plugindir_that_is_no_folder_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"PSP_PLUGINDIR: .* must be a folder"):
        registry.load({"PLUGINDIR": str(tmp_path / "none")}, {})


# ---- the compiled half ------------------------------------------------------


def native(site, *, record=None, extension=None):
    package = site.packages / "fabrics" / "nu"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    if record:
        (package.parent / "not_built.json").write_text(json.dumps(record))
    if extension:
        (package / "_native.py").write_text(extension)
    program = "from pscompy.plugin import Native; print(Native('fabrics.nu').unavailable())"
    return site.run("-c", program).stdout.strip()


def test_not_built_with_the_reason_that_the_build_recorded(site):
    reason = native(site, record={"nu": "infiniband/verbs.h missing"})
    assert reason == "not built: infiniband/verbs.h missing"


def test_not_built_without_a_record(site):
    assert native(site).startswith("not built: ")


def test_built_but_its_library_does_not_load(site):
    text = "libibverbs.so.1: cannot open shared object file"
    reason = native(site, extension=f"raise ImportError({text!r})")
    assert reason == f"built, but does not load: {text}"


def test_built_but_a_module_is_missing(site):
    reason = native(site, extension="import nothing_of_this_name")
    assert reason == "built, but it needs the missing module nothing_of_this_name"


def test_a_module_that_loads_is_available(site):
    assert native(site, extension="lib = None") == "None"


def test_native_is_loaded_at_first_use_only():
    assert Native("a.package.that.does.not.exist")
