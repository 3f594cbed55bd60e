"""Batch inference: a controller that creates a runner's Job for each BatchInference, and publishes the progress.

Out of scope: the runner's program (`halcyon_batch`), how balancers treat its requests, and the replicas that are added
for it (`scaling.policy.batch_demand`).
"""
