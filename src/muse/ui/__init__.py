"""FRONT DOORS: submit commands and show views; they hold no rule."""
