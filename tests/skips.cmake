# Run by ctest after its summary: says what was skipped and why, out of the log of this run, and
# leaves the counts and those lines in <FOLDER>/Testing/{counts,skips}.txt.
set(log ${FOLDER}/Testing/Temporary/LastTest.log)
if(EXISTS ${log}.tmp) # while ctest is still writing
    set(log ${log}.tmp)
endif()
file(STRINGS ${log} lines REGEX "^[0-9]+/[0-9]+ Test: |^ *skipped: |^Test Passed")
string(REPLACE "[" "(" lines "${lines}") # a bracket would hold lines of the list together
string(REPLACE "]" ")" lines "${lines}")

set(shown_per_test 6)
set(all 0)
set(passed 0)
set(report "")
foreach(line IN LISTS lines)
    if(line MATCHES "^[0-9]+/[0-9]+ Test: (.*)")
        set(test ${CMAKE_MATCH_1})
        math(EXPR all "${all} + 1")
        set(shown 0)
    elseif(line MATCHES "^ *skipped: (.*)")
        math(EXPR shown "${shown} + 1")
        if(shown LESS_EQUAL shown_per_test)
            string(APPEND report "  ${test}: ${CMAKE_MATCH_1}\n")
        endif()
    else()
        math(EXPR passed "${passed} + 1")
    endif()
endforeach()

# A test that was skipped as a whole counts as passed in the log and is listed apart.
set(skipped 0)
if(EXISTS ${FOLDER}/Testing/Temporary/LastTestsDisabled.log)
    file(STRINGS ${FOLDER}/Testing/Temporary/LastTestsDisabled.log names)
    list(LENGTH names skipped)
endif()
math(EXPR passed "${passed} - ${skipped}")
# Failed, timed out, could not be started: all the others.
math(EXPR failed "${all} - ${passed} - ${skipped}")

file(WRITE ${FOLDER}/Testing/counts.txt "${passed} ${failed} ${skipped}\n")
file(WRITE ${FOLDER}/Testing/skips.txt "${report}")
if(report)
    message("\nSkipped, and why:\n${report}")
else()
    message("\nNothing was skipped.\n")
endif()
