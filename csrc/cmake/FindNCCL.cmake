# NCCL: the target NCCL::NCCL, NCCL_VERSION, and the cache entries NCCL_INCLUDE_DIR, NCCL_LIBRARY.
# Linked by its full path: Python wheels bring libnccl.so.2 and no libnccl.so.
include(${CMAKE_CURRENT_LIST_DIR}/TributaryPaths.cmake)
tributary_nccl_roots(said guessed)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${said} PATHS ${guessed} PATH_SUFFIXES include)
# The library that belongs to the header comes first.
cmake_path(GET NCCL_INCLUDE_DIR PARENT_PATH beside)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
             HINTS ${beside} ${said} PATHS ${guessed}
             PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
           NCCL_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
                                  VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
