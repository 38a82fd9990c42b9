"""The screen of `muse replay`: front door only, it holds no rule. Textual is imported by whoever opens it."""
