"""The build backend of `pip install .` (PEP 517): Bazel builds the module, and the standard library makes the wheel.

pip calls build_wheel in this folder. Nothing is downloaded, so it works offline and without setuptools.
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = HERE / "osprey"
MODULE = ROOT / "bazel-bin/client/python/osprey/_core.so"
PYTHON = (3, 11)  # whose headers the module is compiled with (tools/bazel/third_party/python.BUILD)
DATE = (1980, 1, 1, 0, 0, 0)  # of each file, so that the same sources make the same wheel


def version():
    text = (ROOT / "server/program/version.h").read_text(encoding="utf-8")
    return re.search(r'kVersion = "([0-9.]+)"', text).group(1)


def build_module():
    if sys.version_info[:2] != PYTHON or sys.implementation.name != "cpython":
        wanted = ".".join(map(str, PYTHON))
        raise SystemExit(f"osprey: this is Python {sys.version.split()[0]}, and the module is built for Debian's {wanted}: use /usr/bin/python3")
    try:
        subprocess.run(["bazel", "build", "//client/python:osprey"], cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SystemExit("osprey: there is no bazel: run tools/install-packages build") from None
    except subprocess.CalledProcessError:
        raise SystemExit("osprey: bazel build //client/python:osprey failed; its error is above") from None


def stripped_module():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "module.so"
        subprocess.run(["strip", "--strip-unneeded", "-o", str(path), str(MODULE)], check=True)
        return path.read_bytes()


def metadata():
    lines = [
        "Metadata-Version: 2.1",
        "Name: osprey",
        f"Version: {version()}",
        "Summary: client of the Osprey key-value store, over RDMA or shared memory",
        f"Requires-Python: =={PYTHON[0]}.{PYTHON[1]}.*",
        "Provides-Extra: arrays",
        "Requires-Dist: numpy; extra == 'arrays'",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text(encoding="utf-8")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and returns its name. The arguments are PEP 517's."""
    build_module()
    tag = f"cp{PYTHON[0]}{PYTHON[1]}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    files = {f"osprey/{path.name}": path.read_bytes() for path in sorted(PACKAGE.iterdir()) if path.is_file()}
    files[f"osprey/_core{sysconfig.get_config_var('EXT_SUFFIX')}"] = stripped_module()
    info = f"osprey-{version()}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: osprey\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-{platform}\n"
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"osprey-{version()}-{tag}-{tag}-{platform}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in files.items():
            entry = zipfile.ZipInfo(file, DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return name


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("osprey: the module is built in the repository: there is no source package")
