# Runs PROGRAM as RANKS ranks (3) of LAUNCHER: under COMMAND, words with | between them, or each with the
# launcher's variables. All of them must write the same to WORK/rank0 ..: an id, or with BACKEND the
# sum over a communicator.
cmake_minimum_required(VERSION 3.25)
if(NOT RANKS)
    set(RANKS 3)
endif()
math(EXPR last "${RANKS} - 1")
math(EXPR sum "(1 << ${RANKS}) - 1")
set(expected "${LAUNCHER} ${RANKS} [0-9a-f]+")
if(BACKEND)
    set(expected "${LAUNCHER} ${RANKS} ${sum}")
endif()
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

# Of no other launcher, should this test itself run under one.
foreach(name IN ITEMS RANK OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID TRIBUTARY_LAUNCHER
        TRIBUTARY_ADDRESS TRIBUTARY_SECRET MASTER_ADDR MASTER_PORT)
    unset(ENV{${name}})
endforeach()

# What stays the same for all ranks tells this run from others on the host.
string(RANDOM LENGTH 12 ALPHABET 0123456789 job)
string(RANDOM LENGTH 4 ALPHABET 123456789 port)
set(master MASTER_ADDR=127.0.0.1 MASTER_PORT=${port})
function(variables_of rank)
    if(LAUNCHER STREQUAL "torchrun")
        set(own RANK=${rank} WORLD_SIZE=${RANKS} LOCAL_RANK=${rank} LOCAL_WORLD_SIZE=${RANKS}
            TORCHELASTIC_RUN_ID=${job} TORCHELASTIC_USE_AGENT_STORE=True ${master})
    elseif(LAUNCHER STREQUAL "openmpi")
        set(own OMPI_COMM_WORLD_RANK=${rank} OMPI_COMM_WORLD_SIZE=${RANKS}
            OMPI_COMM_WORLD_LOCAL_RANK=${rank} OMPI_COMM_WORLD_LOCAL_SIZE=${RANKS} PMIX_NAMESPACE=${job})
    elseif(LAUNCHER STREQUAL "mpich")
        set(own PMI_RANK=${rank} PMI_SIZE=${RANKS} MPI_LOCALRANKID=${rank} MPI_LOCALNRANKS=${RANKS} ${master})
    else()
        set(own SLURM_PROCID=${rank} SLURM_NTASKS=${RANKS} SLURM_STEP_NUM_TASKS=${RANKS} SLURM_LOCALID=${rank}
            SLURM_JOB_ID=${job} SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost)
    endif()
    set(variables ${own} PARENT_SCOPE)
endfunction()

if(COMMAND)
    string(REPLACE "|" ";" COMMAND ${COMMAND})
    execute_process(COMMAND ${COMMAND} ${PROGRAM} ${WORK} ${BACKEND} RESULTS_VARIABLE results)
else()
    set(all)
    foreach(rank RANGE ${last})
        variables_of(${rank})
        list(APPEND all COMMAND ${CMAKE_COMMAND} -E env ${variables} ${PROGRAM} ${WORK} ${BACKEND})
    endforeach()
    execute_process(${all} RESULTS_VARIABLE results) # at the same time
endif()
list(REMOVE_DUPLICATES results)
if(NOT results STREQUAL "0")
    message(FATAL_ERROR "the processes ended with ${results}")
endif()

set(first)
foreach(rank RANGE ${last})
    file(READ ${WORK}/rank${rank} said)
    if(NOT said MATCHES "^${expected}$" OR (first AND NOT said STREQUAL first))
        message(FATAL_ERROR "rank ${rank} has \"${said}\", rank 0 \"${first}\"")
    endif()
    set(first ${said})
endforeach()
