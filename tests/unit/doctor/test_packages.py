"""Python, packages, advisories, and what of the environment is shown."""

import pytest
from packaging.requirements import Requirement

from distxcept.doctor import packages
from distxcept.doctor.advisories import ADVISORIES, check_advisories
from distxcept.doctor.finding import Finding, worst_status


def test_python_version() -> None:
    assert packages.check_python((3, 10, 4))[0].status == "problem"
    assert packages.check_python((3, 11, 0))[0].status == "ok"


def test_packages_outside_their_range_or_missing() -> None:
    wanted = [Requirement("keras>=3.15"), Requirement("numpy>=2.0"), Requirement("rich>=13.9")]
    findings = packages.check_packages(wanted, {"keras": "3.14.0", "numpy": "2.4.6"})
    assert [(one.status, one.text, one.remedy) for one in findings] == [
        ("problem", "keras 3.14.0 is outside >=3.15", "pip install 'keras>=3.15'"),
        ("problem", "rich is not installed", "pip install 'rich>=13.9'"),
        ("ok", "numpy 2.4.6", None),
    ]


def test_own_requirements_leave_the_extras_out() -> None:
    names = {requirement.name for requirement in packages.own_requirements()}
    assert "tensorflow" in names and "horovod" not in names and "pytest" not in names


@pytest.mark.parametrize(
    ("installed", "ids"),
    [
        ({"horovod": "0.28.1"}, {"CVE-2024-10190", "CVE-2026-31234"}),
        ({"keras": "3.15.0", "pillow": "12.2.0", "protobuf": "6.33.5"}, set()),
        ({"keras": "3.14.0"}, {"CVE-2026-12570", "CVE-2026-12481"}),
        ({"keras": "3.13.2"}, {"CVE-2026-12570", "GHSA-hqp4-2352-xf5r"}),
        ({"keras": "3.13.1"}, {"CVE-2026-12570", "GHSA-hqp4-2352-xf5r", "CVE-2026-1462"}),
        ({"keras": "3.12.1"}, {"CVE-2026-12570", "GHSA-hqp4-2352-xf5r"}),
        ({"pillow": "12.1.1"}, {"CVE-2026-40192"}),
        ({"protobuf": "5.29.5"}, {"CVE-2026-0994"}),
        ({"protobuf": "5.29.6"}, set()),
        ({}, set()),
    ],
)
def test_advisories(installed: dict[str, str], ids: set[str]) -> None:
    findings = check_advisories(installed)
    assert {one.data["id"] for one in findings if one.status == "warning"} == ids
    assert all(one.remedy for one in findings if one.status == "warning")
    assert ids or [one.status for one in findings] == ["ok"]


def test_advisory_ids_are_unique() -> None:
    assert len({one.id for one in ADVISORIES}) == len(ADVISORIES)


def test_only_known_variables_are_shown() -> None:
    (finding,) = packages.check_environment(
        {"CUDA_VISIBLE_DEVICES": "0", "API_TOKEN": "hunter2", "HOME": "/root"}
    )
    assert finding.data == {"variables": {"CUDA_VISIBLE_DEVICES": "0"}}
    assert "hunter2" not in finding.text


@pytest.mark.parametrize(
    ("environ", "keras_json", "expected"),
    [
        ({}, {}, []),
        ({"KERAS_BACKEND": "tensorflow"}, {"backend": "jax"}, []),
        ({}, {"backend": "tensorflow"}, []),
        ({"KERAS_BACKEND": "jax"}, {}, ["Keras is set to the backend jax by KERAS_BACKEND"]),
        ({}, {"backend": "torch"}, ["Keras is set to the backend torch by ~/.keras/keras.json"]),
    ],
)
def test_keras_backend(environ: dict[str, str], keras_json: dict[str, str], expected: list[str]) -> None:
    assert [one.text for one in packages.check_keras_backend(environ, keras_json)] == expected


def test_keras_json_is_read_from_the_home_of_keras(tmp_path) -> None:
    assert packages.read_keras_json({"KERAS_HOME": str(tmp_path)}) == {}
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert packages.read_keras_json({"KERAS_HOME": str(tmp_path)}) == {"backend": "jax"}
    (tmp_path / "keras.json").write_text("[broken")
    assert packages.read_keras_json({"KERAS_HOME": str(tmp_path)}) == {}


def test_worst_status() -> None:
    assert worst_status([]) == "ok"
    mixed = [Finding("a", "warning", "x"), Finding("a", "problem", "y"), Finding("a", "ok", "z")]
    assert worst_status(mixed) == "problem"
    assert worst_status(mixed[:1]) == "warning"
