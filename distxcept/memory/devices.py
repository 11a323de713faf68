"""Memory of common cards, for plans made on another machine than the one that trains."""

import difflib
import re
from dataclasses import dataclass

from distxcept.errors import ConfigError

# Nominal, in GiB. Cards that come with several sizes have the size in their name.
_CARDS_GIB: dict[str, float] = {
    "GTX 1060 6GB": 6,
    "GTX 1070": 8,
    "GTX 1080": 8,
    "GTX 1080 Ti": 11,
    "GTX 1650": 4,
    "GTX 1660 Ti": 6,
    "TITAN V": 12,
    "TITAN RTX": 24,
    "RTX 2060": 6,
    "RTX 2070": 8,
    "RTX 2080": 8,
    "RTX 2080 Ti": 11,
    "RTX 3050": 8,
    "RTX 3060": 12,
    "RTX 3060 Ti": 8,
    "RTX 3070": 8,
    "RTX 3070 Ti": 8,
    "RTX 3080": 10,
    "RTX 3080 12GB": 12,
    "RTX 3080 Ti": 12,
    "RTX 3090": 24,
    "RTX 3090 Ti": 24,
    "RTX 4060": 8,
    "RTX 4060 Ti": 8,
    "RTX 4060 Ti 16GB": 16,
    "RTX 4070": 12,
    "RTX 4070 Super": 12,
    "RTX 4070 Ti": 12,
    "RTX 4070 Ti Super": 16,
    "RTX 4080": 16,
    "RTX 4080 Super": 16,
    "RTX 4090": 24,
    "RTX 5060 Ti 16GB": 16,
    "RTX 5070": 12,
    "RTX 5070 Ti": 16,
    "RTX 5080": 16,
    "RTX 5090": 32,
    "RTX A2000": 6,
    "RTX A2000 12GB": 12,
    "RTX A4000": 16,
    "RTX A5000": 24,
    "RTX A6000": 48,
    "RTX 4000 Ada": 20,
    "RTX 5000 Ada": 32,
    "RTX 6000 Ada": 48,
    "Quadro RTX 5000": 16,
    "Quadro RTX 6000": 24,
    "Quadro RTX 8000": 48,
    "K80": 12,
    "P100": 16,
    "P40": 24,
    "P4": 8,
    "T4": 16,
    "V100 16GB": 16,
    "V100 32GB": 32,
    "A2": 16,
    "A10": 24,
    "A10G": 24,
    "A16": 16,
    "A30": 24,
    "A40": 48,
    "A100 40GB": 40,
    "A100 80GB": 80,
    "L4": 24,
    "L40": 48,
    "L40S": 48,
    "H100 80GB": 80,
    "H100 NVL": 94,
    "H200": 141,
    "B200": 180,
}


@dataclass(frozen=True)
class Card:
    name: str
    memory_bytes: int


CARDS = tuple(Card(name, round(gib * 2**30)) for name, gib in _CARDS_GIB.items())


def find_card(wanted: str) -> Card:
    """The card of this name; case, spaces and the family's name do not matter. Without its size: the smaller one."""
    for key_of in (_key, _short_key):
        found = [card for card in CARDS if key_of(card.name) == key_of(wanted)]
        found = found or [card for card in CARDS if key_of(_SIZE.sub("", card.name)) == key_of(wanted)]
        if found:
            return min(found, key=lambda card: card.memory_bytes)
    by_key = {_short_key(card.name): card.name for card in CARDS}
    close = [by_key[key] for key in difflib.get_close_matches(_short_key(wanted)[:100], by_key, n=3)]
    hint = f"did you mean {' or '.join(close)}?" if close else "give its memory instead, like --memory 16GiB"
    raise ConfigError(f"--device {wanted[:80]!r} is not in the table of cards; {hint}")


_SIZE = re.compile(r" \d+GB$")
_MAKERS = re.compile(r"nvidia|geforce|tesla|pcie|sxm\d?|gpu")
_FAMILIES = re.compile(r"quadro|rtx|gtx")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", name.lower().replace("gib", "gb")))


def _short_key(name: str) -> str:
    return _FAMILIES.sub("", _key(name))
