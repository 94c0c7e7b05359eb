"""Two executions compared: rungs with the cpu rung, gradients with differences, backends with each
other.
"""
