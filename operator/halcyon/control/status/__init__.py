"""The status of a ModelDeployment and its Events, computed from a scope (the input of a reconcile) and a plan. Pure."""
