"""An mkdocs hook: lists the pages of folders in the navigation, and turns links that leave docs/ into text,
because the site does not contain their targets. A link to a file that does not exist is left unchanged, so
that mkdocs reports it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    docs = Path(config.docs_dir)
    for section in config.nav:
        for title, pages in section.items():
            if isinstance(pages, list) and len(pages) == 1 and str(pages[0]).endswith("/*"):
                found = (docs / pages[0][:-2]).glob("*.md")
                # A folder's README.md is its index, so it comes first.
                ordered = sorted(found, key=lambda path: (path.name != "README.md", path.name))
                section[title] = [str(path.relative_to(docs)) for path in ordered]
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    docs, here = Path(config.docs_dir).resolve(), Path(page.file.abs_src_path).resolve().parent

    def plain(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        inside = target.suffix == ".md" and docs in target.parents
        return link[0] if inside or not target.exists() else link[1]

    return _LINK.sub(plain, markdown)
