"""Data for users and Prometheus: dashboard data, per-model metrics, GPU costs, recent events, start times."""
