"""A fuzz target NAME.cc, in two programs: NAME_fuzzer with libFuzzer (tests/fuzz/run builds it, with --config=sanitize), and
NAME_replay_test, which gives it the inputs that are kept and needs no more than any test."""

load("//tools/bazel:cc.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_target(name, deps, data = []):
    cc_library(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        deps = deps + ["//tests/fuzz/support:input"],
        alwayslink = True,
    )
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [name],
    )
    cc_test(
        name = name + "_replay_test",
        size = "small",
        args = [name],
        data = native.glob([
            "corpus/" + name,
            "regressions/" + name + "/*",
        ]) + data,
        deps = [
            name,
            "//tests/fuzz/support:replay",
        ],
    )
