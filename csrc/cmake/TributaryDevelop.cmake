# Targets for those who work on Tributary; each is a script of .ci.
#   format        every C and CUDA file as .clang-format says
#   format-check  shows what differs, and fails if anything does
#   tidy          clang-tidy over the C files that this build compiles
#   site          the documentation, in build/site
#   dist          the source tarball, in the build folder
# tributary_develop(TARGET SCRIPT ARGUMENT...)
function(tributary_develop target script)
    add_custom_target(${target} COMMAND ${PROJECT_SOURCE_DIR}/.ci/${script} ${ARGN}
                      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL VERBATIM)
endfunction()

tributary_develop(format format)
tributary_develop(format-check format --check)
tributary_develop(tidy tidy ${PROJECT_BINARY_DIR})
tributary_develop(site site)
tributary_develop(dist dist ${PROJECT_BINARY_DIR})
