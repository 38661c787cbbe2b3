# A program outside of the tree: configured, built and run. KIND says how it gets Tributary:
#   install         puts the build at BUILD into PREFIX, and then moves it (a package must not care)
#   install_static  builds a static library out of SOURCE first, but for the CUDA kernels: KERNELS are the
#                   objects of the tested build
#   find_package, pkg_config, add_subdirectory
# WORK is a folder for this test; CACHE a file with the settings of the tested build, CONFIG its build
# type.
cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(here ${CMAKE_CURRENT_LIST_DIR})
set(fresh ${WORK}/${KIND})
file(REMOVE_RECURSE ${fresh})

if(KIND STREQUAL "install" OR KIND STREQUAL "install_static")
    if(KIND STREQUAL "install_static")
        set(BUILD ${fresh})
        string(REPLACE ";" "\\;" KERNELS "${KERNELS}") # run() takes a list apart
        run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -C ${CACHE} -DBUILD_SHARED_LIBS=OFF
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

elseif(KIND STREQUAL "add_subdirectory")
    # Without the nccl backend: how that is found does not depend on who asks.
    run(${CMAKE_COMMAND} -S ${here}/add_subdirectory -B ${fresh} -C ${CACHE}
        -DTRIBUTARY_SOURCE=${SOURCE} -DTRIBUTARY_NCCL=OFF)
    run(${CMAKE_COMMAND} --build ${fresh} --config ${CONFIG} --parallel 2)
    run(${fresh}/consumer)

elseif(KIND STREQUAL "pkg_config")
    find_program(pkg_config NAMES pkg-config pkgconf)
    if(NOT pkg_config)
        execute_process(COMMAND ${CMAKE_COMMAND} -E echo "skipped: pkg-config is not installed")
        return()
    endif()
    file(GLOB_RECURSE description ${PREFIX}/tributary.pc)
    cmake_path(GET description PARENT_PATH folder)
    cmake_path(GET folder PARENT_PATH libraries)
    set(ENV{PKG_CONFIG_PATH} ${folder})
    execute_process(COMMAND ${pkg_config} ${PKG_CONFIG_OPTIONS} --cflags --libs tributary
                    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    separate_arguments(options UNIX_COMMAND "${C_FLAGS}")
    file(MAKE_DIRECTORY ${fresh})
    run(${CC} ${options} -o ${fresh}/consumer ${here}/main.c ${flags})
    set(ENV{LD_LIBRARY_PATH} "${libraries}:${RUN_PATH}:$ENV{LD_LIBRARY_PATH}")
    run(${fresh}/consumer)
endif()
