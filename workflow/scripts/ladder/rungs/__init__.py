"""One module per rung: PATTERNS, longest first, and on a GPU LAUNCHES, operation -> function(step, buffers) -> Launch."""
