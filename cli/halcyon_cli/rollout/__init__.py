"""Progress of a model's rollout, and the revisions to which the model can be rolled back. Pure."""
