"""Config and machine → variables of TensorFlow."""

import os

import pytest

from distxcept.cluster.compute import (
    INSTALL_CUDA,
    compute_environ,
    cores_for_parts,
    in_effect,
    runs_on_gpu,
    unused_gpus,
)
from distxcept.config.schema import Config
from distxcept.launch import environment

ON, OFF = {"TF_ENABLE_ONEDNN_OPTS": "1"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}
GROWS = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def config(**sections) -> Config:
    data = {"train": {"kind": "synthetic", "samples": 8, "classes": 2}}
    return Config.model_validate({"data": data, **sections})


@pytest.mark.parametrize(
    ("sections", "on_gpu", "expected"),
    [
        ({}, False, ON),
        ({}, True, GROWS),
        ({"memory": {"limit": "2GiB"}}, False, OFF | {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}),
        ({"memory": {"limit": "2GiB"}}, True, GROWS),
        ({"engine": {"reduction": "ordered"}}, False, OFF),
        ({"engine": {"name": "mirrored", "devices": 2}}, False, ON),
        ({"precision": "float64"}, False, ON),
    ],
)
def test_what_pays(sections, on_gpu, expected):
    assert compute_environ(config(**sections), on_gpu=on_gpu) == expected


@pytest.mark.parametrize(
    ("devices", "environ", "gpus", "expected"),
    [
        ("auto", {}, 0, False),
        ("auto", {}, 2, True),
        (1, {}, 2, True),
        ("auto", {"CUDA_VISIBLE_DEVICES": "-1"}, 2, False),
        ("auto", {"CUDA_VISIBLE_DEVICES": ""}, 2, False),
        ("auto", {"CUDA_VISIBLE_DEVICES": "1"}, 2, True),
        (["CPU:0"], {}, 2, False),
        (["gpu:1"], {}, 2, True),
    ],
)
def test_whether_a_gpu_computes(devices, environ, gpus, expected):
    assert runs_on_gpu(config(engine={"devices": devices}), environ, gpus) is expected


@pytest.mark.parametrize(
    ("devices", "environ", "gpus", "words"),
    [
        ("auto", {}, 0, None),
        ("auto", {}, 1, "this machine has 1 GPU, but"),
        ("auto", {}, 2, "this machine has 2 GPUs, but"),
        ("auto", {"SLURM_GPUS_ON_NODE": "4"}, 0, "SLURM has given this job 4 GPUs, but"),
        ("auto", {"SLURM_GPUS_ON_NODE": "1"}, 8, "SLURM has given this job 1 GPU, but"),
        ("auto", {"SLURM_GPUS_ON_NODE": "all"}, 0, None),
        ("auto", {"CUDA_VISIBLE_DEVICES": "-1"}, 2, None),
        (["CPU:0"], {"SLURM_GPUS_ON_NODE": "4"}, 2, None),
    ],
)
def test_gpus_that_are_there_and_not_used(devices, environ, gpus, words):
    for has_cuda in (True, False):
        told = unused_gpus(config(engine={"devices": devices}), environ, gpus, has_cuda=has_cuda)
        if words is None:
            assert told is None
            continue
        assert told is not None and words in told and "distxcept doctor" in told
        assert (INSTALL_CUDA in told) != has_cuda and "\n" not in told


@pytest.mark.parametrize(
    ("sections", "engine", "on_cpu", "expected"),
    [
        ({}, "single", True, 8),
        ({}, "single", False, 1),
        ({}, "mirrored", True, 1),
        ({}, "horovod", True, 1),
        ({"memory": {"limit": "2GiB"}}, "single", True, 1),
        ({"engine": {"reduction": "ordered"}}, "single", True, 1),
        ({"engine": {"threads": 4}}, "single", True, 1),
    ],
)
def test_where_parts_run_side_by_side(sections, engine, on_cpu, expected):
    assert cores_for_parts(config(**sections), engine, on_cpu=on_cpu, cores=8, environ={}) == expected


def test_only_known_names_are_told():
    environ = {"TF_ENABLE_ONEDNN_OPTS": "1", "AWS_SECRET_ACCESS_KEY": "x", "TF_NUM_INTEROP_THREADS": "1"}
    assert in_effect(environ) == {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_NUM_INTEROP_THREADS": "1"}


@pytest.mark.parametrize(("own", "expected"), [({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0")])
def test_what_the_user_has_set_wins(monkeypatch, own, expected):
    monkeypatch.setattr(environment, "count_gpus", lambda: 0)
    monkeypatch.setattr(os, "environ", dict(own))
    environment.prepare_environment(config())
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == expected
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"
    assert os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] == "30"


@pytest.mark.parametrize("name", ["TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"])
def test_who_sets_threads_has_an_arrangement_in_mind(name):
    assert cores_for_parts(config(), "single", on_cpu=True, cores=8, environ={name: "1"}) == 1
