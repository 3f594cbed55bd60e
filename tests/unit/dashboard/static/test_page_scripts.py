"""Pages of the dashboard as their users meet them over time: lost connections, other tabs, odd addresses, other clocks."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.dashboard.static.page_script import run

APP = """
const session = { open: false, user: "ada", links: {}, cluster: "" };
globalThis.respond = (path, { method }) => (path === "/api/session" && method !== "DELETE" ? { status: 200, body: session } : { status: SIGN_OUT, body: [] });
location.hash = HASH;
await page("app.js");
await pass(1);
"""
FLEET = """
const { fleetPage } = await page("fleet.js");
const main = document.getElementById("main");
const fleet = { synced: SYNCED, total: 0, matched: 0, offset: 0, rows: [], rollouts: [], rolling: 0, namespaces: [], counts: {}, problems: {}, allocatable: { gpus: null, why: "" }, rate: null, errors: null, reporting: 0, judged: 0, gpus: 0, cost: null, currency: "", troubled: 0 };
fleetPage(main, new URLSearchParams(QUERY), { state() {}, signIn() {}, links: () => ({}) });
streams[0].send("models", fleet);
result.text = main.textContent;
"""
DOCUMENTS = """
const point = (end, rate) => Object.fromEntries([["end", end], ["step", 10], ...["replicas", "ready", "desired", "gpu", "rate", "waiting", "in_triton", "p50", "p95", "p99", "batch", "rejected", "lost", "failed", "errors"].map((field) => [field, [].concat(rate)])]);
const row = { namespace: "team", name: "m", state: "ready", reason: "Ready", ready: 1, replicas: 1, desired: 1, min: null, max: null, queue_target: null, gpus: 0, cost: null, created: "2026-01-01T00:00:00Z", rollout: null };
const model = (end, rate, more = {}) => ({ model: row, problems: [], access_log: "None", generation: 1, note: "", largest_batch: null, latency_target_ms: null, conditions: [], scaling: {}, capacity: {}, decisions: [], advice: [], events: [], revision: {}, address: {}, pods: [], balancers: [], now: { rate, errors: null }, newest: point(end, rate), ...more });
"""
"""A model's document of the stream, at a time and with rates."""
MODEL = (
    DOCUMENTS
    + """
const { modelPage } = await page("model.js");
const main = document.getElementById("main");
let history_ = { status: 200, body: point(100, [1, 2, 3]) };
let rates = () => main.elements.filter((each) => each.attributes.class === "readout").map((each) => each.textContent)[0];
globalThis.respond = (path) => (path.endsWith("/history") ? history_ : path.endsWith("/spec") ? { status: 200, body: { spec: "spec", overlay: "" } } : { status: 200, body: [] });
const start = () => modelPage(main, "team", "m", new URLSearchParams(), { state() {}, signIn() {}, links: () => ({}), cluster: () => "" });
const count = (end) => requests.filter(([, path]) => path.endsWith(end)).length;
"""
)


def app(script: str, *, hash_: str = "", sign_out: int = 200) -> Any:
    """Return the result of a script that runs after the page was opened at this hash."""
    return run(APP.replace("HASH", f"'{hash_}'").replace("SIGN_OUT", str(sign_out)) + script)


def test_an_address_that_is_cut_off_opens_a_page() -> None:
    assert app("result.path = streams[0].path;", hash_="#/team/caf%C3")["path"] == "/api/stream/models/team/caf%25C3"


def test_a_failed_sign_out_is_not_shown_as_done() -> None:
    script = 'document.getElementById("sign-out").emit("click"); await pass(1); result.text = document.getElementById("main").textContent; result.live = document.getElementById("live").textContent;'
    done, failed = app(script), app(script, sign_out=0)
    assert "You have signed out." in done["text"]
    assert "You have signed out." not in failed["text"]
    assert failed["live"] == "You are still signed in. The operator can't be reached."


