from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halcyon.balancer.discovery.endpoint_slices import merge, of_slice
from halcyon.triton import client as triton_client
from halcyon.triton.client import (
    Endpoint,
    Metrics,
    TritonClient,
    parse_metrics,
)
from halcyon.triton.errors import TritonError
from halcyon.triton.pod_sampler import PodSampler, ScrapedPod, report
from halcyon.triton.repository_index import RepositoryIndex, parse
from tests.integration.waiting import PATIENCE
from tests.ports import free_ports
from tests.unit.balancer.stand_in_api import slice_of
from tests.unit.balancer.stand_ins import Pod

# As Triton 2.51 writes it, shortened; the GPU lines as its documentation gives them.
PAGE = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="digits",version="1"} 1200
nv_inference_request_success{version="2",model="digits"} 34
nv_inference_request_success{model="other",version="1"} 9999
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="digits",reason="REJECTED",version="1"} 1
nv_inference_request_failure{model="digits",reason="CANCELED",version="1"} 2
nv_inference_request_failure{model="digits",reason="BACKEND",version="1"} 4
nv_inference_request_failure{model="digits",reason="OTHER",version="1"} 8
nv_inference_count{model="digits",version="1"} 5000
nv_inference_exec_count{model="digits",version="1"} 700
nv_inference_request_duration_us{model="digits",version="1"} 1
nv_inference_queue_duration_us{model="digits",version="1"} 1.5e+06
nv_inference_compute_infer_duration_us{model="digits",version="1"} 250000
nv_inference_pending_request_count{model="digits",version="1"} 7
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25
nv_gpu_utilization{gpu_uuid="GPU-2"} 0.75
nv_cpu_utilization 0.5
"""


def test_a_metrics_page_is_summed_over_versions_and_averaged_over_gpus() -> None:
    assert parse_metrics(PAGE, "digits") == Metrics(
        pending=7,
        succeeded=1234,
        failed=13,
        backend_failed=4,
        rows=5000,
        executions=700,
        queue_us=1500000,
        compute_us=250000,
        gpu=0.5,
        canceled=2,
    )


def test_metrics_missing_from_a_page_are_unknown_and_never_zero() -> None:
    assert parse_metrics("", "digits") == Metrics()
    assert parse_metrics(PAGE, "unknown") == Metrics(gpu=0.5)
    assert parse_metrics('nv_inference_request_failure{model="m",reason="OTHER"} 1', "m").backend_failed == 0


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('nv_inference_count{model="m",version="1",} 5', 5),
        ('nv_inference_count{ model = "m" , version="1" } 5 1700000000000', 5),
        ('nv_inference_count {model="m"} 5', 5),
        ('nv_inference_count{model="m",note="a\\"b}\\\\,\\n"} 5', 5),
        ('nv_inference_count{model="m"} +Inf', None),
        ('nv_inference_count{model="m"} NaN', None),
        ('nv_inference_count{model="m"} -1', None),
        ('nv_inference_count{model="m"} five', None),
        ('nv_inference_count{model="m"}', None),
        ('nv_inference_count{model="m" 5', None),
        ('nv_inference_count{model="m', None),
        ('nv_inference_countless{model="m"} 5', None),
        ("nv_inference_count 5", None),
    ],
)
def test_the_text_format_is_parsed_as_defined_and_non_numbers_are_unknown(line: str, value: int | None) -> None:
    assert parse_metrics(line, "m").rows == value


@given(st.text(), st.sampled_from(["nv_inference_count", "nv_gpu_utilization", ""]))
def test_no_page_breaks_the_parser(text: str, name: str) -> None:
    parse_metrics(name + text, "m")


def test_failures_in_steps_are_failures_of_the_backend() -> None:
    # As Triton 2.51 counts one failed request of the ensemble, and one of a client's invalid requests.
    page = """\
