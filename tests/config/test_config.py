"""Config: the source of each value, and the messages about wrong values."""

import warnings

import pytest

from pscompy.config.config import (
    Config,
    ConfigWarning,
    Setting,
    Var,
    launcher_environment,
)
from pscompy.config.parsers import Parser, choice, count, nbytes, seconds, text
from pscompy.config.variables import KNOWN, VARIABLES, WITHOUT_EFFECT
from pscompy.errors import ConfigError

TABLES = {
    "": (
        Var("SPIN_US", "50", count, "Polling."),
        Var("RENDEZVOUS", "auto", nbytes, "Threshold."),
        Var("KEY", "", text, "Secret.", secret=True),
        Var("DEBUG_OUT", "", text, "File."),
    ),
    "SHM": (
        Var("", "1", count, "Priority."),
        Var("RENDEZVOUS", "32k", nbytes, "Threshold.", parent="RENDEZVOUS"),
        Var("SENDQ_SIZE", "16", count, "Slots.", aliases=("SHM_SENDRQ_SIZE",)),
        Var("LINGER", "1.5", seconds, "Time."),
        Var("COPY", "auto", choice("auto", "cma"), "How."),
    ),
}


def load(overrides=None, **environ):
    return Config.load(TABLES, overrides, {f"PSP_{name}": text for name, text in environ.items()})


def test_defaults():
    config = load()
    assert config["SPIN_US"] == 50
    assert config["SHM_RENDEZVOUS"] == 32768
    assert config["SHM"] == 1
    assert config.origin("SHM_RENDEZVOUS") == "default"


def test_environment_then_overrides():
    assert load(SPIN_US="7")["SPIN_US"] == 7
    config = load({"PSP_SPIN_US": 8}, SPIN_US="7")
    assert config["SPIN_US"] == 8
    assert config.origin("SPIN_US") == "config"
    assert load({"SPIN_US": "9"})["SPIN_US"] == 9


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("PSP_SPIN_US", "11")
    assert Config.load(TABLES, known=None)["SPIN_US"] == 11


def test_overrides_are_python_values():
    config = load({"SHM": True, "SHM_LINGER": 0.25, "SPIN_US": None})
    assert (config["SHM"], config["SHM_LINGER"], config["SPIN_US"]) == (1, 0.25, 50)


def test_overrides_are_a_dict():
    with pytest.raises(TypeError, match="config is a dict of variables"):
        Config({"": VARIABLES}, "SHM=0")


def test_an_empty_text_counts_as_not_set():
    assert load(SPIN_US="").origin("SPIN_US") == "default"


def test_a_parent_holds_where_the_child_is_not_set():
    config = load(RENDEZVOUS="64k")
    assert config["SHM_RENDEZVOUS"] == 65536
    assert config.origin("SHM_RENDEZVOUS") == "environment PSP_RENDEZVOUS"
    both = load({"RENDEZVOUS": "1k"}, SHM_RENDEZVOUS="2k")
    assert both["SHM_RENDEZVOUS"] == 2048


def test_the_default_of_a_parent_does_not_pass_to_the_child():
    assert load()["RENDEZVOUS"] != load()["SHM_RENDEZVOUS"]


def test_an_alias_is_another_spelling():
    config = load(SHM_SENDRQ_SIZE="4")
    assert config["SHM_SENDQ_SIZE"] == 4
    assert config.origin("SHM_SENDQ_SIZE") == "environment PSP_SHM_SENDRQ_SIZE"
    assert load(SHM_SENDRQ_SIZE="4", SHM_SENDQ_SIZE="5")["SHM_SENDQ_SIZE"] == 5
    assert load({"SHM_SENDRQ_SIZE": 4}, SHM_SENDQ_SIZE="5")["SHM_SENDQ_SIZE"] == 4


def test_a_bad_value_names_variable_value_and_what_is_allowed():
    with pytest.raises(ConfigError) as caught:
        load(SHM_COPY="knem")
    error = caught.value
    assert (error.name, error.value, error.allowed) == ("PSP_SHM_COPY", "knem", "one of auto, cma")
    assert str(error) == "PSP_SHM_COPY: 'knem' (environment) must be one of auto, cma"
    assert isinstance(error, ValueError)


def test_a_bad_value_from_the_parent_names_both():
    with pytest.raises(ConfigError, match=r"PSP_.*RENDEZVOUS: '8q'"):
        load(RENDEZVOUS="8q")
    own = {"SHM": TABLES["SHM"]}
    with pytest.raises(ConfigError, match=r"PSP_SHM_RENDEZVOUS: '8q' .* from PSP_RENDEZVOUS"):
        Config.load(own, None, {"PSP_RENDEZVOUS": "8q"}, known=None)