def test_a_command_that_was_not_copied_is_not_copied() -> None:
    shown = run("""
const { commandList, copyClicked } = await page("commands.js");
const [button] = commandList([{ command: "kubectl get pods", effect: "pods" }]).elements.filter((each) => each.localName === "button");
await copyClicked({ target: button });
result.failed = button.textContent;
Object.defineProperty(globalThis, "navigator", { value: { clipboard: { writeText: async (text) => (result.text = text) } } });
await copyClicked({ target: button });
result.copied = button.textContent;
""")
    assert shown == {"failed": "Selected", "text": "kubectl get pods", "copied": "Copied"}


MEASURED = """
const { measuredPage } = await page("measured.js");
const main = document.getElementById("main"), states = [], failures = [];
globalThis.respond = () => ({ status: STATUS, body: [] });
const close = measuredPage(main, "team", "m", new URLSearchParams(), { state: (live, why) => states.push([live, why]), signIn: (error) => failures.push(error.status), links: () => ({}) });
await pass(1);
Object.assign(result, { states, failures });
"""


def test_a_page_that_is_read_once_is_not_live() -> None:
    assert run(MEASURED.replace("STATUS", "200"))["states"][-1] == [False, ""]


def test_an_expired_token_on_the_page_measured_leads_to_the_sign_in() -> None:
    assert run(MEASURED.replace("STATUS", "401"))["failures"] == [401]


def test_buttons_of_the_page_measured_copy_until_it_is_closed() -> None:
    script = "result.open = main.listeners.click.length; close(); result.closed = main.listeners.click.length;"
    assert {"open": 1, "closed": 0}.items() <= run(MEASURED.replace("STATUS", "200") + script).items()


def fleet(*, synced: bool = True, query: str = "") -> str:
    """Return the text of the fleet's page without models."""
    return str(run(FLEET.replace("SYNCED", str(synced).lower()).replace("QUERY", f"'{query}'"))["text"])


def test_an_empty_fleet_is_explained_by_what_is_known() -> None:
    assert "There are no ModelDeployments that you may see." in fleet()
    assert "There are no ModelDeployments" not in fleet(synced=False)
    assert "No model matches the filter." in fleet(query="namespace=left")


def test_points_that_a_sleeping_tab_missed_are_read_later() -> None:
    shown = run(
        MODEL
        + """
start(); await pass(1);
streams[0].send("model", model(100, 3)); await pass(11_000);
history_ = { status: 200, body: point(200, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]) };
streams[0].send("model", model(200, 13));
await pass(1);
result.history = count("/history");
"""
    )
    assert shown["history"] == 2


def test_charts_recover_from_a_history_that_could_not_be_read() -> None:
    shown = run(
        MODEL
        + """
const good = history_;
history_ = { status: 503, body: {} };
start(); await pass(1);
streams[0].send("model", model(100, 3)); await pass(1);
result.before = rates();
history_ = good;
await pass(11_000);
streams[0].send("model", model(100, 3)); await pass(1);
result.after = rates();
"""
    )
    assert shown["before"] != shown["after"]
    assert shown["after"] == "Newest point: arrivals 3"


def test_the_specification_of_a_recreated_model_is_read_again() -> None:
    shown = run(
        MODEL
        + """
start(); await pass(1);
const details = main.elements.find((each) => each.localName === "details" && each.textContent.startsWith("Specification"));
details.setAttribute("open", "");
streams[0].send("model", model(100, 3)); await pass(1);
streams[0].send("model", model(100, 3, { model: { ...row, created: "2026-01-02T00:00:00Z" } })); await pass(1);
result.specs = count("/spec");
"""
    )
    assert shown["specs"] == 2


def test_revisions_in_sight_follow_a_rollout() -> None:
    shown = run(
        MODEL
        + """
const respond = globalThis.respond;
globalThis.respond = (path) => (path.endsWith("/revisions") ? { status: 200, body: { revisions: [] } } : respond(path));
start(); await pass(1);
const details = main.elements.find((each) => each.localName === "details" && each.textContent.startsWith("Revisions"));
details.setAttribute("open", "");
details.emit("toggle"); await pass(1);
for (const target of ["m-1", "m-1", "m-2"]) { streams[0].send("model", model(100, 3, { revision: { current: "m-1", target } })); await pass(1); }
result.reads = count("/revisions");
"""
    )
    assert shown["reads"] in {2, 3}


