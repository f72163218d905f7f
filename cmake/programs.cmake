# The pantile command and the test programs. Both link the static library, so that the ladder and the
# tests reach what the shared library hides.

# Everything but main: problem lines, .npy, the commands, probes, ladders, the reference. An archive, so that a
# test program takes only what it calls.
file(GLOB program_sources CONFIGURE_DEPENDS cli/*.c bench/*.c ref/*.c)
list(REMOVE_ITEM program_sources ${CMAKE_CURRENT_SOURCE_DIR}/cli/main.c)
add_library(pantile_program STATIC ${program_sources})
target_include_directories(pantile_program PUBLIC src cli ref bench)
target_link_libraries(pantile_program PUBLIC pantile_static m)

if(PANTILE_BUILD_CLI)
    add_executable(pantile_command cli/main.c)
    set_target_properties(pantile_command PROPERTIES OUTPUT_NAME pantile)
    target_link_libraries(pantile_command PRIVATE pantile_program)
    install(TARGETS pantile_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(PANTILE_BUILD_TESTS)
    file(GLOB test_sources CONFIGURE_DEPENDS
         tests/*.c tests/kernels/*.c tests/ops/*.c tests/api/*.c tests/jagged/*.c)
    add_executable(pantile_tests ${test_sources})
    target_include_directories(pantile_tests PRIVATE tests)
    target_compile_options(pantile_tests PRIVATE $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
    target_link_libraries(pantile_tests PRIVATE pantile_program)
    enable_testing()
    add_test(NAME pantile_tests COMMAND pantile_tests)
endif()
