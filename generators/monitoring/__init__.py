"""Generators of alerts, dashboards and the metrics page from the lists of metrics in halcyon.monitoring."""
