"""Web dashboard: a read-only view of the operator's models in a browser.

Most modules compute one part of a page. `server` has the HTTP routes, and `static/` has the files of the pages.

The modules `batches`, `client_latency`, `measured`, `model_row`, `pod_start_phases`, `model_page` and `whatif` are
pure. Out of scope: informers, access reviews and agent reports (`halcyon.control.reporting.dashboard_source`).
"""

# | module               | content                                                                              |
# | -------------------- | ------------------------------------------------------------------------------------ |
# | `ports`              | interface to the operator                                                            |
# | `history`            | one hour of chart points per model, in memory                                        |
# | `client_latency`     | quantiles of client latency between two samples of the balancers' counters           |
# | `model_row`          | row of one model, its problems, and the totals over rows                             |
# | `model_table`        | table of models: filtering, sorting and paging                                       |
# | `pod_start_phases`   | phases of a pod's start                                                              |
# | `model_page`         | document for the page of one model                                                   |
# | `whatif`             | replicas for past arrivals with other targets                                        |
# | `measured`           | results of `halcyon bench` that are kept beside a model                              |
# | `batches`            | BatchInferences of a model                                                           |
# | `authorization`      | user of a request, and the namespaces that this user may see                         |
# | `server_sent_events` | streams of documents to browsers, at a rate that each browser can receive            |
# | `site`               | links to the site's other tools, and values from its Prometheus                      |
# | `pod_logs`           | last log lines of a pod, read with the user's own token                              |
# | `page_files`         | files of the pages, and security headers                                             |
# | `server`             | HTTP routes, headers and documents                                                   |
# | `static/`            | pages: JavaScript modules without a build step, and uPlot (`scripts/charts`)         |
# | `documents.d.ts`     | TypeScript types of the responses, for `make typecheck`                              |
