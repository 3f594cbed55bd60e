"""External limits on the replicas of a model: the quotas of its namespace, and the GPU budget of the site."""
