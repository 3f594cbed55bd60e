"""Results of a load: columns of requests, statistics, checks of the run, and the document. Pure."""
