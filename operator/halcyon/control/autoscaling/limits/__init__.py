"""External limits on a model's replicas: the ResourceQuotas of its namespace, and the site's GPU budget."""
