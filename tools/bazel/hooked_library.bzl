"""hooked_library: a library and its twin NAME_hooked, for tests.

The twin has the same sources, with the macro `define`: it has mutants, and what else its module's test_hooks.h says. A program links one family
or the other.
"""

load("//tools/bazel:cc.bzl", "cc_library")

def _twin_of(label, suffix):
    """//a/b is short for //a/b:b."""
    return label + suffix if ":" in label else label + ":" + label.split("/")[-1] + suffix

def hooked_library(name, define, deps = [], external_deps = [], **kwargs):
    """`deps` have twins, `external_deps` have none."""
    for twin, defines in [
        ("", []),
        ("_hooked", [define]),
    ]:
        cc_library(
            name = name + twin,
            testonly = twin != "",
            defines = defines,
            deps = [_twin_of(dep, twin) for dep in deps] + external_deps + ["@absl"],
            **kwargs
        )
