"""What `make docs` adds to the pages in docs/: the pages of the repository that lie elsewhere, its notebooks, and the
files that pages link to. So every page has one home, its links work on GitHub and on the site, and the site is whole.
"""

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/cifar10/README.md": "models-of-cifar10.md",
    "examples/own-model.ipynb": "notebook-own-model.md",
    "examples/explore-a-run.ipynb": "notebook-explore-a-run.md",
}
"""Pages of the site, by where their text is in the repository."""
FILES = "files"
"""The folder of the site for other files of the repository that pages link to."""

NAMED = re.compile(r"\[(?:docs/)?([\w-]+\.md)(, [^\]]*)?\]\(")
"""A link whose text is the name of a page, as on GitHub. The site has the page's title there."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for source, name in PAGES.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            text, pictures = notebook_page(text, Path(name).stem)
            for picture, content in pictures.items():
                files.append(File.generated(config, picture, content=content))
        texts[source] = text
        files.append(File.generated(config, name, content=text))
    for source, text in texts.items():
        for link in LINK.findall(text):
            path = target(source, link)
            if is_linked_file(path):
                files.append(File.generated(config, f"{FILES}/{path}", abs_src_path=str(REPOSITORY / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    sources = {name: source for source, name in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    titles = find_titles(config.nav)

    def name(link: re.Match[str]) -> str:
        title = titles.get(PAGES.get(link[1], link[1]))
        return link[0] if title is None else f"[{title}{link[2] or ''}]("

    return LINK.sub(lambda link: place(source, link[0]), NAMED.sub(name, markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search, and make no headings of the empty corners of tables, for people who do not see the page."""
    search = 'data-md-component="search" role="dialog"'
    return re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", output.replace(search, f'{search} aria-label="Search"'))


def find_titles(nav: Any) -> dict[str, str]:
    """The titles of pages in the navigation, by their files."""
    if isinstance(nav, list):
        return {file: title for entry in nav for file, title in find_titles(entry).items()}
    return {
        file: title
        for name, value in nav.items()
        for file, title in (find_titles(value) if isinstance(value, list) else {value: name}).items()
    }


def target(source: str, link: str) -> str:
    """What a link in a file of the repository points to, as a path in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def is_linked_file(path: str) -> bool:
    """Whether this is a file that the site must bring: one of the repository, outside of docs/, and not a page."""
    return path not in PAGES and not path.startswith(("docs/", "../")) and (REPOSITORY / path).is_file()


def place(source: str, link: str) -> str:
    """The link on the site. The pages of the site are all in one folder."""
    path = target(source, link)
    if path in PAGES:
        return PAGES[path]
    if is_linked_file(path):
        return f"{FILES}/{path}"
    return path.removeprefix("docs/") if path.startswith("docs/") else link


def notebook_page(text: str, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook, with the output that it has in the repository, as Markdown, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                described = cell["metadata"].get("alt", "What the cell above draws")
                parts.append(f"![{described}]({picture})")
            elif shown := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts) + "\n", pictures
