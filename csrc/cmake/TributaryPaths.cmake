# Paths of CUDA and NCCL beyond those that CMake searches by itself: first those that the user names
# (CUDA_HOME, CUDA_PATH, NCCL_ROOT, NCCL_HOME, as a variable or in the environment); after the
# places of the system /usr/local/cuda and the Python wheels (site-packages/nvidia/{cu13,cu12,nccl})
# of the environment that `python3` belongs to. Used by the build, and installed for programs that
# link a static library.

# `out` = what the variables and environment variables of these names hold, in this order.
function(tributary_said out)
    set(said)
    foreach(name IN LISTS ARGN)
        foreach(value "${${name}}" "$ENV{${name}}")
            if(value)
                file(TO_CMAKE_PATH "${value}" value)
                list(APPEND said ${value})
            endif()
        endforeach()
    endforeach()
    list(REMOVE_DUPLICATES said)
    set(${out} "${said}" PARENT_SCOPE)
endfunction()

# `out` = the nvidia folder of the Python environment; empty if there is none.
function(tributary_wheels out)
    find_program(TRIBUTARY_PYTHON NAMES python3 python DOC "Python, asked where its packages lie")
    mark_as_advanced(TRIBUTARY_PYTHON)
    set(folder)
    if(TRIBUTARY_PYTHON)
        execute_process(
            COMMAND ${TRIBUTARY_PYTHON} -c
                    "import sysconfig; print(sysconfig.get_paths()['purelib'])"
            OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        if(packages AND IS_DIRECTORY "${packages}/nvidia")
            set(folder "${packages}/nvidia")
        endif()
    endif()
    set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# `said`: HINTS for find commands; `guessed`: their PATHS.
function(tributary_cuda_roots said guessed)
    tributary_said(roots CUDAToolkit_ROOT CUDA_HOME CUDA_PATH)
    set(${said} "${roots}" PARENT_SCOPE)
    set(roots /usr/local/cuda)
    tributary_wheels(wheels)
    if(wheels)
        list(APPEND roots ${wheels}/cu13 ${wheels}/cu12)
    endif()
    set(${guessed} "${roots}" PARENT_SCOPE)
endfunction()

function(tributary_nccl_roots said guessed)
    tributary_said(roots NCCL_ROOT NCCL_HOME CUDA_HOME CUDA_PATH)
    set(${said} "${roots}" PARENT_SCOPE)
    set(roots /usr/local/cuda)
    tributary_wheels(wheels)
    if(wheels)
        list(APPEND roots ${wheels}/nccl)
    endif()
    set(${guessed} "${roots}" PARENT_SCOPE)
endfunction()
