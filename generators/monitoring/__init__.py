"""Alerts, dashboards and the page of metrics, made from the lists in halcyon.monitoring."""
