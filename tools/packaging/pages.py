#!/usr/bin/env python3
"""The pages that the Debian package installs.

  pages.py list PAGE      the files that a reader reaches from a page by its links, the page among them: one a line
  pages.py install FILE   that file as it is installed: programs have the names that they have there

From the repository's root.
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


# What the package installs, by its name in the repository.
PROGRAM = re.compile(r"bazel-bin/(?:server|tools|tools/bench[.]d|tests/benchmarks)/([a-z_]+)\b")
LIBRARY = [("bazel-bin/client/libosprey.so", "libosprey.so"), (" (`bazel build //client:libosprey`)", ""),
           ("-Lbazel-bin/client ", ""), ("LD_LIBRARY_PATH=bazel-bin/client ", ""), (" -I. ", " "),
           ('#include "client/osprey.h"', "#include <osprey.h>")]


def installed(text):
    """A page without what is only in the repository: how to build from it, and rows of tables that name programs which are not installed."""
    text = re.sub(r"^## Build from the repository\n.*?(?=^## )", "", text, flags=re.M | re.S)
    text = PROGRAM.sub(r"\1", text)
    for here, there in LIBRARY:
        text = text.replace(here, there)
    return "".join(line for line in text.splitlines(keepends=True) if not re.match(r"\| `bazel-bin/", line))


def list_reached(start):
    reached, ahead = set(), {pathlib.Path(start)}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        if page.suffix == ".md":
            ahead |= links_of(page) - reached
    print(*sorted(reached), sep="\n")


def main(args):
    if len(args) != 2 or args[0] not in ("list", "install"):
        sys.exit(__doc__)
    if args[0] == "list":
        list_reached(args[1])
        return
    bytes_of_file = pathlib.Path(args[1]).read_bytes()
    is_page = args[1].endswith(".md")
    sys.stdout.buffer.write(installed(bytes_of_file.decode()).encode() if is_page else bytes_of_file)


if __name__ == "__main__":
    main(sys.argv[1:])
