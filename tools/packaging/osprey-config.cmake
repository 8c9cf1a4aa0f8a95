# find_package(osprey) makes two targets:
#
#   osprey::osprey  the C library, shared: #include <osprey.h>
#   osprey::client  the C++ client, static, with what it links: #include "client/client.h"
#
# The second is there where the project has the language CXX.

get_filename_component(_osprey_here "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(_osprey_prefix "${_osprey_here}/../../../.." ABSOLUTE)

if(NOT TARGET osprey::osprey)
  add_library(osprey::osprey SHARED IMPORTED)
  set_target_properties(osprey::osprey PROPERTIES
    IMPORTED_LOCATION "${_osprey_prefix}/lib/@MULTIARCH@/libosprey.so.1"
    IMPORTED_SONAME libosprey.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${_osprey_prefix}/include")
endif()

get_property(_osprey_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("CXX" IN_LIST _osprey_languages AND NOT TARGET osprey::client)
  include(CMakeFindDependencyMacro)
  find_dependency(Threads)
  find_dependency(absl)
  set(_osprey_absl absl::any_invocable absl::cord absl::flat_hash_map absl::flat_hash_set absl::span absl::status
    absl::statusor absl::strings absl::str_format absl::time)
  add_library(osprey::client STATIC IMPORTED)
  set_target_properties(osprey::client PROPERTIES
    IMPORTED_LOCATION "${_osprey_prefix}/lib/@MULTIARCH@/libosprey_client.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES CXX
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_INCLUDE_DIRECTORIES "${_osprey_prefix}/include/osprey"
    INTERFACE_LINK_LIBRARIES "${_osprey_absl};rdmacm;ibverbs;sodium;xxhash;Threads::Threads")
  unset(_osprey_absl)
endif()

unset(_osprey_here)
unset(_osprey_prefix)
unset(_osprey_languages)
