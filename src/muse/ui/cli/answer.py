"""`muse answer`: words for an agent that asked."""

import click

from muse.ui.cli import completing
from muse.ui.cli.answering import reply
from muse.ui.cli.speaking import apart, told


@click.command("answer")
@click.argument(
    "address_and_text", nargs=-1, required=True, metavar="[ADDRESS] TEXT", shell_complete=completing.questions
)
@told
def command(address_and_text: tuple[str, ...], client_id: str, as_json: bool) -> int:
    """Answer the question at ADDRESS (SESSION@SEQ; without one: the only question that waits) with TEXT, or with the
    number of one of its options.

    \b
      muse answer 4f2k@41 "the second one, and keep the old name"
      muse answer 2
    """
    address, text = apart(address_and_text, "answer")
    return reply(address, text, client_id=client_id, as_json=as_json)
