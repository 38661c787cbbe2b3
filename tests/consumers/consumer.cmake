# A program outside of the tree: configured, built and run. KIND says how it gets Tributary:
#   install         puts the build at BUILD into PREFIX, and then moves it (a package must not care)
#   install_static  builds a static library out of SOURCE first, but for the CUDA kernels: KERNELS are
#                   the objects of the tested build
#   install_release the same, a shared one without tests, as the preset release: optimized as a whole
#   find_package, pkg_config, add_subdirectory
#   conformance     the suite of the host backend, on the shared library
#   cargo           a crate of its own, by the feature `system`; cargo_folder: by TRIBUTARY_LIB_DIR
# WORK is a folder for this test; CACHE a file with the settings of the tested build, CONFIG its
# build type.
cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Where tributary.pc of PREFIX is, and the libraries.
macro(find_description)
    find_program(pkg_config NAMES pkg-config pkgconf)
    if(NOT pkg_config)
        skip("pkg-config is not installed")
        return()
    endif()
    file(GLOB_RECURSE description ${PREFIX}/tributary.pc)
    cmake_path(GET description PARENT_PATH folder)
    cmake_path(GET folder PARENT_PATH libraries)
    set(ENV{PKG_CONFIG_PATH} ${folder})
endmacro()

function(skip why)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
endfunction()

set(here ${CMAKE_CURRENT_LIST_DIR})
set(fresh ${WORK}/${KIND})
file(REMOVE_RECURSE ${fresh})

if(KIND MATCHES "^install")
    if(NOT KIND STREQUAL "install")
        set(BUILD ${fresh})
        set(shared OFF)
        if(KIND STREQUAL "install_release")
            set(shared ON)
        endif()
        string(REPLACE ";" "\\;" KERNELS "${KERNELS}") # run() takes a list apart
        run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -C ${CACHE} -DBUILD_SHARED_LIBS=${shared}
            "-DTRIBUTARY_COMPILED_KERNELS=${KERNELS}" -DTRIBUTARY_TESTS=OFF -DTRIBUTARY_BENCHES=OFF)
        run(${CMAKE_COMMAND} --build ${BUILD} --config ${CONFIG} --parallel 2)
    endif()
    file(REMOVE_RECURSE ${PREFIX} ${PREFIX}-first)
    run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${PREFIX}-first)
    file(RENAME ${PREFIX}-first ${PREFIX})

elseif(KIND STREQUAL "find_package")
    run(${CMAKE_COMMAND} -S ${here}/find_package -B ${fresh} -C ${CACHE} -DCMAKE_PREFIX_PATH=${PREFIX})
    run(${CMAKE_COMMAND} --build ${fresh} --config ${CONFIG})
    run(${fresh}/consumer)
    foreach(wrong 0.0 0.2)
        execute_process(COMMAND ${CMAKE_COMMAND} -S ${here}/find_package -B ${fresh} -DWANTED=${wrong}
                        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said)
        if(NOT failed OR NOT said MATCHES "not accepted")
            message(FATAL_ERROR "version ${wrong} was not refused: ${said}")
        endif()
    endforeach()

elseif(KIND STREQUAL "add_subdirectory")
    # The sources as their tarball has them.
    find_program(git git)
    if(git AND EXISTS ${SOURCE}/.git)
        run(${SOURCE}/.ci/dist ${fresh})
        file(GLOB tarball ${fresh}/tributary-*.tar.gz)
        file(ARCHIVE_EXTRACT INPUT ${tarball} DESTINATION ${fresh}/sources)
        file(GLOB SOURCE ${fresh}/sources/tributary-*)
    endif()
    # Without the nccl backend: how that is found does not depend on who asks.
    run(${CMAKE_COMMAND} -S ${here}/add_subdirectory -B ${fresh} -C ${CACHE}
        -DTRIBUTARY_SOURCE=${SOURCE} -DTRIBUTARY_NCCL=OFF)
    run(${CMAKE_COMMAND} --build ${fresh} --config ${CONFIG} --parallel 2)
    run(${fresh}/consumer)

