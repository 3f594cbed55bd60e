"""Progress of a model's rollout, and the revisions that it can be rolled back to. Pure."""
