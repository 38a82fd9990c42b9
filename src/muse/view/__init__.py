"""HOW IT IS SHOWN: pure functions from events to rows and text."""
