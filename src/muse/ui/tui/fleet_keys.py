"""Every key of the screen of `muse agents`, once: bindings, help, documentation and tests come from here.

Moving is as in `muse replay`; what says something to an agent is its word's first letter. This module must not know
Textual.
"""

from typing import Final

from muse.ui.tui.keys import Key

GROUPS: Final = ("move", "say", "look", "screen")
KEYS: Final[tuple[Key, ...]] = (
    Key("j,down", "j ↓", "move(1)", "the next agent", "move"),
    Key("k,up", "k ↑", "move(-1)", "the previous agent", "move"),
    Key("space,pagedown,ctrl+f", "Space PgDn", "page(1)", "a page on", "move"),
    Key("b,pageup,ctrl+b", "b PgUp", "page(-1)", "a page back", "move"),
    Key("g,home", "g Home", "first", "the first agent", "move"),
    Key("G,end", "G End", "last", "the last agent", "move"),
    Key("h,left", "h ←", "fold", "hide what is below it; then: to its parent", "move"),
    Key("l,right", "l →", "unfold", "show what is below it; then: to its first child", "move"),
    Key("w", "w", "next_waiting(1)", "the next agent that waits for you", "move"),
    Key("s", "s", "steer", "say something to it: joins its turn at its next model request", "say"),
    Key("a", "a", "asked", "what it asks, or one below it: an approval, a question", "say"),
    Key("y", "y", "answer('yes')", "yes: allow the call that is shown, do what was asked for", "say"),
    Key("A", "A", "answer('always')", "yes, and from now on by the rule that is offered", "say"),
    Key("n", "n", "answer('no')", "no: refuse the call, do nothing", "say"),
    Key("p", "p", "pause('agent')", "pause it, or let it go on", "say"),
    Key("P", "P", "pause('tree')", "the same with all agents below it", "say"),
    Key("c", "c", "cancel('agent')", "cancel it (of main: its turn); asks first", "say"),
    Key("C", "C", "cancel('tree')", "cancel it and all below it; asks first", "say"),
    Key("enter", "Enter", "replay", "step through what it did: q there comes back", "look"),
    Key("/", "/", "ask_only", "show only lines with these words", "look"),
    Key("f", "f", "follow", "stand where something happens; again: stay", "look"),
    Key("escape", "Esc", "leave", "close what is open; then show all agents", "look"),
    Key("tab", "Tab", "other_pane", "to the other pane: moving keys scroll it", "screen"),
    Key("z", "z", "zoom", "this pane alone; again: both", "screen"),
    Key("ctrl+l", "Ctrl-L", "redraw", "draw the screen anew", "screen"),
    Key("ctrl+z", "Ctrl-Z", "suspend", "to the shell; fg comes back", "screen"),
    Key("question_mark", "?", "help", "this help; again: back", "screen"),
    Key("q", "q", "quit", "quit; from this help: back", "screen"),
)  # fmt: skip
"""In the order of the help."""
HINTS: Final = (
    "s say · a asked · p pause · c cancel · Enter replay · ? help · q quit", "s say · a asked · c cancel · ? help",
    "? help · q quit", "? help",
)  # fmt: skip
PANE_HINTS: Final = ("j k scroll · Tab back · ? help", "Tab back")
ASKED_HINTS: Final = ("y yes · n no · Esc later", "y n Esc")
ALWAYS_HINTS: Final = ("y yes, once · A always · n no · Esc later", "y A n Esc")
