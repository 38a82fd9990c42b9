"""Decides whether a tool call may run: allowed, asked of a person, or denied, and by which rule or mode.

`judge` is pure and total: the same request and policy give the same verdict, and no argument a model can write makes it
raise. When in doubt it asks. What a command line means is known by `shellwords`, what is harmless by `harmless`, what a
rule's pattern fits by `patterns`; how a person is asked is not known here.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from muse.decide.harmless import HARMLESS_FILES, harmless_assignment, is_harmless, is_secret
from muse.decide.patterns import Rule, fits_path, fits_tool, fits_words, is_exact, names_segment, parse_rule
from muse.decide.permission import MODES, Decision, Mode, Policy, Request, Verdict, parse_mode
from muse.decide.remember import remember_pattern
from muse.decide.shellwords import Stage, Word
from muse.decide.striking import Fit, Seen, look, relative_path, strikes

__all__ = [
    "MODES",
    "Decision",
    "Fit",
    "Mode",
    "Policy",
    "Request",
    "Rule",
    "Verdict",
    "forbids",
    "hidden",
    "judge",
    "matches",
    "parse_mode",
    "parse_rule",
    "remember_pattern",
]

FILE_TOOLS: Final = frozenset({"edit", "write"})
_PROTECTED: Final = frozenset({".git", ".muse"})
PLAN_TEXT: Final = (
    "plan mode: nothing is changed or run while planning, and {what}. "
    "Read what you need, then present a plan and wait for it to be accepted."
)


def judge(request: Request, policy: Policy) -> Verdict:
    """What may happen with `request`: deny rules, then what plan mode denies, ask rules, allow rules, the mode."""
    seen = look(request)
    verdict = _decide(seen, policy)
    if verdict.decision != "ask":
        return verdict
    pattern = remember_pattern(request)
    if not pattern:
        return verdict
    widened = msgspec.structs.replace(policy, remembered=(*policy.remembered, parse_rule(pattern)))
    helps = _decide(seen, widened).decision == "allow"
    return Verdict(verdict.decision, verdict.rule, pattern if helps else "")


def matches(rule: Rule, request: Request) -> bool:
    """Whether `rule`, as an allow rule and alone, covers `request`: of a command line, all that is not free anyway."""
    seen = look(request)
    if seen.kind != "shell":
        return _covers_tool(rule, seen)
    covered = any(_covering(stage, (rule,), guarded=False) for stage in seen.stages or ()) and rule.tool == "shell"
    return covered and _shell(seen, Policy("default", allow=(rule,))).decision == "allow"


def forbids(rule: Rule, request: Request) -> Fit:
    """Whether `rule`, as a deny or ask rule, strikes `request`; "maybe" when only running it could tell."""
    return strikes(rule, look(request))


def hidden(path: str, policy: Policy) -> Rule | None:
    """The deny rule under which a search tool must not show this workspace-relative path, or None."""
    for rule in policy.deny:
        if rule.tool == "read" and rule.pattern and fits_path(rule, path, strict=True):
            return rule
    return None


# -- the decision ------------------------------------------------------------------------------------------------------


def _decide(seen: Seen, policy: Policy) -> Verdict:
    denied = _struck(seen, policy.deny)
    if denied is not None and denied[1] == "yes":
        return Verdict("deny", f"denied by the rule {denied[0].text}")
    planned = _in_plan(seen) if policy.mode == "plan" else None
    if planned is not None:
        return planned
    if denied is not None:
        return Verdict("ask", f"the rule {denied[0].text} may forbid it, which only running it could tell")
    if policy.mode == "yolo":
        return Verdict("allow", "mode yolo")
    asked = _struck(seen, policy.ask)
    if asked is not None:
        return Verdict("ask", f"asked by the rule {asked[0].text}" + (" (it may apply)" if asked[1] == "maybe" else ""))
    if seen.kind == "shell":
        return _shell(seen, policy)
    return _tool(seen, policy)


def _struck(seen: Seen, rules: Sequence[Rule]) -> tuple[Rule, Fit] | None:
    """The first rule that strikes for certain, else the first that may."""
    doubt: tuple[Rule, Fit] | None = None
    for rule in rules:
        fit = strikes(rule, seen)
        if fit == "yes":
            return rule, fit
        if fit == "maybe" and doubt is None:
            doubt = (rule, fit)
    return doubt


def _in_plan(seen: Seen) -> Verdict | None:
    """The denials of plan mode."""
    if seen.kind == "shell":
        reason = _unharmless(seen)
        if reason:
            return Verdict("deny", PLAN_TEXT.format(what=f"this command is not plainly harmless ({reason})"))
    elif seen.kind == "edit":
        return Verdict("deny", PLAN_TEXT.format(what="this would change files"))
    elif seen.kind == "own":
        return Verdict("deny", PLAN_TEXT.format(what="this would end what runs"))
    elif seen.kind == "other":
        return Verdict("deny", PLAN_TEXT.format(what=f"{_shown(seen.request.tool)} may change something"))
    return None


def _tool(seen: Seen, policy: Policy) -> Verdict:
    request = seen.request
    for rule in (*policy.allow, *policy.remembered):
        if _covers_tool(rule, seen):
            return Verdict("allow", _by(rule, policy))
    mode = f"mode {policy.mode}"
    if seen.kind == "agent":
        return Verdict("allow", f"{mode}: what an agent does is judged by itself")
    if seen.kind == "own":
        return Verdict("allow", f"{mode}: it ends only what the agent itself has started")
    if seen.kind == "other":
        return Verdict("ask", f"{mode}: {_shown(request.tool)} may change something")
    return _read(request, mode) if seen.kind == "read" else _edit(request, policy.mode)


def _read(request: Request, mode: str) -> Verdict:
    if request.outside or "" in request.paths:
        return Verdict("ask", f"{mode}: it reads outside the workspace")
    secret = next((path for path in request.paths if is_secret(path)), "")
    if secret:
        return Verdict("ask", f"{mode}: {_shown(secret)} looks like a file of secrets")
    return Verdict("allow", f"{mode}: reading is free")


def _edit(request: Request, chosen: Mode) -> Verdict:
    mode = f"mode {chosen}"
    if request.outside or "" in request.paths or not request.paths:
        return Verdict("ask", f"{mode}: it writes outside the workspace")
    protected = next((path for path in request.paths if _protected(path)), "")
    if protected:
        return Verdict("ask", f"{mode}: {_shown(protected)} is never free to write")
    if chosen == "accept-edits":
        return Verdict("allow", f"{mode}: edits in the workspace are free")
    return Verdict("ask", f"{mode}: edits ask")


def _by(rule: Rule, policy: Policy) -> str:
    return f"allowed by {'the rule' if rule in policy.allow else 'your earlier always:'} {rule.text}"


def _shown(text: str) -> str:
    short = text if len(text) <= 120 else text[:117] + "..."
    return "".join(char if char.isprintable() else "\ufffd" for char in short)


def _protected(path: str) -> bool:
    """Below .git or .muse, or a file named HEAD, which makes any folder a git repository with settings of its own."""
    parts = [part.casefold().rstrip(". ") for part in path.split("/")]
    return parts[-1] == "head" or not _PROTECTED.isdisjoint(parts)


def _covers_tool(rule: Rule, seen: Seen) -> bool:
    """Whether an allow rule covers a call that is no command line."""
    request = seen.request
    if seen.kind == "read":
        if rule.tool == "read" or (rule.tool == request.tool and not rule.pattern):
            return not request.outside and bool(request.paths) and all(_reads(rule, path) for path in request.paths)
        return not rule.pattern and "*" in rule.tool and not request.outside and fits_tool(rule, request.tool)
    if seen.kind == "edit" and (request.tool in FILE_TOOLS or (request.tool == "apply" and rule.tool in FILE_TOOLS)):
        if rule.tool not in {"edit", request.tool} or request.outside or not request.paths:
            return False
        return all(_frees_write(rule, path) for path in request.paths)
    return not rule.pattern and not request.outside and fits_tool(rule, request.tool)


def _reads(rule: Rule, path: str) -> bool:
    """An allow rule must fit the path; a bare one does not free secrets."""
    return bool(path) and fits_path(rule, path) and (bool(rule.pattern) or not is_secret(path))


def _frees_write(rule: Rule, path: str) -> bool:
    if not path or not fits_path(rule, path):
        return False
    if not _protected(path):
        return True
    parts = path.split("/")
    return any(names_segment(rule, part) for part in parts if part is parts[-1] or part.casefold() in _PROTECTED)


# -- command lines: allowing -------------------------------------------------------------------------------------------


def _shell(seen: Seen, policy: Policy) -> Verdict:
    mode = f"mode {policy.mode}"
    found = seen.stages
    if found is None:
        return Verdict("ask", f"{mode}: the command line cannot be split with certainty")
    if not found:
        return Verdict("ask", f"{mode}: there is no command")
    rules = tuple(rule for rule in (*policy.allow, *policy.remembered) if rule.tool == "shell" or "*" in rule.tool)
    rules = tuple(rule for rule in rules if rule.tool == "shell" or fits_tool(rule, seen.request.tool))
    writers = tuple(rule for rule in (*policy.allow, *policy.remembered) if rule.tool in {"edit", "write"})
    guarded = any(rule.tool == "shell" for rule in (*policy.deny, *policy.ask))
    used: list[str] = []
    exact: set[int] = set()
    for index, stage in enumerate(found):
        free = _free(stage, seen)
        trusted = stage.parent in exact
        rule = None if free or trusted else _covering(stage, rules, guarded=guarded)
        if not free and not trusted and rule is None:
            return Verdict("ask", f"{mode}: {_stage_text(stage)} is not plainly harmless")
        if trusted or (rule is not None and is_exact(rule)):
            exact.add(index)
        bare = any(not known.pattern for known in rules)
        for target in () if trusted else stage.writes:
            if not _may_write(target, seen, writers, bare=bare):
                return Verdict("ask", f"{mode}: it writes to the file {_shown(target.text)}")
        if rule is not None:
            used.append(rule.text)
    if used:
        return Verdict("allow", "allowed by " + ", ".join(dict.fromkeys(used)))
    return Verdict("allow", f"{mode}: plainly harmless")


def _free(stage: Stage, seen: Seen) -> bool:
    """Plainly harmless; git in another folder is not: that folder may be a repository whose settings run commands."""
    return is_harmless(stage, seen.request.workspace) and not (seen.moved and stage.name == "git")


def _covering(stage: Stage, rules: Sequence[Rule], *, guarded: bool) -> Rule | None:
    """The allow rule that covers a stage."""
    uncertain = stage.opaque or stage.odd or any(word.dynamic for word in (*stage.words, *stage.assignments))
    uncertain = uncertain or bool(stage.words and stage.words[0].glob)
    network = any(word.text.startswith(("/dev/tcp", "/dev/udp")) for word in stage.reads)
    if guarded and uncertain:
        return None
    for rule in rules:
        if not rule.pattern:
            return rule
        if stage.odd or network or not stage.words or stage.words[0].dynamic or stage.words[0].glob:
            continue
        if _fits_exactly(rule, stage):
            return rule
    return None


def _fits_exactly(rule: Rule, stage: Stage) -> bool:
    # where more arguments come at run time, only a `*` at the end can take them
    words = (*stage.words, Word("\0", dynamic=True)) if stage.open else stage.words
    if all(harmless_assignment(word) for word in stage.assignments) and fits_words(rule, words):
        return True
    return bool(stage.assignments) and fits_words(rule, (*stage.assignments, *words))


def _may_write(target: Word, seen: Seen, writers: Sequence[Rule], *, bare: bool) -> bool:
    """Whether a redirection may write to a file: an edit rule fits it, or every command is allowed anyway."""
    if target.text in HARMLESS_FILES and not target.dynamic:
        return True
    if bare and not _protected(target.text):
        return True
    path = relative_path(target.text, seen.request.workspace)
    if path is None or seen.moved or target.dynamic or target.glob:
        return False
    return any(_frees_write(rule, path) for rule in writers)


def _unharmless(seen: Seen) -> str:
    """Why a command line is not plainly harmless, "" when it is."""
    if not seen.stages:
        return "it cannot be split with certainty"
    for stage in seen.stages:
        if not _free(stage, seen):
            return _stage_text(stage)
        for target in stage.writes:
            if target.text not in HARMLESS_FILES:
                return f"it writes to the file {_shown(target.text)}"
    return ""


def _stage_text(stage: Stage) -> str:
    return _shown(" ".join(word.text for word in (*stage.assignments, *stage.words)) or "a redirection")
