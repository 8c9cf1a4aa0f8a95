"""The guest's kernel and initramfs: made once from Debian packages, kept in a cache directory.

    $OSPREY_LAB_CACHE, or $XDG_CACHE_HOME/osprey-lab, or ~/.cache/osprey-lab
      lock                           held while anything below is made
      linux-image-....deb            Debian's kernel: the host's own may lack RDMA, or its modules
      image-KEY/{kernel,initramfs}   KEY: a hash of all that they are made of

An arm64 guest's are made from the packages that lie unpacked in its root.

Files appear under their final names complete, by rename, and never change: readers take no lock.
"""

import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
INIT = HERE / "init"
MODULES = HERE / "modules"
INSTALL_PACKAGES = HERE.parent / "install-packages"
SCRATCH_PREFIX = ".making-"
BUSYBOX = pathlib.Path("/bin/busybox")

KERNEL_METAPACKAGE = "linux-image-amd64"
OLD_IMAGE_AGE_S = 24 * 3600  # nobody is still starting a guest from an image that another replaced a day ago
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # an ordinary user's PATH lacks modprobe and depmod


class ImageError(Exception):
    """Why there is no image; one or more lines for the user."""


def check_packages(purposes):
    """Raises ImageError, naming the command that helps, if a Debian package is missing."""
    listing = subprocess.run([INSTALL_PACKAGES, "--missing", *purposes], stdout=subprocess.PIPE, text=True, check=False)
    missing = listing.stdout.split()
    if missing:
        raise ImageError(f"missing Debian packages: {' '.join(missing)}\n"
                         f"install them as root: apt-get install {' '.join(missing)}\n"
                         f"or run: tools/install-packages {' '.join(purposes)}")


def obtain_of_root(root):
    """Returns (kernel, initramfs) of the system whose files are in `root`, making them if needed."""
    cache = _cache_directory()
    for wanted in ("boot/vmlinuz-*", "lib/modules/*/modules.builtin", "bin/busybox"):
        if not any(root.glob(wanted)):
            raise ImageError(f"{root} has no {wanted}: make such a directory by tools/test.d/arm64-root")
    busybox = root / "bin/busybox"
    directory = cache / _image_name(root.name, busybox)
    if not _is_made(directory):
        with _locked(cache):
            if not directory.is_dir():
                _make_image(cache, root, busybox, directory)
                _remove_old_images(cache, directory)
    return directory / "kernel", directory / "initramfs"


def obtain(refresh=False):
    """Returns (kernel, initramfs), making them if needed. refresh: with the newest kernel apt knows."""
    cache = _cache_directory()
    package = _newest_kernel_package(cache)
    if package and not refresh:
        directory = cache / _image_name(package.name)
        if _is_made(directory):
            return directory / "kernel", directory / "initramfs"
    with _locked(cache):
        package = _newest_kernel_package(cache)
        if refresh or not package:
            package = _download_kernel(cache)
        directory = cache / _image_name(package.name)
        if not directory.is_dir():
            with _scratch(cache) as tree:
                _run(["dpkg-deb", "--extract", package, tree], "unpack Debian's kernel")
                _make_image(cache, tree, BUSYBOX, directory)
            _remove_old_images(cache, directory)
    return directory / "kernel", directory / "initramfs"


def _is_made(directory):
    """Whether the image is there. Then it counts as in use (_remove_old_images)."""
    if not directory.is_dir():
        return False
    with contextlib.suppress(OSError):
        os.utime(directory)
    return True


def _cache_directory():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = pathlib.Path(os.environ.get("OSPREY_LAB_CACHE") or pathlib.Path(base, "osprey-lab"))
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"cannot make the cache directory {cache}: {error.strerror}\n"
                         "name another with OSPREY_LAB_CACHE") from error
    return cache.resolve()


