"""`muse approvals`: what waits for a person's word."""

import click
import msgspec

from muse.ui.cli.finding import short_id
from muse.ui.cli.output import answers, note
from muse.ui.cli.speaking import describe, left_waiting, waiting


@click.command("approvals")
@click.option("--json", "as_json", is_flag=True, help="One request a line, as JSON.")
def command(as_json: bool) -> int:
    """List what waits in all sessions, also in those that stopped while they waited. Answer with muse approve ADDRESS
    or muse deny ADDRESS."""
    running, left = waiting(), left_waiting()
    found = running + left
    with answers() as out:
        for one in found:
            if as_json:
                body = one.request
                fields = {
                    "address": one.address, "session": one.session, "seq": one.event.seq, "agent": one.event.agent,
                    "time": one.event.time, "tool": body.tool, "shown": body.shown, "rule": body.rule,
                    "remember": body.remember, "running": one in running,
                }  # fmt: skip
                out.line(msgspec.json.encode(fields).decode())
            else:
                for line in describe(one):
                    out.paragraph(line, 4)
                if one in left:
                    name = short_id(one.session)
                    out.paragraph(f"  nobody runs this session: an answer holds from muse resume {name} on", 4)
    if not found and not as_json:
        note("nothing waits")
    return 0
