"""WHAT MAY HAPPEN NEXT: pure rules from state to decisions."""
