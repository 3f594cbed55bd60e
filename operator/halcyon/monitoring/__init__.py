"""What can be measured of Halcyon: the one list of metrics, and what is made from it.

The pages of `/metrics`, docs/reference/metrics.md, the alerts and the dashboards of the chart all come from these lists. A new
metric is a constant in `operator`, `models` or `agent`. Pure; `instruments` alone knows prometheus_client, which the agent must
not load.
"""
