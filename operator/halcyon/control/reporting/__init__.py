"""Data for users and Prometheus: dashboard data, metrics of models, GPU costs, advice, recent events, start times."""
