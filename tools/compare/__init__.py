"""The same task, killed in the same ways, under muse and under released agent frameworks: `make compare`."""
