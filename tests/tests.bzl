"""Tests and their parts in a few lines each. What they leave out is the same for all: the file is called as the target is, and GoogleTest and
Abseil are there.

The tests of a module form few programs, whose files are compiled as one unit (tools/bazel/cc.bzl). `--test_filter=SuiteName.*` runs a part."""

load("//tools/bazel:cc.bzl", "cc_binary", "cc_library", "cc_test")

LAB_ONLY = [
    "lab",
    "manual",
]

INDEX = [
    "//index/reader",
    "//index/writer",
    "//tests/index:index_test_util",
]

# With hooks: stores are observed, and mutants run.
INDEX_HOOKED = [
    "//index/reader:reader_hooked",
    "//index/writer:writer_hooked",
    "//tests/index:index_test_util",
]

def osprey_test(name, srcs = None, deps = [], size = "small", **kwargs):
    """NAME.cc with GoogleTest, GoogleMock and their main (which gives way to one of the test's own)."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        deps = deps + [
            "@absl",
            "@gtest//:gmock",
            "@gtest//:gtest_main",
        ],
        **kwargs
    )

def process_test(name, data = [], deps = [], size = "medium", **kwargs):
    """A test that starts a kvserver, and what else is in `data`. Over shared memory; with the tag "lab" in the lab too, over verbs."""
    osprey_test(
        name = name,
        size = size,
        data = data + ["//server:kvserver"],
        deps = deps + [
            "//tests/support:subprocess",
            "//client",
        ],
        **kwargs
    )

def test_library(name, srcs = None, hdrs = None, deps = [], **kwargs):
    """NAME.cc and NAME.h, for several tests. `srcs = []` if the header is all."""
    cc_library(
        name = name,
        testonly = True,
        srcs = [name + ".cc"] if srcs == None else srcs,
        hdrs = hdrs or [name + ".h"],
        deps = deps + ["@absl"],
        **kwargs
    )

def test_program(name, srcs = None, deps = [], **kwargs):
    """A benchmark, or a program that a script of tests/ runs: NAME.cc."""
    cc_binary(
        name = name,
        testonly = True,
        srcs = srcs or [name + ".cc"],
        deps = deps + ["@absl"],
        **kwargs
    )
