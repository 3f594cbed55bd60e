"""`halcyon bench`: its options, and the place in which a measurement runs."""
