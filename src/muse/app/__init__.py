"""The only place that picks concrete classes: which store, which model, which tools.

Front doors ask it for logs, for views' data and for a session to run; they never see what it is made of.
"""

from muse.app.commands import command_with as command_with
from muse.app.commands import holds_secret as holds_secret
from muse.app.commands import known_secrets as known_secrets
from muse.app.commands import origin as origin
from muse.app.commands import owner_pid as owner_pid
from muse.app.commands import refuse_agents as refuse_agents
from muse.app.commands import refuse_agents_at as refuse_agents_at
from muse.app.commands import submit as submit
from muse.app.keeping import Holding as Holding
from muse.app.keeping import children as children
from muse.app.keeping import holding as holding
from muse.app.keeping import remove as remove
from muse.app.keeping import removed_sessions as removed_sessions
from muse.app.keeping import require_removable as require_removable
from muse.app.models import model_of as model_of
from muse.app.models import rules as rules
from muse.app.owned import Owned as Owned
from muse.app.places import SUFFIX as SUFFIX
from muse.app.places import catalog as catalog
from muse.app.places import create_log as create_log
from muse.app.places import discard_empty as discard_empty
from muse.app.places import event_at as event_at
from muse.app.places import events as events
from muse.app.places import file_system as file_system
from muse.app.places import new_session_id as new_session_id
from muse.app.places import open_log as open_log
from muse.app.places import path_of as path_of
from muse.app.places import preview as preview
from muse.app.places import read_session as read_session
from muse.app.places import run_folder as run_folder
from muse.app.places import session_files as session_files
from muse.app.places import session_path as session_path
from muse.app.places import sqlite_version as sqlite_version
from muse.app.places import state_of as state_of
from muse.app.places import verify_file as verify_file
from muse.app.recovering import is_whole as is_whole
from muse.app.recovering import recover_session as recover_session
from muse.app.sandbox import default_sandbox as default_sandbox
from muse.app.sandbox import machine as machine
from muse.app.settings import APPROVAL_TIMEOUT as APPROVAL_TIMEOUT
from muse.app.settings import SCRIPTED as SCRIPTED
from muse.app.settings import require_continuable as require_continuable
from muse.app.settings import settings_again as settings_again
from muse.app.settings import settings_of as settings_of
from muse.app.settings import with_rules as with_rules
from muse.log.catalog import Entry as Entry
from muse.log.protocol import Log as Log
from muse.runtime.reading import Position as Position
from muse.runtime.reading import Reading as Reading
from muse.runtime.session import Session as Session
