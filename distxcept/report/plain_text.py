"""Text from outside (file names, class names) for a terminal."""


def printable(text: str) -> str:
    """Control characters and undecodable bytes written out: a file's name must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, width: int) -> str:
    """At most `width` characters, the end kept: names differ there."""
    return text if len(text) <= width else f"…{text[-(width - 1) :]}"
