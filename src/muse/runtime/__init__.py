"""WHO MAKES IT HAPPEN: joins log, fold, rules and effects."""
