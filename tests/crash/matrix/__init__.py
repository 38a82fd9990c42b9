"""The crash matrix: what is at work when the kill comes × who is killed, with everything counted from outside.

`python -m tests.crash.matrix` plays it and prints a table of the required zeros; `cells.py` says what is at work,
`plan.py` when and whom, `life.py` runs one process of `muse` until it is killed, `case.py` plays one session to its
end, `checks.py` counts what may not be, `table.py` adds up.
"""
