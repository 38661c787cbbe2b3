# Compares what LIBRARY exports with LEDGER, one name per line, sorted, and with the functions that
# HEADER declares. UPDATE=ON writes the ledger anew.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY}
                OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^ \n]+ [A-Za-z]" exported "${listing}")
list(TRANSFORM exported REPLACE "^\n?([^ ]+) .*" "\\1")
list(SORT exported)

# Declarations: "TRIB_API type name(", where the type may have a star.
file(READ ${HEADER} header)
string(REGEX MATCHALL "\nTRIB_API [a-z0-9_ ]+[ *]trib_[a-z0-9_]+\\(" declared "${header}")
list(TRANSFORM declared REPLACE ".*[ *](trib_[a-z0-9_]+)\\($" "\\1")
list(SORT declared)

if(UPDATE)
    list(JOIN exported "\n" text)
    file(WRITE ${LEDGER} "${text}\n")
    message("wrote ${LEDGER}")
    return()
endif()

# say(TEXT LEFT RIGHT): what is in LEFT and not in RIGHT.
set(difference "")
function(say text left right)
    list(REMOVE_ITEM ${left} ${${right}})
    foreach(name IN LISTS ${left})
        string(APPEND difference "  ${name} ${text}\n")
    endforeach()
    set(difference "${difference}" PARENT_SCOPE)
endfunction()

file(STRINGS ${LEDGER} ledger)
say("+ is exported and not in the ledger" exported ledger)
say("- is in the ledger and not exported" ledger exported)
say("is declared in the header and not exported" declared exported)
say("is exported and not declared in the header" exported declared)
if(difference)
    message(FATAL_ERROR "The exported symbols have changed:\n${difference}"
            "If that is meant, update tests/abi/symbols.txt:\n"
            "  cmake --build <build folder> --target tributary_symbols")
endif()
# A machine without a driver must be able to load the library, and a CUDA runtime must not be
# needed.
execute_process(COMMAND ${OBJDUMP} -p ${LIBRARY} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
if(listing MATCHES "NEEDED +(libcuda|libcudart)\\.so")
    message(FATAL_ERROR "${LIBRARY} needs ${CMAKE_MATCH_1}.so to be loaded")
endif()

list(LENGTH exported n)
message("${n} symbols, as in the ledger and the header")
