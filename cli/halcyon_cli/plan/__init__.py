"""Preview of the objects that a spec leads to, and replay of recorded observations through the planner."""
