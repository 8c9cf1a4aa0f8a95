"""index_library: a library and its twin NAME_hooked, for tests.

The twin has the same sources, with an observer of every store and with mutants (layout/test_hooks.h). A program links one family or the other.
"""

load("//tools/bazel:cc.bzl", "cc_library")

def index_library(name, hdrs, visibility, srcs = [], deps = [], external_deps = []):
    for twin, defines in [
        ("", []),
        ("_hooked", ["OSPREY_INDEX_TEST_HOOKS"]),
    ]:
        cc_library(
            name = name + twin,
            testonly = twin != "",
            srcs = srcs,
            hdrs = hdrs,
            defines = defines,
            visibility = visibility,
            deps = [dep + twin for dep in deps] + external_deps + ["@absl"],
        )
