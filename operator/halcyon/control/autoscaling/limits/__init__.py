"""External limits on a model's replicas: ResourceQuotas of its namespace, and the site's GPU budget and scale-down switch."""
