"""Batch inference: a controller that creates a Job with a runner for each BatchInference, and publishes its progress.

Out of scope: the runner's program (`halcyon_batch`), the priority of its requests in balancers, and the replicas that
are added for it (`scaling.policy.batch_demand`).
"""
