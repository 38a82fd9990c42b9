"""Other agents' session files, read as events of ours: one module for each foreign format."""
