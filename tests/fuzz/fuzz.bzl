"""A fuzz target NAME.cc, twice: NAME_fuzzer with libFuzzer (tests/fuzz/run builds it, with --config=sanitize), and NAME_replay_test,
which gives it the inputs that are kept and needs no more than any test."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_test")

def fuzz_target(name, deps, data = []):
    cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps + [":input"],
    )
    cc_test(
        name = name + "_replay_test",
        size = "small",
        srcs = [name + ".cc"],
        args = [name],
        data = native.glob([
            "corpus/" + name,
            "regressions/" + name + "/*",
        ]) + data,
        deps = deps + [
            ":input",
            ":replay",
        ],
    )
