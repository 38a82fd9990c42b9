"""OTHER AGENTS' LOGS IN: their session files, read as events of ours. One reader for each foreign format.

What comes in is hostile or broken now and then, so no input raises: a line that cannot be read, or says nothing that an
event of ours could say, is kept as it was. What a source did not record is said, and never made up. These modules know
bytes and events; they must not know files, stores or screens.
"""
