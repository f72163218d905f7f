# The pantile command and the test programs. Both link the static library, so that the ladder and the
# tests reach what the shared library hides.

# Everything but main: problem lines, .npy, the commands, probes, ladders, the reference. An archive, so
# that the tests take only what they call.
add_library(pantile_program STATIC
    cli/arrays.c cli/bench_report.c cli/bench_rows.c cli/call.c cli/cmd_bench.c cli/cmd_check.c
    cli/cmd_compare.c cli/cmd_info.c cli/cmd_replay.c cli/cmd_run.c cli/compare.c
    cli/compare_backward.c cli/compare_copies.c cli/compare_nsa.c cli/cost.c cli/cost_nsa.c
    cli/cpu_name.c cli/demo.c cli/demo_nsa.c cli/demo_text.c cli/generate.c cli/help_hstu.c
    cli/help_jagged.c cli/help_nsa.c cli/npy.c cli/operators.c cli/operators_hstu.c
    cli/operators_jagged.c cli/operators_nsa.c cli/options.c cli/problem.c cli/problem_bias.c
    cli/problem_line.c cli/problem_memory.c cli/problem_nsa.c cli/problem_nsa_line.c
    cli/problem_pages.c cli/random.c cli/runner.c cli/seq_numbers.c cli/sequences.c
    cli/sequences_nsa.c cli/sweep.c cli/timing.c cli/words.c
    bench/ladder_hstu.c bench/ladder_nsa.c bench/ladder_padded.c bench/ladder_pipelined.c
    bench/ladder_rungs.c bench/probe.c
    ref/elements.c ref/hstu.c ref/hstu_gradient_rows.c ref/hstu_gradients.c ref/hstu_inputs.c
    ref/jagged.c ref/nsa.c ref/nsa_cache.c ref/nsa_rows.c)
target_include_directories(pantile_program PUBLIC src cli ref bench)
target_link_libraries(pantile_program PUBLIC pantile_static m)
if(PANTILE_AARCH64) # gcc 12 crashes in its vectorizer on these and on the tests
    target_compile_options(pantile_program PUBLIC -fno-tree-vectorize)
endif()

if(PANTILE_BUILD_CLI)
    add_executable(pantile_command cli/main.c)
    set_target_properties(pantile_command PROPERTIES OUTPUT_NAME pantile)
    target_link_libraries(pantile_command PRIVATE pantile_program)
    install(TARGETS pantile_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(PANTILE_BUILD_TESTS)
    file(GLOB test_sources CONFIGURE_DEPENDS
         tests/*.c tests/kernels/*.c tests/ops/*.c tests/api/*.c tests/jagged/*.c tests/nsa/*.c)
    add_executable(pantile_tests ${test_sources})
    target_include_directories(pantile_tests PRIVATE tests)
    target_compile_options(pantile_tests PRIVATE $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
    target_link_libraries(pantile_tests PRIVATE pantile_program)
    enable_testing()
    add_test(NAME pantile_tests COMMAND pantile_tests)
endif()
