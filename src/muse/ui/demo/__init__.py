"""The story that `muse demo` tells: its project and script, its processes, its counts, and how it is shown."""
