"""A sample of the faults at every step (`benchmarks.hold.faults`): it ends as undisturbed runs do."""

from pathlib import Path

import pytest

from benchmarks.hold.faults import sample
from e2e.cluster.cluster import Cluster
from tests.faults.site import site

pytestmark = pytest.mark.more

MINUTES = 2.0


def test_sample_of_faults_ends_as_undisturbed_runs_do(cluster: Cluster, tmp_path: Path) -> None:
    with site(cluster, tmp_path) as fault_site:
        assert sample(fault_site, MINUTES) == {}
