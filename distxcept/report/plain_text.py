"""Text from outside (file names, class names, messages of libraries) for a terminal."""


def plain_line(text: str) -> str:
    """One line that a terminal only shows: a file's name may hold escape sequences or undecodable bytes, and must not act
    on the screen."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")


def shortened(text: str, width: int) -> str:
    """At most `width` characters, the end kept: names differ there."""
    return text if len(text) <= width else f"…{text[-(width - 1) :]}"
