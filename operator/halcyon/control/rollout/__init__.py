"""Rollouts of new revisions: rolling updates, canaries and rollout records.

Pure, except for the canaries' analysis and queries.
"""
