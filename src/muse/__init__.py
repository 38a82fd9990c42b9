"""muse: a coding-agent runtime built around one append-only event log."""

__version__ = "0.1.0"
