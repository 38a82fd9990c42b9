"""WHAT IS TRUE NOW: state computed from events, and only from them."""
