"""Every key of the screen, once: bindings, help, documentation and the tests that try each key come from here.

Where other programs have a convention it holds: `less` and `vim` for moving and searching, `less` for following and for
the filter, a debugger's words for the rest. This module must not know Textual.
"""

from typing import Final, Literal

import msgspec

Group = Literal["move", "search and filter", "look", "time", "screen"]
GROUPS: Final[tuple[Group, ...]] = ("move", "search and filter", "look", "time", "screen")


class Key(msgspec.Struct, frozen=True):
    """Keys that do one thing. `keys` in Textual's names, `shown` as people read them, `action` the screen's method."""

    keys: str
    shown: str
    action: str
    words: str
    group: str


KEYS: Final[tuple[Key, ...]] = (
    Key("j,down,enter", "j ↓ Enter", "next", "the next event", "move"),
    Key("k,up", "k ↑", "previous", "the previous event", "move"),
    Key("space,pagedown,ctrl+f", "Space PgDn", "page(1)", "a page on", "move"),
    Key("b,pageup,ctrl+b", "b PgUp", "page(-1)", "a page back", "move"),
    Key("ctrl+d", "Ctrl-D", "half_page(1)", "half a page on", "move"),
    Key("ctrl+u", "Ctrl-U", "half_page(-1)", "half a page back", "move"),
    Key("g,home", "g Home", "first", "the first event", "move"),
    Key("G,end", "G End", "last", "the last event", "move"),
    Key("colon", ":", "ask_seq", "to an event by its number (typing digits does it too)", "move"),
    Key("]", "]", "next_like('type', 1)", "the next event of the same type", "move"),
    Key("[", "[", "next_like('type', -1)", "the previous event of the same type", "move"),
    Key("J", "J", "next_like('agent', 1)", "the next event of the same agent", "move"),
    Key("K", "K", "next_like('agent', -1)", "the previous event of the same agent", "move"),
    Key("}", "}", "next_like('turn', 1)", "the next turn", "move"),
    Key("{", "{", "next_like('turn', -1)", "the previous turn", "move"),
    Key("e", "e", "next_like('error', 1)", "the next error", "move"),
    Key("E", "E", "next_like('error', -1)", "the previous error", "move"),
    Key("a", "a", "next_like('approval', 1)", "the next approval", "move"),
    Key("A", "A", "next_like('approval', -1)", "the previous approval", "move"),
    Key("x", "x", "next_like('edit', 1)", "the next change of files", "move"),
    Key("X", "X", "next_like('edit', -1)", "the previous change of files", "move"),
    Key("c", "c", "cause", "the event that caused this one", "move"),
    Key("backspace", "Backspace", "back", "back to where the last jump began", "move"),
    Key("/", "/", "ask_text", "search all text (Ctrl-R there: as a regular expression)", "search and filter"),
    Key("n", "n", "search_again(1)", "the next place where it stands", "search and filter"),
    Key("N", "N", "search_again(-1)", "the previous place", "search and filter"),
    Key("f,&", "f &", "ask_filter", "show only what is meant: type:tool.* agent:main.1 failed", "search and filter"),
    Key("o", "o", "only_agent", "only this agent; again: all", "search and filter"),
    Key("O", "O", "only_type", "only this type; again: all", "search and filter"),
    Key("escape", "Esc", "leave", "close what is open; then take the filter away", "search and filter"),
    Key("m", "m", "whole", "the detail whole, with all output; again: in short", "look"),
    Key("r", "r", "show('request')", "the request as it was sent, at this step or before", "look"),
    Key("d", "d", "show('difference')", "what that request holds that the one before it did not", "look"),
    Key("w", "w", "show('why')", "why: the causes, back to a person's words", "look"),
    Key("s", "s", "state", "the state after this step", "look"),
    Key("y", "y", "copy", "copy the address of this event", "look"),
    Key("p", "p", "play", "play as it happened, long waits made short; again: stop", "time"),
    Key("+,=", "+", "faster(1)", "play twice as fast", "time"),
    Key("-", "-", "faster(-1)", "play half as fast", "time"),
    Key("F", "F", "follow", "go with a session that is running; again: stay here", "time"),
    Key("t", "t", "times", "times from the beginning, or as UTC", "time"),
    Key("tab", "Tab", "focus_pane(1)", "to the next pane: moving keys scroll it", "screen"),
    Key("shift+tab", "Shift-Tab", "focus_pane(-1)", "to the previous pane", "screen"),
    Key("z", "z", "zoom", "this pane alone; again: all", "screen"),
    Key("ctrl+n", "Ctrl-N", "step(1)", "the next event, whatever pane has the keys", "screen"),
    Key("ctrl+p", "Ctrl-P", "step(-1)", "the previous event, likewise", "screen"),
    Key("ctrl+l", "Ctrl-L", "redraw", "draw the screen anew", "screen"),
    Key("ctrl+z", "Ctrl-Z", "suspend", "to the shell; fg comes back", "screen"),
    Key("question_mark,h", "? h", "show('help')", "this help", "screen"),
    Key("q", "q", "quit", "quit; from this help: back", "screen"),
)  # fmt: skip
"""In the order of the help."""

LIST_HINTS: Final = (
    "j k move · / search · f filter · r request · w why · s state · ? help · q quit",
    "/ search · f filter · r request · ? help · q quit", "? help · q quit", "? help",
)  # fmt: skip
PANE_HINTS: Final = ("j k scroll · Tab next pane · Esc back · ? help", "j k scroll · Esc back", "Esc back")
"""On the last line, as long as there is room."""


def table(keys: tuple[Key, ...] = KEYS, groups: tuple[str, ...] = GROUPS) -> str:
    """The keys of a screen as Markdown, for the documentation."""
    lines = []
    for group in groups:
        lines += [f"| {group} | |", "|---|---|"]
        for key in keys:
            if key.group == group:
                shown = " ".join(f"`{one}`" for one in key.shown.split(" "))
                lines.append(f"| {shown.replace('|', chr(92) + '|')} | {key.words} |")
        lines.append("")
    return "\n".join(lines)
