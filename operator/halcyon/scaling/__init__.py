"""Scaling decisions as pure functions: how many replicas a model needs, and why.

`planner` and `hpa` implement the two policies, and `canary` the canary analysis. `observations` has everything known
about a model at one time.

The functions in this package read no clock and do no I/O. Out of scope: the source of observations (`halcyon.signals`),
and writing the replicas (`halcyon.control`).
"""

# | module         | content                                                                                    |
# | -------------- | ------------------------------------------------------------------------------------------ |
# | `observations` | everything known about a model at one time                                                 |
# | `planner`      | the Planner policy                                                                         |
# | `hpa`          | the Rules policy, and the HPA's algorithm for models whose replicas the operator writes    |
# | `canary`       | canary analysis                                                                            |
# | `policy`       | the decision, in one form for both policies                                                |
