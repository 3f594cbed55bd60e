"""Data for users and Prometheus: dashboard data, model metrics, GPU costs, advice, recent events and start times."""
