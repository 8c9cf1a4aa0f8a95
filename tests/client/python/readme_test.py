"""The code of client/python/README.md runs as printed there."""

import os
import pathlib
import re


def test_the_tutorial_runs():
    text = pathlib.Path("client/python/README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 3
    names = {"uri": os.environ["OSPREY_URI"]}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
