"""A checker of links for a folder of HTML pages: what they load, and where they point to."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if (address := given.get(LOADED.get(tag, ""))) is not None:
            self.loaded.append(address)


def is_elsewhere(address: str) -> bool:
    return urlsplit(address).scheme not in ("", "data") or address.startswith("//")


def find_faults(folder: Path) -> list[str]:
    """Dead links and anchors inside of the folder, and what its pages would load from elsewhere."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    faults = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        faults += [f"{name} loads {address}" for address in page.loaded if is_elsewhere(address)]
        for address in page.links + page.loaded:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            inside = unquote(parts.path)
            root = folder if inside.startswith("/") else path.parent
            target = (root / inside.lstrip("/")).resolve() if inside else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                faults.append(f"{name} links to {address}")
    return faults
