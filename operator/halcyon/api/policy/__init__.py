"""Site policy: limits of the platform team on ModelDeployments, as typed values, with each rule in CEL and in Python."""
