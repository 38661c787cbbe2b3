# Decides whether profilers can be told the names of calls: NVTX is a header of the CUDA toolkit that
# needs neither CUDA nor a library. Sets TRIBUTARY_WITH_NVTX and TRIBUTARY_NVTX_WHY (for the
# summary). -DNVTX_INCLUDE_DIR=OFF: without it in any case.
include(${CMAKE_CURRENT_LIST_DIR}/TributaryPaths.cmake)
tributary_cuda_roots(said guessed)
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
          HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${said} PATHS ${guessed}
          PATH_SUFFIXES include targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
mark_as_advanced(NVTX_INCLUDE_DIR)

set(TRIBUTARY_WITH_NVTX OFF)
if(NVTX_INCLUDE_DIR)
    set(TRIBUTARY_WITH_NVTX ON)
    set(TRIBUTARY_NVTX_WHY "built: ${NVTX_INCLUDE_DIR}/nvtx3")
elseif(DEFINED CACHE{NVTX_INCLUDE_DIR} AND NOT NVTX_INCLUDE_DIR MATCHES "NOTFOUND$")
    set(TRIBUTARY_NVTX_WHY "not built: switched off (NVTX_INCLUDE_DIR=${NVTX_INCLUDE_DIR})")
else()
    set(TRIBUTARY_NVTX_WHY "not built: nvtx3/nvToolsExt.h not found (set CUDA_HOME)")
endif()
