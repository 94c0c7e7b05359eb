"""One module per rung: PATTERNS, longest first, and for a GPU LAUNCHES: operation -> function(step,
build) -> launches.

A launch function may ask the plan under construction (planning.builder.Builder) for shapes and for
workspace.
"""
