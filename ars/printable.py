"""Text from elsewhere, made safe to print: names of files and classes, and whatever a store or a model says."""

__all__ = ["cell", "printable"]


def printable(text: object) -> str:
    """The text in one line, with escapes for what a terminal might obey or could not show: control characters, line
    breaks, marks that reverse the direction of writing, and halves of surrogate pairs."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


def cell(value: object) -> object:
    """A value for a table of text. Spreadsheets take text that begins like a formula for one, so it gets an apostrophe
    in front."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
