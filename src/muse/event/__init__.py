"""What happened: events, their bytes, and what binds them."""