@contextlib.contextmanager
def _locked(cache):
    try:
        lock = open(cache / "lock", "w", encoding="ascii")
    except OSError as error:
        raise ImageError(f"cannot write to the cache directory {cache}: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for abandoned in cache.glob(SCRATCH_PREFIX + "*"):
            shutil.rmtree(abandoned, ignore_errors=True)  # by a lab that was killed
        yield


@contextlib.contextmanager
def _scratch(cache):
    """A directory in the cache, so that what is made in it can be renamed into place."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=cache) as name:
        yield pathlib.Path(name)


def _newest_kernel_package(cache):
    packages = sorted(cache.glob("linux-image-*.deb"), key=lambda path: path.stat().st_mtime)
    return packages[-1] if packages else None


def _image_name(kernel, busybox=BUSYBOX):
    """Changes with the kernel (the name of what it comes from), the init, the list of modules, busybox, and how an image is made."""
    digest = hashlib.sha256(kernel.encode())
    for part in (INIT, MODULES, pathlib.Path(__file__)):
        digest.update(hashlib.sha256(part.read_bytes()).digest())
    digest.update(str(busybox.stat().st_size).encode())
    return f"image-{digest.hexdigest()[:16]}"


def _run(arguments, what, **options):
    environment = dict(os.environ, PATH=SYSTEM_PATH, LC_ALL="C")
    result = subprocess.run(arguments, env=environment, stdin=options.pop("stdin", subprocess.DEVNULL), check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if result.returncode != 0:
        raise ImageError(f"cannot {what}: {' '.join(map(str, arguments))} failed:\n{result.stderr.strip()}")
    return result.stdout


def _download_kernel(cache):
    """The kernel package on which the metapackage depends, as apt's lists have it."""
    depends = _run(["apt-cache", "depends", KERNEL_METAPACKAGE], "find Debian's kernel")
    names = [line.split()[-1] for line in depends.splitlines() if line.strip().startswith("Depends: linux-image-")]
    if not names:
        raise ImageError(f"apt does not know the package {KERNEL_METAPACKAGE}; run as root: apt-get update")
    with _scratch(cache) as scratch:
        try:
            _run(["apt-get", "download", names[0]], "download Debian's kernel", cwd=scratch)
        except ImageError as error:
            raise ImageError(f"{error}\nif apt's lists are old, run as root: apt-get update") from error
        package = next(scratch.glob("linux-image-*.deb"))
        os.utime(package)  # now: apt keeps the mirror's time, and the newest download is to win
        final = cache / package.name
        package.rename(final)
    for other in cache.glob("linux-image-*.deb"):
        if other != final:
            other.unlink()
    return final


def _make_image(cache, tree, busybox, directory):
    """Of the kernel and the modules in `tree`."""
    with _scratch(cache) as scratch:
        image = scratch / "image"
        image.mkdir()
        packed_kernel = next(tree.glob("boot/vmlinuz-*")).read_bytes()
        (image / "kernel").write_bytes(_unpack_kernel(packed_kernel))
        root = scratch / "root"
        _lay_out_root(tree, busybox, root)
        _pack(root, image / "initramfs")
        image.chmod(0o755)
        image.rename(directory)


def _unpack_kernel(bz_image):
    """The ELF kernel inside a bzImage, which QEMU starts directly (PVH): unpacking itself in emulation takes 5 s.

    Field offsets: the kernel's Documentation/x86/boot.rst. A kernel not packed by xz, as arm64's, is returned as it is.
    """
    if bz_image[0x202:0x206] != b"HdrS":
        return bz_image
    setup_sectors = bz_image[0x1f1]
    payload_offset, payload_bytes = struct.unpack_from("<II", bz_image, 0x248)
    start = (setup_sectors + 1) * 512 + payload_offset
    try:
        kernel = lzma.LZMADecompressor().decompress(bz_image[start:start + payload_bytes])
    except lzma.LZMAError:
        return bz_image
    return kernel if kernel.startswith(b"\x7fELF") else bz_image


def _remove_old_images(cache, current):
    for other in cache.glob("image-*"):
        if other != current and other.stat().st_mtime < time.time() - OLD_IMAGE_AGE_S:
            shutil.rmtree(other, ignore_errors=True)


def _lay_out_root(tree, busybox, root):
    for name in ("bin", "sbin", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    shutil.copy(busybox, root / "bin/busybox")
    for applet in _run([BUSYBOX, "--list"], "list busybox's commands").split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "sbin/modprobe").symlink_to("../bin/busybox")  # where the kernel looks when it needs a module
    _copy_modules(tree, root)


def _copy_modules(tree, root):
    """Modules under their own paths, for modprobe; links to the boot modules in loading order, for init."""
    release = next(tree.glob("lib/modules/*")).name
    _run(["depmod", "-b", tree, release], "find the modules' dependencies")
    boot_order = []
    for line in MODULES.read_text(encoding="ascii").splitlines():
        if not line or line.startswith("#"):
            continue
        when, name = line.split()
        for path in _with_dependencies(tree, release, name):
            target = root / path.relative_to(tree)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
            if when == "boot" and path not in boot_order:
                boot_order.append(path)
    for path in boot_order:
        (root / "modules" / path.name).symlink_to("/" / path.relative_to(tree))
    (root / "modules/boot").write_text("".join(f"{path.name}\n" for path in boot_order), encoding="ascii")
    for listing in tree.glob(f"lib/modules/{release}/modules.builtin*"):
        shutil.copy(listing, root / "lib/modules" / release)
    _run(["depmod", "-b", root, release], "list the modules of the initramfs")


def _with_dependencies(tree, release, name):
    """Paths in loading order; none for what is built into the kernel."""
    steps = _run(["modprobe", "-d", tree, "-S", release, "--show-depends", name], f"find the kernel module {name}")
    return [pathlib.Path(line.split()[1]) for line in steps.splitlines() if line.startswith("insmod ")]


def _pack(root, initramfs):
    """Not compressed: the emulated CPU would take longer to unpack it than the host to hand it over."""
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(["cpio", "--create", "--quiet", "--format=newc", "--owner=+0:+0"], cwd=root,
                            input=names.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if packed.returncode != 0:
        raise ImageError(f"cannot pack the initramfs: {packed.stderr.decode()}")
    initramfs.write_bytes(packed.stdout)
