"""Reports of pools call their workers what users do, and try no other pool."""

import pytest

import gristmill
from gristmill import experimental
from gristmill._base.report import Report
from gristmill._engine.worker_stats import RemoteStats, RemoteWorkerStats
from gristmill._observe import cluster_workers
from support.ranks import share_all


def report_of(workers_text, busy_s):
    """Return the report of 2 workers whose consumer waits for small outputs."""
    worker = RemoteWorkerStats(
        7, "node", 10.0, busy_s, 100, 100, 80_000, 9.0, busy_s, 0.1
    )
    report = Report(
        limit="unknown",
        stage=None,
        seconds=10.0,
        outputs=199,
        outputs_per_s=20.0,
        bytes_per_s=0.0,
        waited=0.9,
        p50_s=0.0,
        p95_s=0.0,
        p99_s=0.0,
    )
    usage = RemoteStats((worker, worker), 200, 0.0, workers_text)
    return str(cluster_workers.with_usage(report, usage))


@pytest.mark.parametrize("busy_s", [0.5, 9.5])
def test_workers_of_host_are_no_actors(busy_s):
    text = report_of("workers", busy_s)
    assert "workers" in text
    assert not {"actors", "Actors", "network", "batches_per_call"} & {*text.split()}
    assert "actors" in report_of("actors", busy_s)


def test_advice_for_small_outputs_is_that_of_pool():
    assert "a loader without workers" in report_of("workers", 0.5)
    assert "batches_per_call" in report_of("actors", 0.5)


@pytest.mark.parametrize("is_last", [True, False])
def test_trials_of_shared_chain_do_not_end_its_iterator(is_last):
    chain = gristmill.MapDataset.range(600).to_iter_dataset()
    chain = chain.mp_prefetch(gristmill.MultiprocessingOptions(1), streams=1)
    (shared,) = share_all(lambda: chain if is_last else chain.batch(1), 1)
    first = [next(shared) for _ in range(20)]
    report = shared.report(verify=True, seconds=0.01)
    assert report.checks or report.notes
    assert [*first, *shared] == [*range(600)]


@pytest.mark.parametrize("mode", ["deal", "broadcast"])
def test_measured_chain_can_be_shared(mode):
    chain = gristmill.MapDataset.range(40).to_iter_dataset()
    chain = chain.mp_prefetch(gristmill.MultiprocessingOptions(1), streams=1)
    timing = experimental.ExecutionTrackingMode.STAGE_TIMING
    options = experimental.DatasetOptions(execution_tracking_mode=timing)
    measured = experimental.WithOptionsIterDataset(chain, options)
    (shared,) = share_all(lambda: measured, 1, mode=mode)
    assert [*shared] == [*range(40)]
    report = shared.report()
    assert "Steps in workers are not measured separately." in report.notes[-1]
    names = {stage.name for stage in report.stages}
    assert names == {"computation in workers", "calls of workers"}
