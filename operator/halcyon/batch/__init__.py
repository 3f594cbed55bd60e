"""Batch inference: a controller that makes a runner for each BatchInference, and publishes its progress.

Out of scope: the runner (`halcyon_batch`), and what its requests are to balancers and to the planner (`scaling.policy`).
"""
