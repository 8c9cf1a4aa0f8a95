"""wal_library: a library and its twin NAME_hooked, for tests.

The twin has the same sources, with mutants (format/test_hooks.h). A program links one family or the other.
"""

load("//tools/bazel:cc.bzl", "cc_library")

def _twin_of(label, suffix):
    """//a/b is short for //a/b:b."""
    return label + suffix if ":" in label else label + ":" + label.split("/")[-1] + suffix

def wal_library(name, srcs, hdrs, deps = [], external_deps = []):
    for twin, defines in [
        ("", []),
        ("_hooked", ["OSPREY_WAL_TEST_HOOKS"]),
    ]:
        cc_library(
            name = name + twin,
            testonly = twin != "",
            srcs = srcs,
            hdrs = hdrs,
            defines = defines,
            deps = [_twin_of(dep, twin) for dep in deps] + external_deps + ["@absl"],
        )
