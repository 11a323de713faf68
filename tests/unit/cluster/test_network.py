"""Settings of Horovod and NCCL from the config."""

import pytest

from distxcept.cluster.network import network_environ
from distxcept.config.schema import EngineSection

USUAL = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1800",
}


def test_the_rest_is_left_to_them():
    assert network_environ(EngineSection(), on_gpu=True) == USUAL


def test_on_a_cpu_their_waiting_takes_time_from_the_training():
    spared = {"HOROVOD_CYCLE_TIME": "5", "OMPI_MCA_mpi_yield_when_idle": "1"}
    assert network_environ(EngineSection(), on_gpu=False) == USUAL | spared
    wished = EngineSection.model_validate({"network": {"cycle_time": 2}})
    assert network_environ(wished, on_gpu=False)["HOROVOD_CYCLE_TIME"] == "2"


@pytest.mark.parametrize(
    ("network", "variables"),
    [
        ({"fusion_threshold": "32MiB"}, {"HOROVOD_FUSION_THRESHOLD": "33554432"}),
        ({"cycle_time": 0.5}, {"HOROVOD_CYCLE_TIME": "0.5"}),
        ({"hierarchical": True}, {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        ({"hierarchical": False}, {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
        ({"interface": "ib0"}, {"NCCL_SOCKET_IFNAME": "ib0"}),
        ({"infiniband": False}, {"NCCL_IB_DISABLE": "1"}),
        ({"infiniband": True}, {"NCCL_IB_DISABLE": "0"}),
        ({"nccl_debug": "info"}, {"NCCL_DEBUG": "INFO"}),
    ],
)
def test_each_key_is_a_variable(network, variables):
    assert (
        network_environ(EngineSection.model_validate({"network": network}), on_gpu=True) == USUAL | variables
    )


def test_a_reduction_waits_at_least_as_long_as_a_peer_may_be_silent():
    environ = network_environ(EngineSection(peer_timeout=60.0, stall_timeout=10.0), on_gpu=True)
    assert environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] == "60"
