"""The type hints: mypy accepts the package, and rejects wrong uses of it."""

import os
import subprocess
import sys

GOOD = """
import osprey
import osprey.aio

with osprey.Client("shm:///x", deadline=2.5) as client:
    version: int = client.put("k", b"v", if_version=None, ttl=1)
    found = client.get("k")
    if found is not None:
        text: bytes = found.value
    other: osprey.Value | bytes = client.get("k", b"")
    for item in client.scan("k", values=True):
        print(item.key, item.ttl)
    with client.allocate(5) as buffer:
        info = client.get_into("k", memoryview(buffer)[:3])
        if info is not None:
            print(info.length + client.put_from("k", buffer))
    client.put_array("a", client.allocate_array((2, 3)), ttl=5)
    array = client.get_array("a")


async def work() -> int:
    async with osprey.aio.Client("shm:///x", deadline=2.5) as client:
        found = await client.get("k")
        async for item in client.scan():
            print(item.key)
        return await client.put("k", b"" if found is None else found.value)


with client:
    pass
"""
WRONG = ['osprey.aio.Client("x").get("k").value', 'client.put("k", "v")', "client.get(5)", 'client.get("k").value', "client.sacn()", "client.allocate('5')", "client.get_array('a').sum()"]


def test_right_and_wrong_uses(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "wrong.py").write_text(GOOD + "\n".join(f"    {use}" for use in WRONG))
    # NumPy's own types take mypy 10 s, and are not the question.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-numpy.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--strict", f"--config-file={tmp_path}/mypy.ini", f"--cache-dir={tmp_path}/cache"]
    environment = {**os.environ, "MYPYPATH": "client/python"}
    files = [str(tmp_path / name) for name in ("good.py", "wrong.py")]
    found = subprocess.run([*command, *files], env=environment, capture_output=True, text=True, check=False).stdout
    errors = [line for line in found.splitlines() if ": error:" in line]
    lines = len(GOOD.splitlines())
    assert [line.partition(": error:")[0] for line in errors] == [f"{tmp_path}/wrong.py:{lines + 1 + i}" for i in range(len(WRONG))], found
