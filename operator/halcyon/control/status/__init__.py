"""The status of a ModelDeployment and its Events, derived from a scope and a plan. Pure."""
