"""Values that the command adds to a measurement: CPU and memory of the pods, carbon intensity and prices."""
