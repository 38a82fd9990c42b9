"""What the files of a workspace are, at one moment and at another, through git on a folder of muse's own."""

from muse.effect.snapshot.compare import GONE as GONE
from muse.effect.snapshot.compare import TOO_MUCH as TOO_MUCH
from muse.effect.snapshot.compare import Contents as Contents
from muse.effect.snapshot.compare import Difference as Difference
from muse.effect.snapshot.git import SnapshotError as SnapshotError
from muse.effect.snapshot.place import TREE as TREE
from muse.effect.snapshot.snapshots import Snapshots as Snapshots
from muse.effect.snapshot.snapshots import Taken as Taken
