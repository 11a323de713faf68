"""Published security advisories on the packages that we use, as far as they matter to training.

A small table by hand, not a scanner: for everything installed there are tools like pip-audit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from distxcept.doctor.finding import Finding

AREA = "advisories"


@dataclass(frozen=True)
class Advisory:
    package: str
    vulnerable: tuple[str, ...]
    """Version ranges; the package is affected if it lies in any of them."""
    id: str
    effect: str
    remedy: str

    def affects(self, version: str) -> bool:
        return any(
            SpecifierSet(spec, prereleases=True).contains(Version(version)) for spec in self.vulnerable
        )


_HOROVOD_REMEDY = (
    "no fixed release exists: start jobs with mpirun, `horovodrun --mpi` or `srun --mpi=pmix`, never with "
    "`horovodrun --gloo` or elastic mode on a network that others can reach"
)
_KERAS_REMEDY = "pip install 'keras>=3.15'; until then load no model files from others"

ADVISORIES = (
    Advisory(
        "horovod",
        ("<=0.28.1",),
        "CVE-2024-10190",
        "remote code execution through the rendezvous server of its elastic launcher",
        _HOROVOD_REMEDY,
    ),
    Advisory(
        "horovod",
        ("<=0.28.1",),
        "CVE-2026-31234",
        "remote code execution through the key-value server of its Gloo launcher",
        _HOROVOD_REMEDY,
    ),
    Advisory(
        "keras",
        ("<3.15",),
        "CVE-2026-12570",
        "a crafted .keras file exhausts memory while it is loaded",
        _KERAS_REMEDY,
    ),
    Advisory(
        "keras",
        ("==3.14.0",),
        "CVE-2026-12481",
        "code in a Lambda layer runs although safe mode was not switched off",
        _KERAS_REMEDY,
    ),
    Advisory(
        "keras",
        ("<3.14",),
        "GHSA-hqp4-2352-xf5r",
        "a crafted archive writes outside its folder",
        _KERAS_REMEDY,
    ),
    Advisory(
        "keras",
        (">=3.0,<3.12.1", ">=3.13,<3.13.2"),
        "CVE-2026-1462",
        "a crafted .keras file runs code in spite of safe mode",
        _KERAS_REMEDY,
    ),
    Advisory("keras", ("<3.9",), "CVE-2025-1550", "a crafted .keras file runs code", _KERAS_REMEDY),
    Advisory(
        "pillow",
        ("<12.2",),
        "CVE-2026-40192",
        "a crafted FITS image exhausts memory",
        "pip install 'pillow>=12.2'",
    ),
    Advisory(
        "protobuf",
        ("<5.29.6", ">=6,<6.33.5"),
        "CVE-2026-0994",
        "a crafted JSON message crashes its reader",
        "pip install 'protobuf>=6.33.5'",
    ),
)


def check_advisories(installed: Mapping[str, str]) -> list[Finding]:
    """`installed`: version by package name, as pip spells it in lower case."""
    found = [
        Finding(
            AREA,
            "warning",
            f"{advisory.package} {installed[advisory.package]}: {advisory.effect} ({advisory.id})",
            advisory.remedy,
            {"package": advisory.package, "version": installed[advisory.package], "id": advisory.id},
        )
        for advisory in ADVISORIES
        if advisory.package in installed and advisory.affects(installed[advisory.package])
    ]
    return found or [Finding(AREA, "ok", "no known advisory on the installed core packages")]
