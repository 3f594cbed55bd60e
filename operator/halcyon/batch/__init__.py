"""Batch inference: a controller that creates the Job of a runner for each BatchInference, and publishes its progress.

Out of scope: the runner's program (`halcyon_batch`), how balancers treat its requests, and the replicas that are added
for it (`scaling.policy.batch_demand`).
"""