nv_inference_request_failure{model="ens",reason="OTHER",version="1"} 3
nv_inference_request_failure{model="ens",reason="BACKEND",version="1"} 0
nv_inference_request_failure{model="pre",reason="BACKEND",version="1"} 1
nv_inference_request_failure{model="pre",reason="OTHER",version="1"} 0
"""
    assert parse_metrics(page, "ens") == Metrics(failed=3, backend_failed=1, canceled=0)


def test_the_index_gives_ready_versions_and_the_reason_of_the_others() -> None:
    index = [
        {"name": "m", "version": "10", "state": "READY"},
        {"name": "m", "version": "9", "state": "READY"},
        {"name": "m", "version": "8", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "m", "version": "7", "state": "UNAVAILABLE", "reason": "Internal: no such file"},
        {"name": "m", "version": "6", "state": "UNAVAILABLE", "reason": "Internal: no such file"},
        {"name": "m", "version": "5", "state": "LOADING"},
        {"name": "other", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    assert parse(index, "m", pod="p") == RepositoryIndex(("9", "10"), "Internal: no such file")
    index[-1]["reason"] = "Internal: no module named torch"
    assert parse(index, "m", pod="p") == RepositoryIndex(
        ("9", "10"), "model other of the repository: Internal: no module named torch\nInternal: no such file"
    )
    long = parse([{"name": "m", "state": "UNAVAILABLE", "reason": "x" * 9999}], "m", pod="p").load_error
    assert long is not None
    assert len(long) == 2000
    with pytest.raises(TritonError):
        parse({"error": "no"}, "m", pod="p")


@pytest.mark.parametrize("row", [{"name": "m"}, {"name": "m", "version": "", "state": "", "reason": ""}])
def test_a_row_without_a_state_is_a_configuration_that_triton_refused(row: dict[str, str]) -> None:
    refusal = (
        "Triton's index lists the model without a state: Triton rejected its configuration; "
        "see the log of container triton in pod m-a-1"
    )
    other = {"name": "other", "version": "1", "state": "READY"}
    assert parse([row, other], "m", pod="m-a-1") == RepositoryIndex((), refusal, companions=("other",))
    assert parse([{**other, "name": "m"}, {**row, "name": "pre"}], "m", pod="m-a-1") == RepositoryIndex(
        ("1",), f"model pre of the repository: {refusal}"
    )


@pytest.mark.parametrize(
    ("lines", "gpu"),
    [
        (['{gpu_uuid="GPU-1"} 0.5'], 0.5),
        (['{gpu_uuid="GPU-1"} 0'], 0.0),
        (['{gpu_uuid="GPU-1"} 1', '{gpu_uuid="GPU-2"} 0', '{gpu_uuid="GPU-3"} 0.5'], 0.5),
        (['{gpu_uuid="GPU-1"} NaN', '{gpu_uuid="GPU-2"} 0.5'], 0.5),
        (['{gpu_uuid="GPU-1"} NaN'], None),
        (['{gpu_uuid="GPU-1"} -Inf', '{gpu_uuid="GPU-2"} +Inf'], None),
        ([], None),
    ],
    ids=["one", "idle", "several", "one of two unknown", "unknown", "infinite", "MIG: absent"],
)
def test_gpu_utilization_is_the_mean_of_the_gpus_that_report_it(lines: list[str], gpu: float | None) -> None:
    assert parse_metrics("\n".join(f"nv_gpu_utilization{line}" for line in lines), "m").gpu == gpu


def endpoint(address: str, *, serving: bool = True, terminating: bool = False) -> Endpoint:
    return Endpoint("a", "pod-" + address, address, serving=serving, terminating=terminating)


async def test_pods_are_polled_together_and_a_hanging_pod_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pods are in this process, and a busy machine holds them up.
    monkeypatch.setattr(triton_client, "READ_TIMEOUT_S", triton_client.READ_TIMEOUT_S * PATIENCE)
    http, grpc, metrics = free_ports(3)
    well = await Pod(
        "127.76.1.1", http, grpc, metrics, page=PAGE, index=[{"name": "digits", "version": "1", "state": "READY"}]
    ).start(with_grpc=False)
    broken = await Pod(
        "127.76.1.2", http, grpc, metrics, index=[{"name": "digits", "state": "UNAVAILABLE", "reason": "bad file"}]
    ).start(with_grpc=False)

    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(3 * PATIENCE)
        finally:
            writer.close()

    hanging = await asyncio.start_server(hang, "127.76.1.3", metrics)
    pods = [
        endpoint("127.76.1.1"),
        endpoint("127.76.1.2", serving=False),
        endpoint("127.76.1.3"),
        endpoint("127.76.1.4"),
        endpoint("127.76.1.1", serving=False, terminating=True),
    ]
    async with aiohttp.ClientSession() as session:
        sensor = PodSampler(TritonClient(session, "digits", http, metrics), lambda: 1000.0)
        began = asyncio.get_running_loop().time()
        seen = await sensor.sample(pods[:4])
        assert asyncio.get_running_loop().time() - began < 2.0 * PATIENCE
        record = report(
            namespace="default",
            name="d",
            agent="x",
            at=1001.0,
            endpoints=pods[:4],
            samples=seen,
            maintenance=set(),
        )
        assert [pod.state for pod in record.pods] == ["ready", "starting", "unreachable", "unreachable"]
        assert [pod.load_error for pod in record.pods] == [None, "bad file", None, None]
        assert record.pods[0].versions == ("1",)
        assert (record.pods[0].pending, record.pods[2].pending) == (7, None)
        assert record.balancer is None
        well.index = []
        seen = await sensor.sample(pods[:1])
        assert seen["pod-127.76.1.1"].index == RepositoryIndex(("1",)), "a ready pod's index is read once"
    hanging.close()
    await asyncio.gather(well.stop(), broken.stop())


async def test_no_connection_to_a_port_of_inference_is_kept() -> None:
    """A Triton that ends waits for the connections there that are open, for all of its exit time-out."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        body = b"[]" if head.startswith(b"POST") else b'{"model_stats": []}'
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()
        await writer.wait_closed()

    [http] = free_ports(1)
    async with await asyncio.start_server(answer, "127.76.1.9", http), aiohttp.ClientSession() as session:
        client = TritonClient(session, "digits", http, 8002)
        assert await client.batches("127.76.1.9", pod="p") == ((), 0)
        assert await client.index("127.76.1.9", pod="p") == RepositoryIndex()
    assert len(heads) == 2
    assert all(b"connection: close\r\n" in head.lower() for head in heads)


