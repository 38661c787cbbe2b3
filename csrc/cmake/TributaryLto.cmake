# Decides whether the library is optimized as a whole, at link time, from TRIBUTARY_LTO. Sets
# TRIBUTARY_WITH_LTO and TRIBUTARY_LTO_WHY (for the summary), anew in each configuration: the option
# keeps what the user said, not what followed from the other options then.
#
# The path of a call goes through many small functions of several rooms. Optimized as a whole, the
# shared library runs a third fewer instructions in it, on a third fewer lines of the cache. Tests put
# functions of their own in place of the library's, which would be inlined; and whoever links a static
# library may have another compiler, which cannot read the objects.
set(TRIBUTARY_WITH_LTO OFF)
set(forbids)
if(NOT BUILD_SHARED_LIBS)
    set(forbids "the library is static: set BUILD_SHARED_LIBS=ON")
elseif(TRIBUTARY_TESTS)
    set(forbids "tests replace functions of the library: set TRIBUTARY_TESTS=OFF")
elseif(TRIBUTARY_SANITIZE)
    set(forbids "sanitizers see the library's functions: unset TRIBUTARY_SANITIZE")
endif()
if(TRIBUTARY_LTO STREQUAL "AUTO")
    if(NOT forbids AND NOT PROJECT_IS_TOP_LEVEL)
        set(forbids "another project builds it")
    elseif(NOT forbids AND CMAKE_BUILD_TYPE STREQUAL "Debug")
        set(forbids "the build is for debugging")
    endif()
elseif(TRIBUTARY_LTO AND forbids)
    message(FATAL_ERROR "TRIBUTARY_LTO=${TRIBUTARY_LTO}, but ${forbids}, or TRIBUTARY_LTO=AUTO")
endif()

if(NOT TRIBUTARY_LTO)
    set(TRIBUTARY_LTO_WHY "no: switched off (TRIBUTARY_LTO=${TRIBUTARY_LTO})")
elseif(forbids)
    set(TRIBUTARY_LTO_WHY "no: ${forbids}")
else()
    include(CheckIPOSupported)
    check_ipo_supported(RESULT TRIBUTARY_WITH_LTO OUTPUT said LANGUAGES C)
    set(TRIBUTARY_LTO_WHY "yes")
    if(NOT TRIBUTARY_WITH_LTO AND TRIBUTARY_LTO STREQUAL "AUTO")
        set(TRIBUTARY_LTO_WHY "no: the compiler cannot")
    elseif(NOT TRIBUTARY_WITH_LTO)
        message(FATAL_ERROR "TRIBUTARY_LTO=${TRIBUTARY_LTO}, but the compiler cannot: ${said}")
    endif()
endif()

# tributary_optimize(TARGET): as decided. Otherwise the target stays what CMake makes of it, of
# CMAKE_INTERPROCEDURAL_OPTIMIZATION for one.
function(tributary_optimize target)
    if(TRIBUTARY_WITH_LTO)
        set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
    endif()
endfunction()
