# Who may include whom. Reads the #include lines of every room below ROOT and fails on one that its
# room is not allowed; also on an #ifdef TRI_WITH_ outside of csrc/backends.c. The picture is in
# csrc/README.md.
cmake_minimum_required(VERSION 3.25)

# What every room may have: the C library, less what talks to the operating system's threads.
set(libc assert ctype errno float inttypes limits locale math setjmp signal stdalign stdarg
         stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath time uchar wchar)
list(JOIN libc "|" libc)
set(libc "(${libc})\\.h")
set(system "(pthread|sched|unistd|sys/[a-z]+|linux/[a-z]+|semaphore|immintrin)\\.h")
set(cuda "(cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16)\\.h")
set(seams "csrc/backend\\.h|kernels/kernels\\.h")
set(base "tributary\\.h|csrc/base/.*")

set(rooms csrc/base csrc/core csrc/reduce csrc/host csrc/nccl kernels/cpu kernels/cuda csrc kernels)
set(csrc/base "${base}|${libc}|pthread\\.h")
set(csrc/core "${base}|${libc}|${seams}|csrc/core/.*")
set(csrc/reduce "${base}|${libc}|${seams}|csrc/core/.*|csrc/reduce/.*")
set(csrc/host "${base}|${libc}|${seams}|csrc/host/.*|kernels/cpu/kernels_cpu\\.h|${system}")
set(csrc/nccl "${base}|${libc}|${seams}|csrc/nccl/.*|kernels/cuda/kernels_cuda\\.h|pthread\\.h|${cuda}|nccl\\.h")
set(kernels/cpu "${base}|kernels/kernels\\.h|${libc}|immintrin\\.h|kernels/cpu/.*")
set(kernels/cuda "${base}|kernels/kernels\\.h|${libc}|kernels/cuda/.*|${cuda}")
# The files that lie in csrc and kernels themselves: api.c, backend.h, backends.c; kernels.h.
set(csrc "${base}|${libc}|${seams}|csrc/core/.*|csrc/reduce/.*")
set(kernels "tributary\\.h|${libc}")

set(wrong "")
set(files_read 0)
foreach(room IN LISTS rooms)
    file(GLOB files ${ROOT}/${room}/*.[ch] ${ROOT}/${room}/*.cu ${ROOT}/${room}/*.cuh)
    foreach(file IN LISTS files)
        math(EXPR files_read "${files_read} + 1")
        cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${ROOT} OUTPUT_VARIABLE name)
        file(STRINGS ${file} lines REGEX "^[ \t]*#[ \t]*(include|if|ifdef|ifndef|elif)")
        foreach(line IN LISTS lines)
            if(line MATCHES "include[ \t]*[<\"]([^>\"]+)[>\"]")
                set(included ${CMAKE_MATCH_1})
                if(NOT included MATCHES "^(${${room}})$")
                    string(APPEND wrong "  ${name} may not include ${included}\n")
                endif()
            elseif(line MATCHES "TRI_WITH_" AND NOT name STREQUAL "csrc/backends.c")
                string(APPEND wrong "  ${name} asks for a backend: ${line}\n")
            endif()
        endforeach()
    endforeach()
endforeach()

# A folder that has no rule is a room that nobody decided on.
file(GLOB folders RELATIVE ${ROOT} ${ROOT}/csrc/* ${ROOT}/kernels/*)
foreach(folder IN LISTS folders)
    file(GLOB files ${ROOT}/${folder}/*.[ch] ${ROOT}/${folder}/*.cu)
    if(IS_DIRECTORY ${ROOT}/${folder} AND files AND NOT folder IN_LIST rooms)
        string(APPEND wrong "  ${folder} is not among the rooms of tests/rooms.cmake\n")
    endif()
endforeach()

if(wrong)
    message(FATAL_ERROR "Includes against the order of the rooms:\n${wrong}")
endif()
if(files_read EQUAL 0)
    message(FATAL_ERROR "No source was found below ${ROOT}")
endif()
message("${files_read} files keep the order of the rooms")
