"""Lists of all metrics of Halcyon.

The `/metrics` pages, docs/reference/metrics.md, and the alerts and Grafana dashboards of the chart are based on these lists. To add a
metric, add a constant to `operator_metrics`, `per_model_metrics` or `agent_metrics`. Pure. Only `instruments` imports prometheus_client,
which the agent must not load.
"""
