"""Programs that people run, and rules that make no artifact; the stages are beside this folder."""
