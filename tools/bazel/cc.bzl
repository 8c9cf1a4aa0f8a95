"""cc_library, cc_binary and cc_test that compile all .cc files of a target as one translation unit, with precompiled headers of libraries.

Headers take most of the time that a file of this project takes to compile: a target of 15 files compiles in a quarter of the time as one
translation unit, and a test in half of the time with precompiled headers (precompiled.bzl). The files must not declare the same name twice, also
in anonymous namespaces.

`--//tools/bazel:one_unit=false` compiles each file by itself, without precompiled headers. It shows a missing #include, and builds faster after a
change of one file.
"""

load("@rules_cc//cc:defs.bzl", native_binary = "cc_binary", native_library = "cc_library", native_test = "cc_test")

Setting = provider(fields = ["value"])

def _setting_impl(ctx):
    return Setting(value = ctx.build_setting_value)

bool_setting = rule(
    implementation = _setting_impl,
    build_setting = config.bool(flag = True),
)

def _unit_impl(ctx):
    sources = [file for file in ctx.files.srcs if file.extension == "cc"]
    rest = [file for file in ctx.files.srcs if file.extension != "cc"]
    if len(sources) < 2 or not ctx.attr._one_unit[Setting].value:
        return [DefaultInfo(files = depset(ctx.files.srcs)), CcInfo()]
    unit = ctx.actions.declare_file(ctx.attr.unit)
    # From the root of the sources: in other workspaces, which use //client, paths begin with ../osprey/.
    start = "../%s/" % ctx.label.workspace_name
    paths = [file.short_path[len(start):] if file.short_path.startswith(start) else file.short_path for file in sources]
    ctx.actions.write(unit, "".join(["#include \"%s\"\n" % path for path in paths]))
    return [
        DefaultInfo(files = depset([unit] + rest)),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(sources))),
    ]

_unit = rule(
    implementation = _unit_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = True),
        "unit": attr.string(),
        "_one_unit": attr.label(default = "//tools/bazel:one_unit"),
    },
)

# (_FORTIFY_SOURCE, which Bazel defines, wants optimisation.)
UNOPTIMISED = ["-O0", "-U_FORTIFY_SOURCE"]

# Of tests without `optimised`. No fuzz target calls what they say.
TEST_COPTS = UNOPTIMISED + select({
    "//tools/bazel:sanitized": ["-fno-sanitize=fuzzer-no-link"],
    "//conditions:default": [],
})

def _flags(headers):
    repository = native.repository_name().strip("@")
    folder = "external/%s/" % repository if repository else ""
    return ["-include", "$(BINDIR)/%stools/bazel/%s.h" % (folder, headers)]

def _headers(is_test):
    """The flags of a target that includes precompiled headers, and the target that has them.

    Tools wait for people and files: with sanitizers they are not optimised, which takes half of the time. (Bulk formats are fuzzed.)
    """
    package = native.package_name()
    if is_test:
        return _flags("test_headers"), ["//tools/bazel:test_headers"]
    if package.split("/")[0] != "tools" or package == "tools/bulk":
        return _flags("library_headers"), ["//tools/bazel:library_headers"]
    return select({
        "//tools/bazel:sanitized": UNOPTIMISED + _flags("unoptimised_headers"),
        "//conditions:default": _flags("library_headers"),
    }), select({
        "//tools/bazel:sanitized": ["//tools/bazel:unoptimised_headers"],
        "//conditions:default": ["//tools/bazel:library_headers"],
    })

def _with_unit(rule, name, srcs, deps, testonly = None, copts = [], is_unoptimised_test = False, **kwargs):
    if not [source for source in srcs if source.endswith(".c")] and srcs:
        flags, headers = _headers(is_unoptimised_test)
        kwargs["copts"], deps = copts + flags, deps + headers
    else:
        kwargs["copts"] = copts
    sources = [source for source in srcs if not source.endswith((".h", ".c"))]
    if len(sources) < 2 and not (sources and sources[0].endswith("_sources")):
        rule(name = name, srcs = srcs, deps = deps, testonly = testonly, **kwargs)
        return
    unit = name + ".unit"
    _unit(
        name = unit,
        testonly = testonly,
        srcs = srcs,
        tags = ["manual"],
        unit = unit + ".cc",
    )
    rule(name = name, srcs = [unit], deps = deps + [unit], testonly = testonly, **kwargs)

def cc_library(name, srcs = [], deps = [], **kwargs):
    _with_unit(native_library, name, srcs, deps, **kwargs)

def cc_binary(name, srcs = [], deps = [], **kwargs):
    _with_unit(native_binary, name, srcs, deps, **kwargs)

def cc_test(name, srcs = [], deps = [], optimised = False, **kwargs):
    """What tests say themselves is not worth optimising: they compile in half of the time without. `optimised`: it is a loop around inline functions."""
    if not optimised:
        kwargs["copts"] = kwargs.get("copts", []) + TEST_COPTS

    # Tests may use what only tests may use.
    _with_unit(native_test, name, srcs, deps, testonly = kwargs.pop("testonly", True), is_unoptimised_test = not optimised, **kwargs)
