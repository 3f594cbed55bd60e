"""What the command knows beside a measurement: usage of the pods, carbon and prices of the site."""
