"""Where events are kept: the store protocol, SQLite and memory stores, and the verifier."""
