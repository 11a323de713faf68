"""Links by name and by measurement, and how long a reduction over them takes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.errors import ConfigError
from distxcept.memory.links import Link, Network, link_by_measurement, parse_network

links = st.builds(
    Link, name=st.just("x"), bytes_per_second=st.floats(1e7, 1e12), latency_seconds=st.floats(0, 1e-3)
)
algorithms = st.sampled_from(["auto", "ring", "tree", "hierarchical"])
networks = st.builds(Network, inside=links, between=links, per_node=st.integers(1, 16), algorithm=algorithms)
sizes = st.floats(1e3, 1e10)


@given(networks, sizes, st.integers(2, 4096), st.floats(1, 100))
def test_a_faster_network_and_fewer_bytes_never_hurt(network, size, world, factor):
    quick = replace(
        network,
        inside=replace(network.inside, bytes_per_second=network.inside.bytes_per_second * factor),
        between=replace(network.between, bytes_per_second=network.between.bytes_per_second * factor),
    )
    seconds = network.reduction_seconds(size, world)
    assert 0 < quick.reduction_seconds(size, world) <= seconds * (1 + 1e-9)
    assert network.reduction_seconds(size / factor, world) <= seconds * (1 + 1e-9)


@given(networks, sizes, st.integers(1, 12))
def test_more_devices_take_no_less_time(network, size, power):
    few, many = 2 ** (power - 1), 2**power
    # Full nodes: a ring over a part of a node may be faster or slower than over all of it only by its own links.
    if few % network.per_node == 0 or many <= network.per_node:
        assert network.reduction_seconds(size, many) >= network.reduction_seconds(size, few) * (1 - 1e-9)


def test_a_ring_by_hand():
    network = Network(Link("a", 1e9, 0.001), Link("b", 1e6, 1.0), per_node=4)
    ring = replace(network, algorithm="ring")
    assert ring.reduction_seconds(4e9, 4) == pytest.approx(6 * (0.001 + 1.0))
    assert ring.reduction_seconds(4e9, 1) == 0.0
    assert ring.reduction_seconds(8e6, 8) == pytest.approx(14 * (1.0 + 1.0)), "the slow link sets the pace"


def test_rings_within_nodes_and_a_ring_of_nodes_by_hand():
    network = Network(Link("a", 1e9, 0.001), Link("b", 1e6, 1.0), per_node=4, algorithm="hierarchical")
    assert network.reduction_seconds(8e6, 8) == pytest.approx(6 * (0.001 + 0.002) + 2 * (1.0 + 4.0))


@given(st.floats(1e7, 1e10), st.floats(1e-6, 1e-3), st.integers(2, 64))
def test_a_measured_link_explains_its_measurement(speed, latency, members):
    ring = Network(Link("x", speed, latency), Link("x", speed, latency), members, "ring")
    found = link_by_measurement(
        1e8, ring.reduction_seconds(1e8, members), ring.reduction_seconds(1e-9, members), members
    )
    assert found.bytes_per_second == pytest.approx(speed, rel=0.02)
    assert found.latency_seconds == pytest.approx(latency, rel=0.02)


@pytest.mark.parametrize(
    ("text", "inside", "between"),
    [
        (None, 15.75e9 * 0.75, 25e9 / 8 * 0.7),
        ("100Gb", 15.75e9 * 0.75, 100e9 / 8 * 0.7),
        ("100Gb-rdma", 15.75e9 * 0.75, 100e9 / 8 * 0.9),
        ("nvlink, 10gb", 150e9 * 0.75, 10e9 / 8 * 0.7),
        ("1.5GB/s@80us,pcie4", 31.5e9 * 0.75, 1.5e9),
        ("1.5GB/s@80us", 1.5e9, 1.5e9),  # what a preflight printed may be of one node
    ],
)
def test_networks_by_name(text, inside, between):
    found = parse_network(text, per_node=4)
    assert found.inside.bytes_per_second == pytest.approx(inside)
    assert found.between.bytes_per_second == pytest.approx(between)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "'fast' is no known link"),
        ("nvlnk,100Gb", "'nvlnk' is no known link"),
        ("0Gb", "'0Gb' is no known link"),
        ("100", "'100' is no known link"),
        ("1.5GB/s@", "'1.5GB/s@' is no known link"),
        ("-3Gb", "'-3Gb' is no known link"),
        ("nvlink,pcie", "more than one link for the same place"),
        ("1Gb,2Gb", "more than one link for the same place"),
    ],
)
def test_networks_that_are_none(text, message):
    with pytest.raises(ConfigError, match="write it like 100Gb") as error:
        parse_network(text, per_node=4)
    assert message in str(error.value)
