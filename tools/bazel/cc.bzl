"""cc_library, cc_binary and cc_test that compile all .cc files of a target as one translation unit.

Headers take most of the time that a file of this project takes to compile: a target of 15 files compiles in a quarter of the time as one
translation unit. The files must not declare the same name twice, also in anonymous namespaces.

`--//tools/bazel:one_unit=false` compiles each file by itself. It shows a missing #include, and builds faster after a change of one file.
"""

load("@rules_cc//cc:defs.bzl", native_binary = "cc_binary", native_library = "cc_library", native_test = "cc_test")

_Setting = provider(fields = ["value"])

def _setting_impl(ctx):
    return _Setting(value = ctx.build_setting_value)

bool_setting = rule(
    implementation = _setting_impl,
    build_setting = config.bool(flag = True),
)

def _unit_impl(ctx):
    sources = [file for file in ctx.files.srcs if file.extension == "cc"]
    rest = [file for file in ctx.files.srcs if file.extension != "cc"]
    if len(sources) < 2 or not ctx.attr._one_unit[_Setting].value:
        return [DefaultInfo(files = depset(ctx.files.srcs)), CcInfo()]
    unit = ctx.actions.declare_file(ctx.attr.unit)
    ctx.actions.write(unit, "".join(["#include \"%s\"\n" % file.short_path for file in sources]))
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

def _with_unit(rule, name, srcs, deps, testonly = None, **kwargs):
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

def cc_test(name, srcs = [], deps = [], **kwargs):
    # Tests may use what only tests may use.
    _with_unit(native_test, name, srcs, deps, testonly = kwargs.pop("testonly", True), **kwargs)
