"""The cgroup of a server in another container, in the forms in which the kernel shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halcyon_measure.sampling import cgroup

SERVER = 7


def process(proc: Path, number: int | str, cgroups: str, mounts: str = "") -> Path:
    folder = proc / str(number)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(cgroups)
    (folder / "mountinfo").write_text(mounts)
    return folder


def files(folder: Path, **content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_server_in_another_container_has_its_own_cgroup_of_version_2(tmp_path: Path) -> None:
    # The reader has its own cgroup namespace, so the other container is beside its root.
    process(tmp_path, "self", "0::/\n")
    server = process(
        tmp_path, SERVER, "0::/../b\n", "30 20 0:26 /../b /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"
    )
    files(
        server / "root/sys/fs/cgroup",
        cpu__stat="usage_usec 2500000\nnr_periods 50\nnr_throttled 5\n",
        cpu__max="150000 100000\n",
        memory__current="1048576\n",
        memory__max="max\n",
        memory__events="oom 1\noom_kill 1\n",
    )
    group = cgroup.of_process(SERVER, proc=tmp_path)
    assert group is not None
    assert group.sample() == cgroup.CgroupSample(
        cpu_s=2.5, cpu_limit=1.5, memory=1048576, memory_limit=None, periods=50, throttled=5, oom_kills=1
    )


def test_server_in_another_container_has_its_own_cgroup_of_version_1(tmp_path: Path) -> None:
    process(tmp_path, "self", "4:memory:/pods/a\n2:cpu,cpuacct:/pods/a\n0::/\n")
    server = process(
        tmp_path,
        SERVER,
        "4:memory:/pods/b\n2:cpu,cpuacct:/pods/b\n0::/\n",
        "32 31 0:29 /pods/b /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 /pods/b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    )
    files(
        server / "root/sys/fs/cgroup/cpu,cpuacct",
        cpuacct__usage="3000000000\n",
        cpu__cfs_quota_us="200000\n",
        cpu__cfs_period_us="100000\n",
        cpu__stat="nr_periods 9\nnr_throttled 3\nthrottled_time 12\n",
    )
    files(
        server / "root/sys/fs/cgroup/memory",
        memory__usage_in_bytes="4096\n",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    group = cgroup.of_process(SERVER, proc=tmp_path)
    assert group is not None
    assert group.sample() == cgroup.CgroupSample(
        cpu_s=3, cpu_limit=2, memory=4096, memory_limit=None, periods=9, throttled=3, oom_kills=2
    )


@pytest.mark.parametrize(
    ("own", "path", "root"), [("/a", "/a", "/"), ("/a", "/", "/"), ("/a", "/b", "/c"), ("/a", "/b", None)]
)
def test_cgroup_of_the_reader_or_of_the_machine_is_left_out(
    tmp_path: Path, own: str, path: str, root: str | None
) -> None:
    process(tmp_path, "self", f"0::{own}\n")
    mount = "" if root is None else f"30 20 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    server = process(tmp_path, SERVER, f"0::{path}\n", mount)
    files(server / "root/sys/fs/cgroup/b", cpu__stat="usage_usec 1\n")
    files(server / "root/sys/fs/cgroup/a", cpu__stat="usage_usec 1\n")
    assert cgroup.of_process(SERVER, proc=tmp_path) is None


def test_process_of_the_reader_has_no_cgroup_of_its_own() -> None:
    assert cgroup.of_process(os.getpid()) is None
    assert cgroup.of_process(2**22 + 1) is None
