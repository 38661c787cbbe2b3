# The static CUDA runtime for C programs: the target CudaRuntime::CudaRuntime.
# find_package(CUDAToolkit) would do, but fails on wheels (no libcudart.so) and, before CMake 3.31,
# on CUDA 13. CMAKE_CUDA_COMPILER, if there is one, says where to look first. Static, so that
# nothing but the driver is needed at run time, and a machine without a driver can load the library.
include(${CMAKE_CURRENT_LIST_DIR}/TributaryPaths.cmake)
tributary_cuda_roots(said guessed)
if(CMAKE_CUDA_COMPILER)
    file(REAL_PATH ${CMAKE_CUDA_COMPILER} compiler)
    cmake_path(GET compiler PARENT_PATH compiler)
    cmake_path(GET compiler PARENT_PATH compiler)
    list(PREPEND said ${compiler})
endif()

find_path(CudaRuntime_INCLUDE_DIR cuda_runtime_api.h
          HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${said} PATHS ${guessed}
          PATH_SUFFIXES include targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
find_library(CudaRuntime_LIBRARY NAMES libcudart_static.a
             HINTS ${CudaRuntime_INCLUDE_DIR}/.. ${said} PATHS ${guessed}
             PATH_SUFFIXES lib64 lib targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib)
mark_as_advanced(CudaRuntime_INCLUDE_DIR CudaRuntime_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaRuntime REQUIRED_VARS CudaRuntime_LIBRARY
                                  CudaRuntime_INCLUDE_DIR)
if(CudaRuntime_FOUND AND NOT TARGET CudaRuntime::CudaRuntime)
    find_package(Threads REQUIRED)
    add_library(CudaRuntime::CudaRuntime UNKNOWN IMPORTED)
    set_target_properties(CudaRuntime::CudaRuntime PROPERTIES
        IMPORTED_LOCATION ${CudaRuntime_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${CudaRuntime_INCLUDE_DIR}
        INTERFACE_LINK_LIBRARIES "Threads::Threads;rt;${CMAKE_DL_LIBS}")
endif()
