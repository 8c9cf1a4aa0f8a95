#!/usr/bin/env python3
"""Prints the files that a reader reaches from a page by its links, the page among them: one a line.

  pages.py PAGE     from the repository's root
"""

import pathlib
import re
import sys


def links_of(page):
    """What the Markdown file links to within the repository, as paths from its root."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)
               if not re.match(r"[a-z]+://", target)}
    root = pathlib.Path.cwd()
    return {(root / page.parent / target).resolve().relative_to(root) for target in targets if target}


def main(args):
    if len(args) != 1:
        sys.exit(__doc__)
    reached, ahead = set(), {pathlib.Path(args[0])}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        if page.suffix == ".md":
            ahead |= links_of(page) - reached
    print(*sorted(reached), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
