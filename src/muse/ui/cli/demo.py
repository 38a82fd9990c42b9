"""`muse demo`: kill -9 in mid-work, told in thirty seconds. No key, no network."""

import click


@click.command("demo")
@click.option("--fast", is_flag=True, help="The same story without pauses for the eye.")
@click.option("--you-kill-it", is_flag=True, help="Wait for you to kill the host, and say how.")
@click.option("--dir", "folder", default="", metavar="DIR", help="Do it all in this folder (default: a new one).")
@click.option("--plain", is_flag=True, help="Never colour.")
@click.option("--json", "as_json", is_flag=True, help="The story on standard error, its facts as JSON at the end.")
def command(fast: bool, you_kill_it: bool, folder: str, plain: bool, as_json: bool) -> int:
    """An agent works, its host is killed in the middle of a command, another host goes on: nothing runs twice.

    The model is scripted, all else is real. Everything happens in one folder, which is named and left behind. Exit
    code: 0 when every claim held, 1 when one did not.

    \b
      muse demo --fast
    """
    from muse.ui.demo.story import tell

    return tell(folder, fast=fast, you_kill_it=you_kill_it, colour=not plain, as_json=as_json)
