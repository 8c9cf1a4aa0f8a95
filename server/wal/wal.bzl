"""wal_library: a hooked_library with the mutants of format/test_hooks.h."""

load("//tools/bazel:hooked_library.bzl", "hooked_library")

def wal_library(**kwargs):
    hooked_library(define = "OSPREY_WAL_TEST_HOOKS", **kwargs)
