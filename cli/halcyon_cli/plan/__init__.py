"""Preview of the objects for a spec, and replay of recorded observations through the planner."""
