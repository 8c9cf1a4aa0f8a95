"""osprey_repositories: what //client needs, for the WORKSPACE of this project and of projects that use it (client/README.md)."""

# System libraries: one repository a library, its label @NAME (the library) or @NAME//:PART.
_LIBRARIES = [
    "absl",
    "benchmark",
    "curl",
    "edit",
    "gflags",
    "gtest",
    "ibverbs",
    "jemalloc",
    "json",
    "prometheus",
    "python",
    "rdmacm",
    "sodium",
    "spdlog",
    "xxhash",
]

def _local_repository(name, path):
    if not native.existing_rule(name):
        native.local_repository(name = name, path = path)

def osprey_repositories(path = ""):
    """Repositories that the workspace has already stay as they are.

    Args:
      path: where Osprey's sources are, as in the local_repository "osprey"; "" in Osprey's own WORKSPACE.
    """
    prefix = path + "/" if path else ""

    # Bazel loads these three whether or not they are used. Debian's own rules_cc asks for a newer Bazel than Debian's,
    # so a shim re-exports the native rules.
    _local_repository("rules_cc", prefix + "tools/bazel/rules_cc")
    _local_repository("remote_coverage_tools", prefix + "tools/bazel/coverage")
    _local_repository("rules_java", "/usr/share/bazel/rules/java")

    for library in _LIBRARIES:
        if not native.existing_rule(library):
            native.new_local_repository(
                name = library,
                build_file = "@osprey//tools/bazel/third_party:%s.BUILD" % library,
                path = "/usr",
            )
