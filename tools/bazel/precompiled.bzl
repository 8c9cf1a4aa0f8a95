"""precompiled: the headers of libraries, compiled once for all targets (cc.bzl), for each build and level of optimisation.

Reading them takes half of the time that a test takes to compile.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//tools/bazel:cc.bzl", "Setting")

def _precompiled_impl(ctx):
    # Compilers find NAME.h.gch beside the header that -include names.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    toolchain = find_cpp_toolchain(ctx)
    warns = ctx.attr.is_optimised and toolchain.compiler != "clang" and "-w" not in ctx.fragments.cpp.copts
    if not ctx.attr._one_unit[Setting].value or warns:
        ctx.actions.write(header, "")
        return [CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([header])))]
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")

    # What a cache returns has another time.
    timeless = ["-Xclang", "-fno-pch-timestamp"] if toolchain.compiler == "clang" else []
    ctx.actions.run_shell(
        inputs = ctx.files.lists,
        outputs = [header],
        command = "cat %s > '%s'" % (" ".join(["'%s'" % file.path for file in ctx.files.lists]), header.path),
    )

    # The packages whose headers these are: the same packages, the same file, and nothing is compiled again. (Other
    # workspaces, which use //client, have no such status.)
    versions = ctx.actions.declare_file(ctx.label.name + ".versions")
    ctx.actions.run_shell(
        inputs = [ctx.info_file],
        outputs = [versions],
        command = "grep ^STABLE_HEADERS '%s' > '%s'%s" %
                  (ctx.info_file.path, versions.path, " || true" if ctx.label.workspace_name else ""),
    )

    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + timeless + ["-x", "c++-header"],
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = ACTION_NAMES.cpp_compile),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
            variables = variables,
        ),
        inputs = depset([header, versions], transitive = [toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "Precompile",
        progress_message = "Compiling %s" % header.short_path,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([header, compiled])))]

precompiled = rule(
    implementation = _precompiled_impl,
    attrs = {
        "lists": attr.label_list(allow_files = [".h"], mandatory = True, doc = "what is to be included"),
        "is_optimised": attr.bool(doc = "gcc then warns of what it inlines from precompiled headers of libraries: it gets none, but with -w"),
        "copts": attr.string_list(doc = "of the targets that include it, beside --copt and --cxxopt"),
        "_one_unit": attr.label(default = "//tools/bazel:one_unit"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