def test_ages_follow_the_clock_of_the_operator() -> None:
    shown = run("""
const { get } = await page("api.js");
const { age } = await page("format.js");
Date.now = () => 1_800_000_000_000;
const hour = new Date(Date.now() - 3_600_000);
globalThis.respond = () => ({ status: 200, body: {}, headers: { Date: hour.toUTCString() } });
result.before = age(new Date(hour - 60_000).toISOString());
await get("/api/session");
result.after = age(new Date(hour - 60_000).toISOString());
""")
    assert shown == {"before": "61 min", "after": "60 s"}


def test_a_limited_model_names_only_limits_that_prevent_more_replicas() -> None:
    shown = run(
        MODEL
        + """
start(); await pass(1);
streams[0].send("model", model(100, 3, { problems: ["limited"], scaling: { limitedBy: ["hold", "max"] } })); await pass(1);
result.text = main.textContent;
"""
    )
    assert "A limit prevents more replicas: max." in shown["text"]


KEYS = """
const press = (key) => frame.emit("keydown", { key, target: document.body ?? new HTMLElement("body") });
const go = (hash) => { const oldURL = `http://h/${location.hash}`; location.hash = hash; frame.emit("hashchange", { oldURL, newURL: `http://h/${hash}` }); };
history.back = () => (result.back = true);
history.length = 5;
"""


def test_the_key_u_leads_up_and_never_to_another_site() -> None:
    shown = app(
        KEYS
        + """
press("u"); result.first = location.hash;
go("#/?state=stalled"); go("#/team/m"); press("u"); result.filtered = location.hash;
go("#/team/m/measured?result=1"); press("u"); result.measured = location.hash;
""",
        hash_="#/team/m",
    )
    assert shown == {"first": "#/", "filtered": "#/?state=stalled", "measured": "#/team/m"}


def test_the_skip_link_keeps_the_address_of_the_page() -> None:
    shown = app(
        """
document.querySelector(".skip").emit("click", { preventDefault: () => (result.prevented = true) });
result.focused = document.activeElement === document.getElementById("main");
""",
        hash_="#/team/m",
    )
    assert shown == {"prevented": True, "focused": True}


@pytest.mark.parametrize("cluster", ["prod-eu-1", ""])
def test_links_to_other_tools_select_this_cluster(cluster: str) -> None:
    links = '{ grafana: "https://grafana", alerts: "https://alerts", runbooks: "" }'
    listener = f'{{ state() {{}}, signIn() {{}}, links: () => ({links}), cluster: () => "{cluster}" }}'
    shown = run(
        MODEL
        + f"""
modelPage(main, "team", "m", new URLSearchParams(), {listener}); await pass(1);
streams[0].send("model", model(100, 3)); await pass(1);
result.links = main.elements.map((each) => each.attributes.href ?? "").filter((each) => each.startsWith("https"));
"""
    )
    grafana, alerts = (urlsplit(link) for link in shown["links"])
    model = {"var-namespace": ["team"], "var-model": ["m"]}
    assert parse_qs(grafana.query) == (model | {"var-cluster": [cluster]} if cluster else model)
    matchers = 'namespace="team",model_deployment="m"' + (f',cluster="{cluster}"' if cluster else "")
    assert parse_qs(urlsplit(alerts.fragment).query) == {"filter": [f"{{{matchers}}}"]}


def test_a_page_gets_the_clusters_name_from_the_session() -> None:
    session = APP.replace('links: {}, cluster: ""', 'links: { grafana: "https://grafana" }, cluster: "prod-eu-1"')
    script = """
streams[0].send("model", model(100, 3)); await pass(1);
result.links = document.getElementById("main").elements.map((each) => each.attributes.href ?? "");
"""
    shown = run(session.replace("HASH", "'#/team/m'").replace("SIGN_OUT", "200") + DOCUMENTS + script)
    assert "https://grafana/d/halcyon-model?var-namespace=team&var-model=m&var-cluster=prod-eu-1" in shown["links"]
