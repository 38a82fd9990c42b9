"""What a policy is asked about: a command line as a request, and policies from the texts of their rules."""

from muse.decide.policy import Mode, Policy, Request, parse_rule


def request(command: str, workspace: str = "") -> Request:
    return Request("shell", "attachable", {"command": command}, writes=True, workspace=workspace)


def policy(mode: Mode = "default", allow: object = (), ask: object = (), deny: object = (), old: object = ()) -> Policy:
    def rules(texts: object) -> tuple[object, ...]:
        assert isinstance(texts, list | tuple)
        return tuple(parse_rule(text) for text in texts)

    return Policy(mode, rules(allow), rules(ask), rules(deny), rules(old))  # type: ignore[arg-type]
