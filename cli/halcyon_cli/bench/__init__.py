"""Package of `halcyon bench`: its options, and the environments in which a measurement can run."""