def test_a_misspelt_variable_is_a_warning_with_a_suggestion():
    with pytest.warns(ConfigWarning) as caught:
        load(SPIN_SU="7", SHM_FOO="1", SMH="0")
    assert len(caught) == 1
    assert "PSP_SPIN_SU (did you mean PSP_SPIN_US?)" in str(caught[0].message)
    assert "PSP_SHM_FOO" in str(caught[0].message)
    assert "PSP_SMH (did you mean PSP_SHM?)" in str(caught[0].message)


def test_what_resembles_nothing_is_no_suggestion():
    """The prefix PSP_, which all names share, does not count as resemblance."""
    with pytest.warns(ConfigWarning, match=r"unknown variable: PSP_FOO$"):
        Config.load({"LOOP": (Var("", "1", count, "Priority."),)}, None, {"PSP_FOO": "1"})


def test_known_names_are_not_misspelt():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environ = {"PSP_CUDA": "1", "PSP_CUDA_SYNC_MEMOPS": "1", "PATH": "/bin"}
        environ |= {"PSP_READAHEAD": "350", "PSP_OPENIB_EVENT_CNT": "1"}
        Config.load({"": VARIABLES}, None, environ, known=(*KNOWN, *WITHOUT_EFFECT))
    for name in ("PSP_CUDAS", "PSP_READAHEAD_MORE", "PSP_OPENIB_EVENTS_CNT"):
        with pytest.warns(ConfigWarning, match=f"{name}$"):
            Config.load({"": VARIABLES}, None, {name: "1"}, known=WITHOUT_EFFECT)


def test_a_name_without_effect_is_mentioned_once_with_its_counterpart(monkeypatch):
    monkeypatch.setattr("pscompy.config.config._mentioned", set())
    environ = {"PSP_READAHEAD": "350", "PSP_MALLOC_CALLBACKS": "1", "PSP_MALLOC": "0"}
    mentioned = (
        r"without effect in pscompy: PSP_MALLOC, PSP_MALLOC_CALLBACKS \(there are no hooks in"
        r" malloc\); PSP_READAHEAD \(every message .* PSP_UNEXPECTED_MAX bytes\)$"
    )
    with pytest.warns(ConfigWarning, match=mentioned):
        Config.load({"": VARIABLES}, None, environ, without_effect=WITHOUT_EFFECT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config.load({"": VARIABLES}, None, environ, without_effect=WITHOUT_EFFECT)


PSMPI = (
    *("ONDEMAND_SPAWN", "DIRECT_CONNECT", "DIRECT_CONNECT_SPAWN", "COLLECTIVES", "SMP_AWARENESS"),
    *("SMP_AWARE_COLLOPS", "SMP_NODE_ID", "MSA_NODE_ID", "MSA_AWARE_COLLOPS", "HISTOGRAM"),
    *("HISTOGRAM_MIN", "HISTOGRAM_MAX", "HISTOGRAM_SHIFT", "HISTOGRAM_CONTYPE", "COLLOPS_STATS"),
    *("LAZY_DISCONNECT", "HARD_ABORT", "FINALIZE_BARRIER", "FINALIZE_EXIT", "FINALIZE_SHUTDOWN"),
    *("KEEP_CONNECTIONS", "ACCUMULATE_ORDERING", "RMA_EXPLICIT_WAIT", "DEBUG_SETTINGS"),
    *("LIGHTWEIGHT_INIT_BARRIER", "COMPRESSOR_PLUGINS", "HCOLL", "HCOLL_STATS", "PMI_VERSION"),
    *("UCC", "UCC_VERBOSE", "UCC_DEBUG", "UCC_STATS", "UCC_RELAXED_STDCOMPLIANCE"),
)


def test_variables_of_psmpi_are_known_and_have_a_counterpart(monkeypatch):
    monkeypatch.setattr("pscompy.config.config._mentioned", set())
    environ = {f"PSP_{name}": "1" for name in PSMPI}
    with pytest.warns(ConfigWarning) as caught:
        Config.load({"": VARIABLES}, None, environ, without_effect=WITHOUT_EFFECT)
    (text,) = [str(it.message) for it in caught]
    _, _, told = text.partition("known, but without effect in pscompy: ")
    groups = [group.partition(" (") for group in told.split("; ")]
    assert sorted(name for names, *_ in groups for name in names.split(", ")) == sorted(environ)
    assert all(why.endswith(")") and len(why) > 10 for *_, why in groups)


def test_a_name_in_small_letters_has_a_suggestion():
    with pytest.warns(ConfigWarning, match=r"PSP_shm \(did you mean PSP_SHM\?\)"):
        Config.load(TABLES, None, {"PSP_shm": "0"})


def test_a_level_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"PSP_DEBUG: '99' .* at most 6"):
        Config.load({"": VARIABLES}, None, {"PSP_DEBUG": "99"})


