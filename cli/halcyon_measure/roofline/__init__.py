"""The roof that compute and bandwidth of a machine set, and measured points below it. Pure."""
