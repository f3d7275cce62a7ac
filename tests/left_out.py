"""Which tests a usual run leaves out, because each takes seconds and others nearly cover it;
PSCOMPY_TEST_ALL=1 runs all of them, and a test that is named on the command line always runs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pscompy.testing.fault_cases import Faults

ALL = "PSCOMPY_TEST_ALL" in os.environ

# Functions with several parameters, and how many of their tests have each value, at least. The
# others, with further combinations of the values, are left out.
GRIDS = {
    "tests/core/test_core.py::test_core": 2,
    "tests/core/test_core.py::test_core_with_receives_that_the_peer_sees": 1,
    "tests/contract/test_contract.py::test_contract_when_tight": 2,
    "tests/launch/test_ended_ranks.py::test_a_rank_of_a_store_that_was_killed": 1,
    "tests/launch/test_ended_ranks.py::test_what_needs_a_rank_that_has_left_says_so": 1,
    "tests/launch/test_reentry.py::test_calls_that_do_not_block_work_anywhere": 1,
    "tests/launch/test_verdict.py::test_the_first_failure_counts": 1,
    "tests/messages/test_dropped.py::test_dropped_before_the_message": 1,
    "tests/messages/test_dropped.py::test_dropped_when_it_is_complete": 1,
    "tests/messages/test_dropped.py::test_dropped_while_the_message_arrives": 1,
    "tests/messages/test_dropped.py::test_awaited_in_a_loop_that_is_closed": 1,
    "tests/messages/test_module_end.py::test_collected_with_the_module": 1,
    "tests/package/test_cli.py::test_output_that_cannot_be_written_is_an_error": 1,
    "tests/parcel/test_dropped_objects.py::test_dropped": 1,
    "tests/parcel/test_examples.py::test_it_runs": 1,
    "tests/parcel/test_executor.py::test_map_and_submit": 1,
    "tests/session/test_busy_peer.py::test_a_blocked_call_sleeps": 1,
    "tests/session/test_cut_rails.py::test_a_connection_outlives_its_guard": 1,
    "tests/session/test_cut_rails.py::test_a_rail_that_comes_back_is_joined_again": 1,
    "tests/session/test_cut_rails.py::test_messages_are_whole_although_a_rail_is_cut": 2,
    "tests/session/test_cut_rails.py::test_one_of_two_transports_is_cut": 1,
    "tests/session/test_ends.py::test_close_from_another_thread_wakes": 1,
    "tests/session/test_ends.py::test_interpreter_exit": 1,
    "tests/session/test_flood.py::test_memory_is_bounded": 1,
    "tests/session/test_held_back.py::test_a_message_passes_very_many_others": 1,
    "tests/session/test_overlap.py::test_the_sender_ends_or_stops": 1,
    "tests/session/test_peer_dies.py::test_receiver_dies_in_rendezvous": 1,
    "tests/session/test_peer_dies.py::test_sender_dies_in_rendezvous": 1,
    "tests/session/test_threads.py::test_four_threads_on_one_connection": 1,
}

KIT = "tests/conformance/test_conformance.py"
MODEL = "tests/core/test_wake_model.py"
# Left out as a whole: the largest models, long messages over a stream in Python, the kit for that
# stream once more from a wheel, and groups of the benchmarks, of which others are drawn.
COSTLY = {
    f"{KIT}::TestPythonStream::test_a_message_passes_many_that_nobody_expects[rendezvous]",
    f"{KIT}::TestPythonStream::test_both_directions_at_once",
    f"{KIT}::TestPythonStream::test_every_size_comes_back",
    f"{KIT}::TestPythonStream::test_get_reads[5242883]",
    f"{KIT}::TestPythonStream::test_large",
    f"{KIT}::TestPythonStream::test_who_sleeps_is_woken[5242883]",
    f"{KIT}::TestTcpWithSmallBuffers::test_a_message_passes_many_that_nobody_expects[rendezvous]",
    f"{MODEL}::test_no_order_loses_an_event[outside-outside-wait]",
    f"{MODEL}::test_no_order_loses_an_event[outside-wait-brief]",
    f"{MODEL}::test_no_order_loses_an_event[wait-wait-brief]",
    f"{MODEL}::test_two_pollers_and_two_sleepers_lose_no_event",
    "tests/bench/test_bench.py::test_each_cell_of_overlap_has_a_figure[overlap-receiver]",
    "tests/bench/test_bench.py::test_growth_in_one_picture",
    "tests/bench/test_bench.py::test_lists_against_peers",
    "tests/bench/test_bench.py::test_messages_while_one_side_is_away",
    "tests/bench/test_bench.py::test_threads_with_endpoints",
    "tests/examples/test_transports.py::test_the_commands_of_the_readme[transport_python]",
}


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests among these that a usual run leaves out."""
    grids = defaultdict(list)
    for item in items:
        grids[item.nodeid.partition("[")[0]].append(item)
    beyond = [it for name, often in GRIDS.items() for it in beyond_diagonals(grids[name], often)]
    costly = (it for it in items if it.nodeid in COSTLY)
    return [*beyond, *costly, *faults(items)]


def beyond_diagonals(items: Sequence[pytest.Item], often: int) -> list[pytest.Item]:
    """The tests that are left when, so often, a few have been taken in which each value of each
    parameter occurs."""
    rest = list(items)
    for _ in range(often):
        seen: set[tuple[str, int]] = set()
        while rest and (best := max(rest, key=lambda it: len(values(it) - seen))):
            if values(best) <= seen:
                break
            seen |= values(best)
            rest.remove(best)
    return rest


def values(item: pytest.Item) -> set[tuple[str, int]]:
    """The test's parameters. All tests of a function share the objects that are their values."""
    return {(name, id(value)) for name, value in parameters(item).items()}


def faults(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Tests of the conformance kit with one of several faults (`knobs`), or with a fault at one of
    several operations: of each suite all but two, so that four suites together have all."""
    suites: dict[type, int] = {}
    groups = defaultdict(list)
    for item in items:
        suite = getattr(item, "cls", None) or object
        if issubclass(suite, Faults) and {"operation", "knobs"} & parameters(item).keys():
            number = suites.setdefault(suite, len(suites))
            groups[number, item.nodeid.partition("[")[0]].append(item)
    for (number, _), group in groups.items():
        apart = max(1, len(group) // 2)
        yield from (it for place, it in enumerate(group) if (place - number) % apart)


def parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}