elseif(KIND STREQUAL "pkg_config")
    find_description()
    execute_process(COMMAND ${pkg_config} ${PKG_CONFIG_OPTIONS} --cflags --libs tributary
                    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    separate_arguments(options UNIX_COMMAND "${C_FLAGS}")
    file(MAKE_DIRECTORY ${fresh})
    # Found again by the run path, as the README says.
    run(${CC} ${options} -o ${fresh}/consumer ${here}/main.c ${flags} -Wl,-rpath,${libraries})
    if(PKG_CONFIG_OPTIONS MATCHES "--static")
        set(ENV{LD_LIBRARY_PATH} "${RUN_PATH}:$ENV{LD_LIBRARY_PATH}")
    endif()
    run(${fresh}/consumer)

elseif(KIND STREQUAL "conformance")
    # The suite of the host backend, which calls nothing but the API.
    file(GLOB_RECURSE header ${PREFIX}/tributary.h)
    file(GLOB_RECURSE library ${PREFIX}/libtributary.so)
    cmake_path(GET header PARENT_PATH include)
    cmake_path(GET library PARENT_PATH libraries)
    file(GLOB suite ${SOURCE}/tests/conformance/backend/*.c)
    list(FILTER suite EXCLUDE REGEX "_nccl_test[.]c$")
    list(APPEND suite ${SOURCE}/tests/conformance/reference.c ${SOURCE}/tests/team.c
         ${SOURCE}/tests/check.c)
    separate_arguments(options UNIX_COMMAND "${C_FLAGS}")
    file(MAKE_DIRECTORY ${fresh})
    run(${CC} ${options} -std=c11 -O1 -I${include} -I${SOURCE} -o ${fresh}/suite ${suite} ${library}
        -Wl,-rpath,${libraries} -lpthread -lm)
    set(ENV{TRIB_TEST_QUICK} 1)
    run(${fresh}/suite)

elseif(KIND MATCHES "^cargo")
    find_description()
    find_program(cargo cargo HINTS $ENV{HOME}/.cargo/bin)
    if(NOT cargo)
        skip("cargo is not installed")
        return()
    endif()
    cmake_path(GET cargo PARENT_PATH tools)
    set(ENV{PATH} "${tools}:$ENV{PATH}")
    set(features "\"system\"")
    if(KIND STREQUAL "cargo_folder")
        set(features "")
        set(ENV{TRIBUTARY_LIB_DIR} ${libraries})
    endif()
    file(CONFIGURE OUTPUT ${fresh}/Cargo.toml @ONLY CONTENT [[
[package]
name = "consumer"
version = "0.0.0"
edition = "2021"
[dependencies]
tributary = { package = "tributary-ccl", path = "@SOURCE@/rust/tributary", features = [@features@] }
[workspace]
]])
    # The quick start of the README, linked as the installation has the library, and found by cargo.
    file(MAKE_DIRECTORY ${fresh}/src)
    file(COPY_FILE ${SOURCE}/rust/tributary/examples/quickstart.rs ${fresh}/src/main.rs)
    set(ENV{CARGO_TARGET_DIR} ${fresh}/target)
    set(ENV{CMAKE} ${here}/no-cmake-is-run)
    execute_process(COMMAND ${cargo} run --offline WORKING_DIRECTORY ${fresh} OUTPUT_VARIABLE said
                    COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
    if(NOT said MATCHES "rank 3 has 1.5")
        message(FATAL_ERROR "the quick start said: ${said}")
    endif()
    execute_process(COMMAND ldd ${fresh}/target/debug/consumer OUTPUT_VARIABLE needed)
    string(FIND "${needed}" libtributary at)
    if((SHARED AND at EQUAL -1) OR (NOT SHARED AND NOT at EQUAL -1))
        message(FATAL_ERROR "shared: ${SHARED}, and the program needs ${needed}")
    endif()
endif()
