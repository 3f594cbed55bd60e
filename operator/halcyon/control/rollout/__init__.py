"""Rollout of a new revision: rolling updates, canary steps and analysis, rollout records. Pure, except for the samples of the analysis."""
