"""Model providers: one file a wire dialect."""
