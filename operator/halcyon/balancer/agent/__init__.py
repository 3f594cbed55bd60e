"""The agent as a process: its loops, probes and settings."""