def test_withheld_names_are_asked_for_only_if_there_is_need():
    def never():
        raise AssertionError

    Config.load(
        TABLES, None, {"PSP_SPIN_US": "7", "PSP_DAPL": "1"}, known=("DAPL_",), withheld=never
    )
    Config.load(TABLES, None, {"PSP_IB_PORT": "7"}, withheld=lambda: ["IB_PORT"])
    with pytest.warns(ConfigWarning, match=r"PSP_IB_PROT \(did you mean PSP_IB_PORT\?\)"):
        Config.load(TABLES, None, {"PSP_IB_PROT": "7"}, withheld=lambda: ["IB_PORT"])


def test_each_variable_is_read_once_and_not_before_it_is_asked_for():
    read = []
    noted = Parser(lambda given: read.append(given) or given, "anything")
    variables = [Var(name, name.lower(), noted, "Doc.") for name in ("A", "B", "C")]
    config = Config({"": variables[:2]}, {}, {"PSP_B": "7"})
    assert read == []
    assert config["B"] == "7"
    config.declare("X", variables[2:])
    assert list(config) == ["A", "B", "X_C"]
    config.check()
    config.check()
    assert sorted(read) == ["7", "a", "c"]
    assert (config["A"], config["B"], config["X_C"]) == ("a", "7", "c")
    assert sorted(read) == ["7", "a", "c"]


def test_a_bad_value_that_nobody_asks_for_is_found_by_check():
    config = Config(TABLES, {}, {"PSP_SHM_LINGER": "soon"})
    assert config["SPIN_US"] == 50
    with pytest.raises(ConfigError, match="PSP_SHM_LINGER: 'soon'"):
        config.check()


def test_what_asks_for_a_section_by_name():
    tables = {
        "": VARIABLES,
        "IB": (
            Var("", "1", count, "Priority."),
            Var("HCA", "", text, "Device.", aliases=("OPENIB_HCA",), selects=True),
            Var("SLOTS", "4", count, "Slots."),
        ),
    }

    def asked(**environ):
        given = {f"PSP_{name}": value for name, value in environ.items()}
        return Config.load(tables, None, given).asked("IB")

    assert asked() == asked(IB_SLOTS="5") == []
    assert asked(IB="2") == ["PSP_IB=2 (environment)"]
    assert asked(OPENIB_HCA="mlx") == ["PSP_IB_HCA=mlx (environment PSP_OPENIB_HCA)"]


def test_an_unknown_override_is_an_error():
    with pytest.raises(ConfigError, match=r"PSP_SPIN_SU \(did you mean PSP_SPIN_US\?\)"):
        load({"SPIN_SU": 7})


def test_secrets_are_never_shown():
    config = load(KEY="hunter2")
    assert config["KEY"] == "hunter2"
    assert "hunter2" not in repr(config) + str(config.rows())
    strict = {"": (Var("KEY", "1", count, "Secret.", secret=True),)}
    with pytest.raises(ConfigError) as caught:
        Config.load(strict, None, {"PSP_KEY": "hunter2"})
    assert "hunter2" not in str(caught.value) + repr(vars(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_settings_for_a_transport():
    assert load(SHM_LINGER="20ms").settings("SHM") == (
        Setting("RENDEZVOUS", "32k", 32768),
        Setting("SENDQ_SIZE", "16", 16),
        Setting("LINGER", "20ms", 20_000_000),
        Setting("COPY", "auto", 0),
    )


def test_rows_tell_what_is_changed():
    rows = {row.name: row for row in load(SPIN_US="7").rows()}
    assert rows["PSP_SPIN_US"].value == "7"
    assert rows["PSP_SPIN_US"].default == "50"
    assert [name for name, row in rows.items() if row.changed] == ["PSP_SPIN_US"]


def test_expand_as_a_shell_does():
    environ = {"PMI_RANK": "3", "EMPTY": ""}
    config = Config.load(TABLES, None, environ)
    import os

    assert config.expand("log_${PMI_RANK}_$PMI_RANK.$$") == f"log_3_3.{os.getpid()}"
    assert config.expand("a${NOTHING}b$EMPTY $") == "ab $"
    assert config.expand("~/log") == f"{os.path.expanduser('~')}/log"  # noqa: PTH111


def test_the_launchers_variables_and_no_others(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("SECRET", "x")
    environment = launcher_environment()
    assert environment["PMI_RANK"] == "3"
    assert "SECRET" not in environment


@pytest.mark.parametrize("var", VARIABLES, ids=lambda var: var.name)
def test_every_variable_of_the_core_is_well_declared(var):
    var.parser(var.default)
    assert var.doc.endswith(".")
    known = (*KNOWN, *WITHOUT_EFFECT)
    assert var.name not in known
    assert not f"{var.name}_".startswith(tuple(word for word in known if word.endswith("_")))
    assert var.parent is None or var.parent in {other.name for other in VARIABLES}
