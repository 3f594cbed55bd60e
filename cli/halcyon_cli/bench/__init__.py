"""Package of `halcyon bench`: its options, and the places in which a measurement runs."""
