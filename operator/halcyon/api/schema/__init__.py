"""Schema of the ModelDeployment, for the CustomResourceDefinition, the reference pages and type checks."""
