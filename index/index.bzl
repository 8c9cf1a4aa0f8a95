"""index_library: a hooked_library with the mutants of layout/test_hooks.h, and with an observer of every store."""

load("//tools/bazel:hooked_library.bzl", "hooked_library")

def index_library(**kwargs):
    hooked_library(define = "OSPREY_INDEX_TEST_HOOKS", **kwargs)
