"""Which network the ranks talk over. On one host: loopback alone, so that nobody else can reach them."""

import ipaddress
import re
import socket
from collections.abc import Iterable

import psutil

from distxcept.errors import ConfigError

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def check_interface(name: str) -> str:
    if not _INTERFACE.fullmatch(name):
        raise ConfigError(f"--interface: {name[:60]!r} is no network interface; see `ip link`")
    return name


def is_local(host: str) -> bool:
    return host in {"localhost", socket.gethostname(), socket.gethostname().split(".")[0]} | _own_addresses()


def loopback() -> str:
    """The name of the loopback interface."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            return name
    return "lo"


def network_towards(hosts: Iterable[str]) -> str | None:
    """The network of ours that the first of these hosts is reached by, such as 10.0.0.0/24; None if that is not known.

    A network, not an interface: other hosts may call theirs by another name.
    """
    for host in hosts:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, 9))  # nothing is sent: this only asks the routing table
                own = probe.getsockname()[0]
        except OSError:
            return None
        return _network_of(own)
    return None


def _network_of(own: str) -> str | None:
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.address == own and address.netmask and not ipaddress.ip_address(own).is_loopback:
                return str(ipaddress.ip_network(f"{own}/{address.netmask}", strict=False))
    return None


def _own_addresses() -> set[str]:
    return {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
