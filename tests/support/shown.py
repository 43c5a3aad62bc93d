"""What the pages show to be typed: commands in indented and fenced blocks, Python in fenced ones, and commands in the
text."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]

PROGRAMS = re.compile(
    r"(\$ )?(\. |(ars-\w+|python3?|pip|make|pytest|ray|torchrun|docker|od|source|git|cd|curl|wget|sbatch|conda|uv) )"
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(ars-\w+ [^`\n]+|pytest [^`\n]+|make [^`\n]+)`")


@dataclass(frozen=True)
class Shown:
    """Something that a page shows to be typed."""

    kind: str
    """python, or shell."""
    text: str


def split(line: str) -> list[str] | None:
    """The words of a command without its comment; None if it goes on in the next line."""
    try:
        return shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:
        return None


def shown_blocks(page: Path) -> list[Shown]:
    """The commands, each on one line and without its comment, and the Python of a page, in their order."""
    text = page.read_text()
    found: list[tuple[int, Shown]] = []

    def add_commands(start: int, code: str) -> None:
        lines = code.replace("\\\n", " ").splitlines()
        while lines:
            line = lines.pop(0)
            if PROGRAMS.match(line):
                words = split(line)
                while words is None and lines:  # a program between quotation marks
                    line += "\n" + lines.pop(0)
                    words = split(line)
                found.append((start, Shown("shell", shlex.join(words or []).replace("'|'", "|"))))

    for block in BLOCK.finditer(text):
        if block[1] == "python":
            found.append((block.start(), Shown("python", block[2])))
        elif block[1] in ("", "console", "sh"):
            add_commands(block.start(), block[2])
    without = BLOCK.sub(lambda block: re.sub(r".", "x", block[0]), text)
    for block in re.finditer(r"(?:^ {4}.*\n)+", without, re.M):
        add_commands(block.start(), re.sub(r"^ {4}", "", block[0], flags=re.M).replace("\n  ", "\n"))
    return [shown for _, shown in sorted(found, key=lambda pair: pair[0])]


def inline_commands(page: Path) -> list[str]:
    """The commands in the text of a page."""
    return INLINE.findall(BLOCK.sub("", page.read_text()))
