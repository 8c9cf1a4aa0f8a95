"""The type hints: mypy accepts the package, and rejects wrong uses of it."""

import os
import subprocess
import sys

GOOD = """
import osprey

with osprey.Client("shm:///x", deadline=2.5) as client:
    version: int = client.put("k", b"v", if_version=None, ttl=1)
    found = client.get("k")
    if found is not None:
        text: bytes = found.value
    other: osprey.Value | bytes = client.get("k", b"")
    for item in client.scan("k", values=True):
        print(item.key, item.ttl)
"""
WRONG = ['client.put("k", "v")', "client.get(5)", 'client.get("k").value', "client.sacn()"]


def mypy(tmp_path, text):
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}/cache", str(program)]
    environment = {**os.environ, "MYPYPATH": "client/python"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_right_and_wrong_uses(tmp_path):
    good = mypy(tmp_path, GOOD)
    assert good.returncode == 0, good.stdout + good.stderr
    lines = len(GOOD.splitlines())
    wrong = mypy(tmp_path, GOOD + "\n".join(f"    {use}" for use in WRONG))
    for i in range(len(WRONG)):
        assert f":{lines + 1 + i}: error" in wrong.stdout, wrong.stdout
