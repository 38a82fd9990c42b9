"""Sessions as tables for SQL: what the columns are, rows from events, and a database that can do nothing but answer.

A table holds only the columns that a query reads, for as long as the query runs (docs/sql.md).
"""
