"""Two executions compared: rungs with the cpu rung, a backend with another."""
