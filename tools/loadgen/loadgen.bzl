"""A part of kvbench: NAME.cc and NAME.h, for kvbench and for the tests."""

load("//tools/bazel:cc.bzl", "cc_library")

def part(name, srcs = None, hdrs = None, deps = []):
    cc_library(
        name = name,
        srcs = srcs or [name + ".cc"],
        hdrs = hdrs or [name + ".h"],
        deps = deps + ["@absl"],
    )
