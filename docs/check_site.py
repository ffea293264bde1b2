"""Check the built site: every link within it leads somewhere, and nothing is loaded from another host.

python docs/check_site.py [SITE]       exits with 1 and names what is wrong
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[1] / "site"
# What a browser fetches on its own, without a click.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
REMOTE = re.compile(r"^(https?:)?//", re.IGNORECASE)
REMOTE_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//[^)"'\s]+""", re.IGNORECASE)


class Page(HTMLParser):
    """What one page loads, where it links to, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what the tag refers to."""
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given and tag != "meta"}
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "mermaid" in given.get("class", "").split():
            self.loads.append("https://unpkg.com/mermaid")  # the theme would fetch it


def problems(site: Path) -> list[str]:
    """Everything that is wrong, one sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site} holds no pages; build it first: make docs"]
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where} loads {url} from another host" for url in page.loads if REMOTE.match(url)]
        inner = [
            url for url in (*page.loads, *page.links) if url and not urlsplit(url).scheme and not REMOTE.match(url)
        ]
        # The page for addresses that do not exist is served from anywhere, so its links begin at the root.
        found += [f"{where}: {why}" for url in inner if path.name != "404.html" and (why := _broken(path, url, pages))]
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        found += [f"{style.relative_to(site)} loads {url} from another host" for url in REMOTE_STYLE.findall(text)]
    return found


def _broken(page: Path, url: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(url)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return f"the link {url} leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"the link {url} names an anchor that its page does not have"
    return ""


def main() -> int:
    """Check and report."""
    site = (Path(sys.argv[1]) if len(sys.argv) > 1 else SITE).resolve()
    found = problems(site)
    for sentence in found:
        print(sentence, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
