"""Site policy: limits that the platform team sets on ModelDeployments. Each rule is defined in CEL and in Python."""
