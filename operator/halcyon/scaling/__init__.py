"""Pure decisions: how many replicas a model needs, and why.

Here: what is known about a model at a time (`observations`), what it means for the policy Rules (`rules`), the HPA's
algorithm for clusters where no HPA can be used (`direct`), and the decision as data (`decision`). Not here: where the
observations come from (`halcyon.signals`), who writes the count (`halcyon.control`), any clock, any I/O.
"""
