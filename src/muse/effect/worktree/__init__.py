"""Working trees for agents: a git worktree with the parent's uncommitted files laid over it, or a copy of a folder."""

from muse.effect.worktree.copying import WorktreeError as WorktreeError
from muse.effect.worktree.copying import put as put
from muse.effect.worktree.linked import Linked as Linked
from muse.effect.worktree.linked import linked as linked
from muse.effect.worktree.making import Made as Made
from muse.effect.worktree.making import discard as discard
from muse.effect.worktree.making import make as make
from muse.effect.worktree.making import moved_on as moved_on
from muse.effect.worktree.making import own_commits as own_commits
