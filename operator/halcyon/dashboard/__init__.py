"""The web dashboard: a read-only view of the operator's models in a browser.

| module               | content                                                                              |
| -------------------- | ------------------------------------------------------------------------------------ |
| `ports`              | what the dashboard needs from the operator                                           |
| `history`            | one hour of points per model, in memory                                              |
| `client_latency`     | quantiles of client latency between two samples of the balancers' counters           |
| `model_table`        | models -> rows, filtered, sorted and paged                                           |
| `pod_start_phases`   | a pod -> the phases of its start                                                     |
| `model_page`         | one model -> everything on its page                                                  |
| `whatif`             | other targets, applied to the arrivals that a planner remembers                      |
| `authorization`      | the user of a request, and the namespaces that this user may see                     |
| `server_sent_events` | streams of documents, at a rate that the reader can follow                           |
| `server`             | HTTP: routes, headers, files                                                         |
| `static/`            | the pages: plain modules that browsers run as they are, and uPlot (`scripts/charts`) |
| `documents.d.ts`     | the operator's responses as types, for `make typecheck`                              |

`client_latency`, `model_table`, `pod_start_phases`, `model_page` and `whatif` are pure. Out of scope: informers, access reviews and
agent reports; `halcyon.control.reporting.dashboard_source` provides them.
"""
