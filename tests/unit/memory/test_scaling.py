"""The scaling model: against what has been published, and what must hold for any numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distxcept.errors import ConfigError
from distxcept.memory.links import Link, Network, link_by_measurement, parse_network
from distxcept.memory.scaling import BUCKETS, Work, expected_largest, predict, ready_parts
from distxcept.model.layout import Layout

# Horovod, arXiv:1802.05799 and its benchmark page: 128 servers with 4 Pascal GPUs each, 25 Gbit/s with RDMA; 90 % scaling
# efficiency for Inception V3 and ResNet-101, 68 % for VGG-16; 1656.82 images/s for ResNet-101 on 16 of them, 64 on each.
# TensorFlow's benchmark page of 2017: 142 (Inception V3) and 154 (VGG-16) images/s on one P100, batch 64.
PUBLISHED_WORLD, PUBLISHED_BATCH, FUSION_BYTES = 512, 64, 64 * 2**20
PASCALS = parse_network("pcie,25Gb-rdma", per_node=4, algorithm="ring")  # NCCL of that time had rings only
RESNET101 = (44.5e6 * 4, 1656.82 / 16)
INCEPTION_V3 = (23.8e6 * 4, 142.0)
VGG16 = (138.4e6 * 4, 154.0)


def fused(gradient_bytes: float, speed: float, **more) -> Work:
    """Horovod fuses ready gradients into buffers of 64 MiB; the layers are taken to weigh alike."""
    number = -(-int(gradient_bytes) // FUSION_BYTES)
    parts = tuple((k + 1) / number for k in range(number))
    return Work(sample_seconds=1 / speed, gradient_bytes=gradient_bytes, ready_parts=parts, **more)


def efficiency(work: Work, world: int, network: Network, samples: int = PUBLISHED_BATCH) -> float:
    """Each device has so many samples, as in the publication."""
    alone, all_ = (
        predict(work, samples=samples, micro_steps=1, world=n, network=network).seconds for n in (1, world)
    )
    return alone / all_


@pytest.mark.parametrize(
    ("model", "published", "tolerance"),
    [(RESNET101, 0.90, 0.05), (INCEPTION_V3, 0.90, 0.05), (VGG16, 0.68, 0.10)],
    ids=["ResNet-101", "Inception V3", "VGG-16"],
)
def test_published_efficiencies(model, published, tolerance):
    """VGG-16 less closely: three quarters of its weights are ready first, which layers that weigh alike do not show."""
    assert efficiency(fused(*model), PUBLISHED_WORLD, PASCALS) == pytest.approx(published, abs=tolerance)


def test_without_overlap_the_publication_would_be_missed():
    """So the test above can fail."""
    assert efficiency(fused(*RESNET101, overlap=False), PUBLISHED_WORLD, PASCALS) < 0.8


positive = st.floats(1e-4, 10.0)
world_sizes = st.integers(1, 4096)
works = st.builds(
    Work,
    sample_seconds=positive,
    step_seconds=st.floats(0, 1),
    gradient_bytes=st.floats(1e3, 1e10),
    overlap=st.booleans(),
    jitter=st.floats(0, 0.5),
)
links = st.builds(
    Link, name=st.just("x"), bytes_per_second=st.floats(1e7, 1e12), latency_seconds=st.floats(0, 1e-3)
)
algorithms = st.sampled_from(["auto", "ring", "tree", "hierarchical"])
networks = st.builds(Network, inside=links, between=links, per_node=st.integers(1, 16), algorithm=algorithms)


@given(works, networks, world_sizes, st.integers(1, 64), st.integers(1, 8))
def test_an_update_is_never_faster_than_its_parts(work, network, world, samples, steps):
    found = predict(work, samples=samples, micro_steps=steps, world=world, network=network)
    assert found.seconds >= found.compute_seconds > 0
    assert 0 <= found.exposed_seconds <= found.reduction_seconds * (1 + 1e-9)
    assert 0 <= found.network_part < 1


@given(works, networks, st.integers(1, 12), st.integers(1, 64))
def test_more_devices_with_the_same_samples_each_take_no_less_time(work, network, power, samples):
    few, many = (
        predict(work, samples=samples, micro_steps=1, world=2**k, network=network) for k in (power - 1, power)
    )
    # Full nodes: a ring over a part of a node may be faster or slower than over all of it only by its own links.
    if 2 ** (power - 1) % network.per_node == 0 or 2**power <= network.per_node:
        assert many.waiting_seconds >= few.waiting_seconds
        assert many.reduction_seconds >= few.reduction_seconds * (1 - 1e-9)


@given(works, networks, world_sizes, st.floats(1, 100))
def test_a_faster_network_never_hurts(work, network, world, factor):
    quick = Network(
        *(
            replace(link, bytes_per_second=link.bytes_per_second * factor)
            for link in (network.inside, network.between)
        ),
        network.per_node,
        network.algorithm,
    )
    slow, fast = (
        predict(work, samples=4, micro_steps=2, world=world, network=one).seconds for one in (network, quick)
    )
    assert fast <= slow * (1 + 1e-9)


@given(works, networks, world_sizes, st.floats(1, 100))
def test_more_gradients_never_help(work, network, world, factor):
    larger = replace(work, gradient_bytes=work.gradient_bytes * factor)
    less, more = (
        predict(one, samples=4, micro_steps=2, world=world, network=network).seconds for one in (work, larger)
    )
    assert more >= less * (1 - 1e-9)


@given(works, networks, world_sizes)
def test_overlap_hides_but_does_not_shorten(work, network, world):
    """With buckets there is more latency on the network; what is exposed is at most that longer whole."""
    found = predict(work, samples=4, micro_steps=1, world=world, network=network)
    assert found.exposed_seconds <= found.reduction_seconds * (1 + 1e-9)
    if not work.overlap:
        assert found.exposed_seconds == found.reduction_seconds


@pytest.mark.parametrize(("number", "expected"), [(1, 0.0), (2, 0.564), (4, 1.029), (100, 2.508)])
def test_the_largest_of_normal_values(number, expected):
    assert expected_largest(number) == pytest.approx(expected, abs=0.06)


def test_a_ring_by_hand():
    network = Network(Link("a", 1e9, 0.001), Link("b", 1e6, 1.0), per_node=4)
    ring = Network(network.inside, network.between, 4, "ring")
    assert ring.reduction_seconds(4e9, 4) == pytest.approx(6 * (0.001 + 1.0))
    assert ring.reduction_seconds(4e9, 1) == 0.0
    assert ring.reduction_seconds(8e6, 8) == pytest.approx(14 * (1.0 + 1.0)), "the slow link sets the pace"


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


@pytest.mark.parametrize("text", ["fast", "0Gb", "100", "nvlink,pcie", "1Gb,2Gb", "1.5GB/s@", "-3Gb"])
def test_networks_that_are_none(text):
    with pytest.raises(ConfigError, match="write it like 100Gb"):
        parse_network(text, per_node=4)


@pytest.mark.parametrize("size", [71, 299])
def test_gradients_of_late_layers_are_ready_early(size):
    parts = ready_parts(Layout(classes=1000), size)
    assert len(parts) == BUCKETS
    assert list(parts) == sorted(parts) and parts[-1] == 1.0
    assert parts[0] < 0.15, "a quarter of the weights is in the last layers, which compute little"
