"""What people and Prometheus read: the dashboard's source, per-model metrics, GPU costs, recent events, start times."""
