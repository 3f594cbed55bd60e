"""Preview of a model's objects for a spec, and replay of recorded observations through the planner."""
