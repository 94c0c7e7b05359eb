"""One module per rung, with its `RUNG`, an interface.Implementation: patterns and, for a GPU,
launches.
"""
