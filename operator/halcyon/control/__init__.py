"""The controller of ModelDeployments, which creates the objects that each one needs and writes its status.

Each package has one task, from the caches of the cluster (`state`) to the start and stop of all parts of the operator
(`runtime`).

Plans and statuses are computed without I/O. Only `halcyon.kube` sends requests to the API server.
"""

# | package       | task                                                                                   |
# | ------------- | -------------------------------------------------------------------------------------- |
# | `state`       | caches of the cluster, and the scope: the input of one reconcile                       |
# | `acceptance`  | checks whether a spec is accepted                                                      |
# | `rollout`     | decides how pods of a new revision replace those of another one                        |
# | `desired`     | derives the plan: the objects that should exist                                        |
# | `status`      | derives the status and the Events                                                      |
# | `reconcile`   | runs these steps for each ModelDeployment, and applies their results                   |
# | `autoscaling` | decides the replicas of each model, independently of reconciles                        |
# | `reporting`   | dashboard data, per-model metrics, costs                                               |
# | `runtime`     | starts and stops all parts of the operator                                             |
