"""For all tests: in CI, hypothesis draws the same examples each time, so that a run says something about the change and
not about chance. On a developer's machine it goes on looking for new ones."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
