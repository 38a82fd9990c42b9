"""The verifier is itself verified: what is changed in the meaning of a recorded session, it finds there or later.

What nobody can find out stands in three tables, with the reason; an entry that does not hold any more fails as well.
`make mutate` takes every mutation of every session (a minute); here a few of each class are drawn with a fixed seed.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest

from muse import app
from muse.event.kinds import KINDS
from muse.runtime.check.report import KINDS as DIVERGENCES
from muse.runtime.check.walk import verify_story
from tests.runtime.check.mutations import Mutation, Recorded, covered

SESSIONS = sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))
FULL = os.environ.get("MUSE_MUTATE") == "full"
DRAWN = 2
"""Mutations of each class, where not all are taken."""

NOT_RECORDED = {
    "head.signed": "not done yet", "log.imported": "nothing is derived from it",
    "log.recovered": "nothing is derived after it", "log.redacted": "nothing is derived after most of it",
    "session.forked": "not done yet", "source.kept": "nothing is derived from it",
    "session.rewound": "not done yet", "workspace.restored": "not done yet",
}  # fmt: skip
"""Types that no session in practice holds (yet)."""

COMMANDS = (
    "agent.continued", "agent.paused", "agent.steered", "agent.wanted", "budget.raised", "note.added", "policy.changed",
    "question.answered", "user.prompted",
)  # fmt: skip

NEVER: dict[str, str] = {
    "* header.id": "drawn at random, and names nothing that could be computed",
    "* header.time": "what a clock said; it orders nothing",
    **{f"{kind} .origin*": "where a command came from is its writer's word, which verify says" for kind in COMMANDS},
    "agent.wanted .tools[] (longer|order)": "the same tools, one twice or in another order",
    "approval.decided .origin.ancestry*": "the same",
    **{f"{kind} header.cause": "what a person was looking at: their word" for kind in COMMANDS},
    "agent.paused .why": "words for people, which reach no model",
    "note.added .text": "words for people, which reach no model",
    "note.added header.agent": "a remark changes nothing in any lane",
    "note.added after the next": "a remark changes nothing at any place",
    "budget.raised .scope": "the limit that it raises is one agent's",
    "budget.raised .value": "a limit that was not reached again",
    "budget.raised after the next": "between two commands nothing happens",
    "command.refused after the next": "nothing was done between the two",
    "effect.reconciled .evidence": "what was found in the world, in words for people",
    "files.changed .changes[] (longer|order)": "the same files, one twice or in another order",
    "files.changed .changes[].note": "why a content was not copied: what was found in the world",
    "files.changed .external": "whether others could have done it: what was seen of the machine",
    "files.changed .tree": "the name of a snapshot, a cache of the machine",
    "tool.started .observed.changes[] (order|shorter)": "which files a call was about to change is its own word",
    "tool.started .observed.changes[].note": "why a content was not copied: what was found in the world",
    "tool.started .observed.tree": "the name of a snapshot, a cache of the machine",
    "files.unknown .calls[] shorter": "which calls ran at that moment is the look's own word",
    "files.unknown .why": "what went wrong in the world",
    "files.unknown after the next": "when it was looked is the look's own word",
    "files.unknown dropped": "that it was looked in vain",
    "files.unknown said twice": "that it was looked in vain twice",
    "model.responded .duration_ms": "a measured duration",
    "model.failed .duration_ms": "a measured duration",
    "model.failed .jitter_permille": "drawn at random; with waits as short as these it makes less than a millisecond",
    "ownership.taken .(evidence|forced|previous_pid)": "what was seen of the process before, which is gone",
    "ownership.taken dropped": "that another process had it before: a look at the machine",
    "process.adopted after the next": "which of two processes was found first",
    "process.adopted dropped": "that a process was found running: a look at the machine",
    "process.reaped .how": "how a process ended: a look at the machine",
    "process.reaped after the next": "when its end was noticed",
    "process.reaped dropped": "that its end was noticed",
    "process.started .boot_id": "a fact about the machine",
    "process.started .command": "a fact about the machine",
    "process.started .group": "a fact about the machine",
    "process.started after the next": "which of two processes was noticed first",
    "policy.changed .allow[] longer": "the same rule twice",
    "policy.changed .allow[] order": "rules of one list are of equal weight",
    "policy.changed .ask[] longer": "a rule that no call met",
    "policy.changed .deny[] longer": "a rule that no call met",
    "question.answered said twice": "of several answers the first counts; later ones are kept",
    "worktree.prepared .base": "a fact about the repository that no model is told",
    "worktree.prepared .tree": "the name of a snapshot, a cache of the machine",
    "worktree.removed (after the next|dropped|header.type)": "that a tree which nobody needs was taken away",
    "worktree.removed (.left[] longer|.why)": "what was found in the tree",
    "session.opened .commands[].v": "a newer version of a command that nobody gave",
    "session.opened .git.head": "a fact about the repository that no model is told",
    "session.opened .git.root": "a fact about the repository that no model is told",
    "session.opened .host.*": "facts about the process and the machine",
    "session.opened .inode": "a fact about the machine",
    "session.opened .name": "what a person calls the session",
    "session.opened .sandbox": "what commands ran in: a fact about the machine",
    "session.opened .settings.addresses[] longer": "where the requests went is told by nothing else in the log",
    "session.opened .settings.compact_permille": "a thousandth of the window more, which no request came to fill",
    "session.opened .settings.network": "what commands could reach: nothing is decided by it",
    "session.opened .settings.parallel_tools_max": "a limit that was not reached",
    "session.opened .settings.permissions.allow[] longer": "the same rule twice, or one that no call met",
    "session.opened .settings.permissions.allow[] order": "rules of one list are of equal weight",
    "session.opened .settings.permissions.ask[] longer": "a rule that no call met",
    "session.opened .settings.permissions.deny[] longer": "the same rule twice, or one that no call met",
    "session.opened .settings.sandbox": "what commands ran in: nothing is decided by it",
    "session.opened .settings.shell_timeout_seconds": "a limit of the tool; nothing is decided by it",
}
"""Class of mutation → why no verifier can find it out."""

SOMETIMES: dict[str, str] = {
    "(agent.(finished|spawned)|budget.reached|model.requested|worktree.prepared) after the next": "of another agent",
    "agent.(continued|paused) .target": "the same of an agent with nobody below it",
    "agent.continued (after the next|said twice)": "it shows where something was due then",
    "agent.paused (after the next|dropped|header.(agent|type)|said twice)": "it shows where something was due then",
    "agent.wanted .(isolation|mode|model|name|role|task)": "of one that cannot be anyway, or was taken back",
    "agent.wanted (after the next|dropped|header.type)": "the same",
    "agent.steered (.text|dropped|header.type|said twice)": "words to one that was stopped before it read them",
    "cancel.requested (.call|.prompt|.target)": "it may name what is stopped anyway, or has ended",
    "cancel.requested (after the next|header.type|said twice)": "what is stopped already, or has ended, stays so",
    "(cancel.requested|model.changed) (.origin.*|header.cause)": "a person's word; what an agent wants is derived",
    "files.changed header.type": "what a command changed is known from the look alone",
    "model.changed (after the next|header.agent)": "a model of the whole session; a fallback is one agent's",
    "model.failed .partial": "what had come of an answer, of one that reads nothing of it any more",
    "model.responded after the next": "which of two agents' answers came first",
    "question.answered (.question|.text|after the next|dropped|header.(agent|type))": "one that came after the first",
    "session.opened .settings.(fallbacks|limits|models)*": "it shows where it is used",
    "session.opened .roles*": "it shows where an agent is spawned by it",
    "session.opened .settings.facts*": "it shows where a request is near the window, or has a price",
    "session.opened .settings.model_attempts_max": "it shows where that limit is reached",
    "tool.finished .duration_ms": "a measured duration; a call that touches nothing but the log has none",
    "user.prompted (dropped|header.type)": "words that were taken back",
    "agent.steered after the next": "words that came in while nothing was due are as good one event later",
    "approval.decided .note": "a note of one who allows reaches nobody; of one who refuses, the model",
    "approval.decided .origin.(client|pid|terminal|user)": "a person's origin is their word; a rule has none",
    "approval.decided .remember": "a rule for the future that no later call met",
    "approval.decided .rule": "a person's answer needs no rule, and one who writes one changes nothing",
    "approval.decided header.cause": "a person's answer may name its request or nothing",
    "approval.decided said twice": "of several answers the first counts; later ones are kept",
    "cancel.requested .why": "told to the model where the whole turn is cancelled",
    "cancel.requested dropped": "a command that was ended has the result that it has, cancelled or not",
    "cancel.requested header.agent": "the same",
    "effect.reconciled after the next": "what was found of several calls is found in any order",
    "files.changed .after_crash": "a file tool's own word of its change needs no such mark",
    "files.changed .changes[] shorter": "what a command changed is known from the look alone; a file tool says it too",
    "files.changed .changes[].(path|after_mode|before_mode)": "the same",
    "files.changed dropped": "the same",
    "files.changed said twice": "that a look found it twice",
    "model.changed .(dialect|model|provider)": "it may change to what holds already, or cannot be",
    "model.changed said twice": "it may change to what holds already",
    "model.failed .failure": "cancelled by a person, or by the transport: it may have been either",
    "model.failed .message": "what the transport says has words of its own; what the provider says is in its bytes",
    "model.failed .retry_after_ms": "a header of the response; it shows where the wait that follows is derived from it",
    "model.failed .status": "without bytes there is nothing to hold it against",
    "policy.changed .(allow[]|allow[] shorter|mode)": "a rule or mode that decided nothing",
    "policy.changed (after the next|said twice)": "a rule or mode that decided nothing between the two",
    "policy.changed header.agent": "rules hold for all agents; its refusal names its lane",
    "process.started header.cause": "one may be found with its call, or by itself later",
    "session.closed (dropped|header.type)": "at the end of a log it is a tail that is missing: see --head",
    "session.opened .commands[] shorter": "it shows where such a command was given",
    "session.opened .commands[].type": "it shows where such a command was given",
    "session.opened .(date|git.branch|git.changed)": "told to the model at the first opening only",
    "session.opened .settings.agents_(depth|parallel|total)_max": "it shows where agents are spawned",
    "session.opened .settings.park_seconds_min": "it shows where a provider wants a long wait",
    "session.opened .settings.approval_timeout_seconds": "it shows where somebody was asked",
    "session.opened .settings.mode": "it shows where a call meets it",
    "session.opened .settings.model_calls_max": "it shows where the limit is reached",
    "session.opened .settings.permissions.(allow|deny)[]": "it shows where a call met the rule",
    "session.opened .settings.permissions.(allow|deny)[] shorter": "it shows where a call met the rule",
    "session.opened .settings.retry_base_ms": "it shows where something was tried again",
    "session.opened .settings.(model|output_tokens_max|provider)": "it shows where a request follows",
    "session.opened .settings.dialect": "one that this build does not know is said, and is no divergence",
    "session.opened .tools[] (longer|order)": "it shows where a request follows",
    "session.opened .tools[].(description|schema)": "it shows where a request follows",
    "session.opened .tools[].(recovery|writes)": "it shows where the tool is used",
    "timer.set after the next": "the next was due as well",
    "tool.finished .(exit_code|timed_out)": "of a command that failed anyway",
    "tool.finished .status": "how one that did not go well ended",
    "tool.finished after the next": "which of two results, or of a result and a word, came first",
    "tool.started .observed.error": "of one that was not to be done and failed",
    "tool.started .observed.(file_mode|summary)": "of a file tool that changed nothing in the end",
    "tool.started after the next": "the next was due as well, or came from outside",
    "user.prompted .delivery": "the same where no turn runs",
    "session.opened .rules": "rules that differ in nothing that is there; of those that this build lacks, that is said",
    "user.prompted .text": "words that were refused",
    "user.prompted after the next": "words that came in while nothing was due are as good one event later",
}
"""Class of mutation → where it cannot be found out; elsewhere it is."""

LEFT: dict[str, str] = {
    "* header.v": "a version that this build does not know may come from a newer one",
    "model.requested .builder": "a builder that this build does not have may come from another one",
}
"""Class of mutation → why it is said that nothing can be derived, which is no divergence."""


def matching(name: str, table: dict[str, str]) -> list[str]:
    """The entries of a table that a class stands under: `*` is anything, `(a|b)` one of these."""
    return [entry for entry in table if form_of(entry).fullmatch(name)]


@lru_cache(maxsize=1024)
def form_of(entry: str) -> re.Pattern[str]:
    form = re.escape(entry)
    for sign in "*(|)":
        form = form.replace(f"\\{sign}", ".*" if sign == "*" else sign)
    return re.compile(form)


@pytest.fixture(scope="module")
def sessions() -> list[Recorded]:
    return [Recorded(path) for path in SESSIONS]


@pytest.fixture(scope="module")
def outcomes(sessions: list[Recorded]) -> dict[str, Counter[str]]:
    """By class of mutation, what the verifier says."""
    rules, found = app.rules(), defaultdict[str, Counter[str]](Counter)
    for session, mutation in _chosen(sessions):
        report = verify_story(session.told(mutation.events), rules)
        divergence = report.divergence
        if divergence is not None:
            assert divergence.kind in DIVERGENCES
            at_end = divergence.type == "end of the log"
            assert divergence.seq >= mutation.at + (0 if at_end else 1), f"{session.name}: {mutation.name}"
            found[mutation.name]["found"] += 1
        else:
            found[mutation.name]["left" if report.left else "missed"] += 1
            found[mutation.name][f"{session.name}@{mutation.at + 1}"] += 1
    return found


def _chosen(sessions: list[Recorded]) -> Iterator[tuple[Recorded, Mutation]]:
    if FULL:
        for session in sessions:
            for mutation in session.mutations():
                yield session, mutation
        return
    chance, by_class = Random(20), defaultdict[str, list[tuple[Recorded, Mutation]]](list)
    for session in sessions:
        for mutation in session.mutations():
            by_class[mutation.name].append((session, mutation))
    for name in sorted(by_class):
        yield from chance.sample(by_class[name], min(DRAWN, len(by_class[name])))


def test_what_was_recorded_is_derived_again(sessions: list[Recorded]) -> None:
    for session in sessions:
        report = verify_story(session.told(session.events), app.rules())
        assert report.divergence is None, session.name
        assert not report.left, session.name
        assert report.closed, session.name
        types = Counter(event.type for event in session.events)
        assert report.decisions["model.requested"] == report.requests == types["model.requested"]
        assert sum(report.decisions.values()) + report.facts == len(session.events)


def test_every_type_of_event_in_practice_is_changed(sessions: list[Recorded]) -> None:
    assert covered(sessions) | NOT_RECORDED.keys() == KINDS.keys()
    assert not covered(sessions) & NOT_RECORDED.keys()


def test_what_can_be_found_out_is_found_out(outcomes: dict[str, Counter[str]]) -> None:
    wrong = []
    for name, counts in outcomes.items():
        if not any(matching(name, table) for table in (NEVER, SOMETIMES, LEFT)) and counts["missed"] + counts["left"]:
            wrong.append(f"{name}: {dict(counts)}")
    assert wrong == []


def test_what_cannot_be_found_out_is_not(outcomes: dict[str, Counter[str]]) -> None:
    """An entry that is found out after all is an entry too many."""
    wrong = [f"{name}: {dict(n)}" for name, n in outcomes.items() if matching(name, NEVER) and n["found"] + n["left"]]
    wrong += [f"{name}: {dict(n)}" for name, n in outcomes.items() if matching(name, LEFT) and n["found"] + n["missed"]]
    assert wrong == []


def test_each_entry_stands_for_something_and_no_class_under_two(outcomes: dict[str, Counter[str]]) -> None:
    names = list(outcomes)
    for table in (NEVER, SOMETIMES, LEFT):
        assert [entry for entry in table if not any(entry in matching(name, table) for name in names)] == []
    for name in names:
        entries = [entry for table in (NEVER, SOMETIMES, LEFT) for entry in matching(name, table)]
        assert len(entries) <= 1, (name, entries)


@pytest.mark.skipif(not FULL, reason="only over all mutations: make mutate")
def test_what_is_found_out_sometimes_is_so_sometimes(outcomes: dict[str, Counter[str]]) -> None:
    for entry in SOMETIMES:
        counts = sum((n for name, n in outcomes.items() if entry in matching(name, SOMETIMES)), Counter[str]())
        assert counts["found"], entry
        assert counts["missed"] + counts["left"], entry
