"""For programs in a guest whose clock counts instructions (tools/lab --exact): its clock jumps while it waits for the host's files."""

import pathlib
import re
import subprocess

# A program opens some 40 libraries. For each the host is asked, and the clock jumps by up to a second.
READY_S_MAX = 3600
PROVIDERS = pathlib.Path("/usr/lib/x86_64-linux-gnu/libibverbs")  # of libibverbs, which loads them itself


def read_ahead(programs):
    """All their files, into the guest's memory. A process that waits for one of the host's leaves the CPU idle, and the clock
    jumps from timer to timer: every deadline passes."""
    for program in programs:
        # (It fails for a program without libraries.)
        listing = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=False).stdout
        for path in [program, *re.findall(r"/\S+", listing), *PROVIDERS.iterdir()]:
            pathlib.Path(path).read_bytes()
