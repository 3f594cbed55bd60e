"""Data for users and Prometheus: dashboard data, per-model metrics, GPU costs, samples for advice, recent events, start times."""
