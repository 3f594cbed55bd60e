"""Scaling benchmark that runs every policy on every scenario: scenarios, statistics, stored results, page and plots."""
