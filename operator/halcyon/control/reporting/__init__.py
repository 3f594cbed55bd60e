"""Output for users and Prometheus: the dashboard's source, per-model metrics, GPU costs, recent events, start times."""
