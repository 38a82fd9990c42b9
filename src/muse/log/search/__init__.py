"""Searching what sessions say: which texts events hold, how a query meets them, and an index that may go at any time.

The index names the events that may hold a query; whether they do is always read from the log again (docs/search.md).
"""
