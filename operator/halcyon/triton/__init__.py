"""Access to the Triton servers in pods: metrics, statistics, samples of a model's pods, and detection of dead backends.

The balancers' agents use this package, and so does the operator for models without a balancer. Imports are kept to a
minimum, as in `halcyon.balancer`. Out of scope: decisions based on the samples (`scaling`, `signals`).
"""
