"""A measurement in the cluster: a copy of a served model, the Job of its client, and what is left of them, a history."""
