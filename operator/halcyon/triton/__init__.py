"""Access to the Triton servers in pods: their metrics and statistics, samples of all pods of a model, and proof that a backend is dead.

Balancers' agents use it, and the operator for models without a balancer. Imports are as few as in `halcyon.balancer`. Out of scope:
what follows from the samples (`scaling`, `signals`).
"""
