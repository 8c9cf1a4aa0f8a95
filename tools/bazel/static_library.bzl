"""static_library: one archive of all objects that a cc_library consists of, with those of its dependencies, for programs outside Bazel."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _static_library_impl(ctx):
    objects = []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            objects += library.pic_objects or library.objects or fail("%s has no objects" % linker_input.owner)
    archive = ctx.actions.declare_file(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add("qcsD", archive)
    arguments.add_all(objects)
    ctx.actions.run(
        executable = find_cpp_toolchain(ctx).ar_executable,
        arguments = [arguments],
        inputs = objects,
        outputs = [archive],
        mnemonic = "Archive",
    )
    return [DefaultInfo(files = depset([archive]))]

static_library = rule(
    implementation = _static_library_impl,
    attrs = {
        "library": attr.label(mandatory = True, providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
