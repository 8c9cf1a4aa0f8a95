"""client/python/examples, each process by itself."""

import os
import subprocess
import sys


def run(name, *words):
    command = [sys.executable, f"client/python/examples/{name}", os.environ["OSPREY_URI"], *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_a_second_process_finds_the_blocks_of_a_first():
    first = run("kv_cache.py", "a b c d e f g h i j k l m")
    assert first.startswith("blocks found=0 computed=3 sum=")
    assert run("kv_cache.py", "a b c d e f g h i j k l x").split("sum=") == ["blocks found=3 computed=0 ", first.split("sum=")[1]]
    assert run("kv_cache.py", "a b c d e f g h x j k l").startswith("blocks found=2 computed=1 ")
    # The first block differs, so no later one counts.
    assert run("kv_cache.py", "x b c d e f g h i j k l").startswith("blocks found=0 computed=3 ")


def test_rows_of_a_batch_come_in_its_order():
    assert run("feature_rows.py", "load", "2500") == "rows=2500\n"
    assert run("feature_rows.py", "predict", "7", "0", "9999", "2499") == (
        "row=7 score=7.492\nrow=0 score=0.492\nrow=9999 score=0.000\nrow=2499 score=2499.492\n")
