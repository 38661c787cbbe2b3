# Install rules, the CMake package and tributary.pc. A static library brings what it needs: the
# package finds it again with the modules of this folder, the .pc names it in Libs.private.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tributary)
install(TARGETS tributary EXPORT tributary
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/tributary.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tributary NAMESPACE tributary:: FILE tributaryTargets.cmake DESTINATION ${package})

get_target_property(type tributary TYPE)
set(TRIBUTARY_STATIC OFF)
if(type STREQUAL "STATIC_LIBRARY")
    set(TRIBUTARY_STATIC ON)
endif()
if(TRIBUTARY_WITH_NCCL AND TRIBUTARY_STATIC)
    install(FILES ${CMAKE_CURRENT_LIST_DIR}/TributaryPaths.cmake
                  ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake
                  ${CMAKE_CURRENT_LIST_DIR}/FindCudaRuntime.cmake DESTINATION ${package})
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tributaryConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tributaryConfig.cmake
                              INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change what a program sees.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tributaryConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tributaryConfig.cmake
              ${PROJECT_BINARY_DIR}/tributaryConfigVersion.cmake DESTINATION ${package})

set(private -pthread -lm)
set(TRIBUTARY_BACKENDS host) # for who needs one of them and has only the .pc to ask
if(TRIBUTARY_WITH_NCCL)
    string(APPEND TRIBUTARY_BACKENDS " nccl")
    list(APPEND private ${NCCL_LIBRARY} ${CudaRuntime_LIBRARY} -lrt -ldl -lstdc++)
endif()
if(TRIBUTARY_WITH_NVTX)
    list(APPEND private -ldl)
    list(REMOVE_DUPLICATES private)
endif()
list(JOIN private " " TRIBUTARY_LIBS_PRIVATE)
# From <prefix>/lib/pkgconfig back to <prefix>, so that an installation can be moved.
cmake_path(SET here NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE TRIBUTARY_BACK)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tributary.pc.in ${PROJECT_BINARY_DIR}/tributary.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tributary.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
