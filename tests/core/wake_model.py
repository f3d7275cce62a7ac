"""A model of the rule by which sleeping threads are woken (`core/progress/progress.h`), small
enough to try every order of its steps.

Some threads share one worker with one fabric. An `outside` thread sleeps on a descriptor of its
own. A `wait` thread blocks: it polls, or follows the thread that polls. A `send` thread queues a
message that the fabric has no room for, and then blocks. A `stay` thread blocks for an event that
never happens; a `brief` thread, too, but its time is short. A `stand` thread stands in: it
sleeps as an outside thread while no thread holds the poller's role, and else stands by; its
request is complete also when something is queued that no other thread takes. A `call`
thread polls once and ends, a `glance` thread arms once and ends. An `own` thread blocks for an
event that never happens, and does not return for what is queued (PSC_WAIT_OWN); a `take` thread
blocks until a completion is queued, which no thread waits for. A step is one critical section
under the worker's lock, or one instruction without the lock. Messages arrive, and room becomes
free, at any time.

The fabric is the strictest that the contract allows: its descriptor becomes readable only while
it is armed, and only for events known when it was armed. A pass consumes that, as does arming
that fails. An event is lost if a state can be reached in which no thread can make a step
although some request is not complete.

Each ingredient of the rule can be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

INGREDIENTS = {
    "ring for changes": "rule 1: what changes with the generation rings armed sleepers",
    "check the generation": "rule 2: arming fails if it has changed since the sleeper looked",
    "look after arming": "rule 2, of the poller, who looks after it has armed instead",
    "settle after a call": "rule 3, of calls that poll",
    "settle after a failure": "rule 3, of arming that fails",
    "settle with the role": "rule 3, of who gives the role back",
    "ring if arming fails": "rule 3: where it cannot be armed again, sleepers are rung",
    "ring for queued work": "rule 4",
    "wake the follower": "rule 5: a request that changes wakes its follower",
    "look to follow": "rule 5: a follower looks with the lock held before it arms",
    "look at the role": "rule 5: a follower looks at the role after arming",
    "wake for the role": "rule 6: a follower is woken when the role is free",
    "pass the role on": "rule 6, of followers that return",
    "wake for the queue": "rule 7: a poller that does not take what is queued wakes who does",
    "ring for the role": "rule 8: a thread that stands by is rung when the role is free",
    "look standing by": "rule 8: it looks at its request and the queues after arming",
}


class Thread(NamedTuple):
    kind: str
    at: str  # position in the thread's program
    done: bool = False  # the thread's request is complete
    behind: bool = False  # the generation has changed since the thread last looked
    armed: bool = False  # the thread asks to be rung, or to be woken
    rung: bool = False
    followed: bool = False


changed = cache(Thread._replace)  # there are millions of changes, of few hundred threads


class State(NamedTuple):
    threads: tuple[Thread, ...]
    # messages that have not arrived, by the thread whose request they complete
    coming: tuple[int, ...]
    inside: tuple[int, ...] = ()  # messages that have arrived and were not polled yet
    queued: tuple[int, ...] = ()  # threads whose sends wait for room
    room: bool = False
    watched: bool = False  # when the fabric was armed it knew of queued sends
    armed: bool = False  # the fabric is armed
    fired: bool = False  # the fabric's descriptor is readable
    restless: bool = False  # the last pass made progress
    role: bool = False  # a thread holds the poller role

    def having(self, threads: Iterable[Thread]) -> State:
        return State(tuple(threads), *self[1:])


BEGIN = {
    "outside": "look",
    "wait": "look to wait",
    "send": "queue",
    "stay": "look to wait",
    "brief": "look to wait",
    "call": "poll",
    "glance": "glance",
    "stand": "stand",
    "own": "look to wait",
    "take": "look to wait",
}
FOLLOWING = ("role?", "follow", "disarm", "time is over")
STANDING_BY = ("look by", "by")


class Model:
    def __init__(self, kinds: Sequence[str], without: str | None = None) -> None:
        self._rules = set(INGREDIENTS) - {without}
        comes = ("outside", "wait", "stand", "take")
        waiting = [i for i, kind in enumerate(kinds) if kind in comes]
        threads = tuple(Thread(kind, BEGIN[kind]) for kind in kinds)
        self.begin = State(threads, coming=tuple(waiting))

    # ---- steps with the lock held ----

    def _set(self, state: State, me: int, **changes: object) -> State:
        threads = list(state.threads)
        threads[me] = changed(threads[me], **changes)
        return state.having(threads)

    def _ring(self, state: State, but: tuple[str, ...] = FOLLOWING) -> State:
        """Ring all armed sleepers that are not at one of these positions."""
        threads = (
            changed(thread, armed=False, rung=True)
            if thread.armed and thread.at not in but
            else thread
            for thread in state.threads
        )
        return state.having(threads)

    def _ring_spent(self, state: State) -> State:
        """Ring the sleepers that sleep on the fabric."""
        return self._ring(state, FOLLOWING + STANDING_BY)

    def _followers(self, state: State) -> list[int]:
        """The armed followers."""
        return [i for i, it in enumerate(state.threads) if it.armed and it.at in FOLLOWING]

    def _wake_one(self, state: State) -> Iterator[State]:
        """Wake the threads that stand by, and one of the followers, whichever."""
        if "ring for the role" in self._rules:
            others = tuple(it.at for it in state.threads if it.at not in STANDING_BY)
            state = self._ring(state, others)
        followers = self._followers(state)
        for i in followers:
            yield self._set(state, i, armed=False, rung=True)
        if not followers:
            yield state

    def _change(self, state: State, whose: int) -> State:
        state = self._set(state, whose, done=True)
        state = state.having(changed(it, behind=it.kind == "outside") for it in state.threads)
        queued = state.threads[whose].kind == "take"
        waited_for = whose in self._followers(state) and not queued
        if "wake the follower" in self._rules and waited_for:
            state = self._set(state, whose, armed=False, rung=True)
        if "ring for changes" in self._rules:
            state = self._ring(state)
        return state

    def _hand_on(self, state: State, me: int) -> State:
        """If this poller does not take what is queued, wake a follower that does."""
        takes = [i for i in self._followers(state) if state.threads[i].kind == "take"]
        takes = [i for i in takes if state.threads[i].done]
        if "wake for the queue" not in self._rules or state.threads[me].kind != "own" or not takes:
            return state
        return self._set(state, takes[0], armed=False, rung=True)

    def _pass(self, state: State) -> State:
        ended = state.inside + (state.queued if state.room else ())
        queued = () if state.room else state.queued
        state = state._replace(inside=(), queued=queued, armed=False, fired=False)
        for whose in ended:
            state = self._change(state, whose)
        return state._replace(restless=bool(ended))

    def _arm_fabric(self, state: State) -> tuple[State, bool]:
        if state.restless:
            return state, False
        if state.inside or (state.queued and state.room):
            return state._replace(armed=False, fired=False), False
        return state._replace(armed=True, watched=bool(state.queued)), True

    def _settle(self, state: State) -> Iterator[State]:
        """A message may arrive, or room become free, just before."""
        apart = FOLLOWING + STANDING_BY
        if not any(thread.armed and thread.at not in apart for thread in state.threads):
            yield state
            return
        for before in (state, *self._events(state)):
            after, armed = self._arm_fabric(before)
            if not armed and "ring if arming fails" in self._rules:
                after = self._ring_spent(after)
            yield after

    def _settle_if(self, rule: str, state: State) -> Iterator[State]:
        yield from self._settle(state) if rule in self._rules else (state,)

    # ---- the surroundings ----

    def _fire(self, state: State) -> State:
        return state._replace(armed=False, fired=True) if state.armed else state

    def _events(self, state: State) -> Iterator[State]:
        for i, whose in enumerate(state.coming):
            coming = state.coming[:i] + state.coming[i + 1 :]
            yield self._fire(state._replace(coming=coming, inside=(*state.inside, whose)))
        if not state.room:
            free = state._replace(room=True)
            yield self._fire(free) if state.watched and state.queued else free

    # ---- the threads ----

    def _steps(self, state: State, me: int) -> Iterator[State]:
        thread = state.threads[me]
        step = getattr(self, "_" + thread.at.replace(" ", "_").replace("?", ""))
        yield from step(state, me, thread)

    def _go(self, state: State, me: int, at: str, **changes: object) -> State:
        return self._set(state, me, at=at, **changes)

    def _end(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        return iter(())

    # call: one pass

    def _poll(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        for after in self._settle_if("settle after a call", self._pass(state)):
            yield self._go(after, me, "end")

    # glance: one arming

    def _glance(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        state, armed = self._arm_fabric(state)
        rule = "" if armed else "settle after a failure"
        for after in self._settle_if(rule, state):
            yield self._go(after, me, "end")

    # outside: look, arm, sleep; or poll and look again

    def _look(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._go(state, me, "end" if thread.done else "arm")

    def _arm(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        event = thread.behind and "check the generation" in self._rules
        state = self._set(state, me, behind=False, armed=False, rung=False)
        armed = False
        if not event:
            state, armed = self._arm_fabric(state)
        rule = "" if armed else "settle after a failure"
        for after in self._settle_if(rule, state):
            yield self._go(after, me, "sleep" if armed else "progress", armed=armed)

    def _sleep(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.rung or state.fired:
            yield self._go(state, me, "progress")

    def _progress(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        state = self._pass(self._set(state, me, armed=False, rung=False))
        for after in self._settle_if("settle after a call", state):
            yield self._go(after, me, "look", behind=False)

    # wait: poll with the role, or follow

    def _queue(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        state = state._replace(queued=(*state.queued, me), restless=True)
        if "ring for queued work" in self._rules:
            state = self._ring_spent(state)
        yield self._go(state, me, "look to wait")

    def _look_to_wait(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._leave(state, me, thread) if thread.done else self._go(state, me, "take role")

    def _leave(self, state: State, me: int, thread: Thread) -> State:
        passes = thread.followed and "pass the role on" in self._rules
        return self._go(state, me, "role to pass?" if passes else "end")

    def _role_to_pass(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        by = any(it.armed and it.at in STANDING_BY for it in state.threads)
        waited_for = not state.role and (by or self._followers(state))
        yield self._go(state, me, "pass role" if waited_for else "end")

    def _pass_role(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        for after in self._wake_one(state):
            yield self._go(after, me, "end")

    def _take_role(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if state.role:
            yield self._go(state, me, "watch")
        else:
            rung = tuple(it.at for it in state.threads if it.kind != "stand")
            taken = self._ring(state, rung + STANDING_BY)
            yield self._go(taken._replace(role=True), me, "spin")

    def _watch(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        """The thread looks without being armed. Whatever happens afterwards, it may give up."""
        seen = thread.done or not state.role
        yield self._go(state, me, "look to wait" if seen else "arm follower")

    def _arm_follower(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        thread = thread._replace(followed=True)
        state = self._set(state, me, followed=True)
        if thread.done and "look to follow" in self._rules:
            yield self._leave(state, me, thread)
        else:
            yield self._go(state, me, "role?", armed=True, rung=False)

    def _role(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        free = not state.role and "look at the role" in self._rules
        yield self._go(state, me, "disarm" if free else "follow")

    def _follow(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.rung:
            yield self._go(state, me, "look to wait")
        elif thread.kind == "brief":
            yield self._go(state, me, "time is over")

    def _disarm(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._go(state, me, "look to wait", armed=False)

    def _time_is_over(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._leave(self._set(state, me, armed=False), me, thread)

    def _spin(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.done or thread.kind == "brief":
            yield self._go(state, me, "give role")
        if not thread.done:
            yield self._go(self._hand_on(self._pass(state), me), me, "spin")
            yield self._go(state, me, "arm poller")

    def _arm_poller(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        state, armed = self._arm_fabric(self._set(state, me, armed=False, rung=False))
        if armed:
            late = "look after arming" in self._rules
            state = self._hand_on(state, me)
            yield self._go(state, me, "armed" if late else "doze", armed=True)
        else:
            yield self._go(self._hand_on(self._pass(state), me), me, "spin")

    def _armed(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._go(state, me, "stay awake" if thread.done else "doze")

    def _stay_awake(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._go(state, me, "give role", armed=False, rung=False)

    def _doze(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.rung or state.fired:
            state = self._set(state, me, armed=False, rung=False)
            after = self._pass(state) if state.fired else state
            yield self._go(self._hand_on(after, me), me, "spin")

    def _give_role(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        yield self._go(state._replace(role=False), me, "settle role")

    def _settle_role(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        wakes = "wake for the role" in self._rules
        for woken in self._wake_one(state) if wakes else (state,):
            for after in self._settle_if("settle with the role", woken):
                yield self._go(after, me, "end")

    # stand: sleep on the fabric and poll, or rest while another thread holds the role

    def _stand(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.done:
            yield self._go(state, me, "end")
            return
        state, armed = self._arm_fabric(self._set(state, me, armed=False, rung=False))
        for after in self._settle_if("" if armed else "settle after a failure", state):
            yield self._go(after, me, "stand armed" if armed else "stand poll", armed=armed)

    def _stand_armed(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.done:
            yield self._go(state, me, "end", armed=False)
        else:
            yield self._go(state, me, "rest" if state.role else "stand asleep")

    def _stand_asleep(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.rung or state.fired:
            yield self._go(state, me, "rest" if state.role else "stand poll")

    def _stand_poll(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        state = self._pass(self._set(state, me, armed=False, rung=False))
        for after in self._settle_if("settle after a call", state):
            yield self._go(after, me, "stand")
            yield self._go(after, me, "rest")

    def _rest(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        asleep = any(it.armed and it.at in ("armed", "doze") for it in state.threads)
        state = self._set(state, me, armed=False, rung=False)
        if asleep:
            yield self._go(state, me, "look by", armed=True)
        elif not state.role:
            yield self._go(state, me, "stand")

    def _look_by(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        ended = thread.done and "look standing by" in self._rules
        yield self._go(state, me, "end" if ended else "by", armed=not ended)

    def _by(self, state: State, me: int, thread: Thread) -> Iterator[State]:
        if thread.rung:
            yield self._go(state, me, "rest")

    # ---- all orders ----

    def _over(self, state: State) -> bool:
        return all(
            thread.at == "end" or thread.kind in ("stay", "brief", "own")
            for thread in state.threads
        )

    def next(self, state: State) -> Iterator[State]:
        yield from self._events(state)
        for me in range(len(state.threads)):
            yield from self._steps(state, me)

    def explore(self) -> tuple[int, State | None]:
        """The number of states, and a state in which an event is lost, or None."""
        known, todo = {self.begin}, [self.begin]
        while todo:
            state = todo.pop()
            following = list(self.next(state))
            if not following and not self._over(state):
                return len(known), state
            for after in following:
                if after not in known:
                    known.add(after)
                    todo.append(after)
        return len(known), None