def test_states_follow_the_endpoint_first() -> None:
    pods = [
        Endpoint("a", "leaving", "10.0.0.1", serving=True, terminating=True),
        Endpoint("a", "dead", "10.0.0.2", serving=True, terminating=False),
        Endpoint("a", "new", "10.0.0.3", serving=True, terminating=False),
    ]
    seen = {"leaving": ScrapedPod(1.0), "dead": ScrapedPod(1.0, Metrics())}
    record = report(
        namespace="n",
        name="m",
        agent="x",
        at=2.0,
        endpoints=pods,
        samples=seen,
        maintenance={"dead", "leaving"},
    )
    assert [pod.state for pod in record.pods] == ["draining", "maintenance", "ready"]


def test_readiness_in_a_slice_is_the_kubelets_and_not_the_published_one() -> None:
    stored = slice_of("m-server-a", {"p": "10.0.0.1"}, ready=True, serving=False)
    assert of_slice({"metadata": {"labels": stored["labels"]}, **stored}, slots={"m-server-a": "a"}) == (
        Endpoint("a", "p", "10.0.0.1", serving=False, terminating=False),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"addressType": "FQDN"},
        {"endpoints": None},
        {"endpoints": [{"addresses": ["10.0.0.1"]}]},
        {"endpoints": [{"addresses": ["host"], "targetRef": {"kind": "Pod", "name": "p"}}]},
        {"endpoints": [{"addresses": [], "targetRef": {"kind": "Pod", "name": "p"}}]},
        {"endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Node", "name": "p"}}]},
        {"metadata": {"labels": {"kubernetes.io/service-name": "other"}}},
        {"metadata": {}},
    ],
)
def test_endpoints_that_belong_to_no_slot_are_left_out(change: dict[str, object]) -> None:
    stored = slice_of("m-server-a", {"p": "10.0.0.1"})
    document = {"metadata": {"labels": stored["labels"]}, **stored, **change}
    assert of_slice(document, slots={"m-server-a": "a"}) == ()


def test_a_pod_in_two_slices_counts_once_and_the_graver_state_wins() -> None:
    four = Endpoint("a", "p", "10.0.0.1", serving=True, terminating=False)
    six = Endpoint("a", "p", "fd00::1", serving=True, terminating=True)
    assert merge([[six], [four]]) == (Endpoint("a", "p", "10.0.0.1", serving=True, terminating=True),)
