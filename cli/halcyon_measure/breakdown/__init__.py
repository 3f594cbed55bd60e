"""Where the time and the energy of a run went, and what limited it: from requests, counters and samples. Pure."""
