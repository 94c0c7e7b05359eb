"""The frame of a job's process: what a stage's script and a tool have around their work."""
