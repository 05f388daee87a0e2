# Every *_test.c under src is a cmocka program of its own, found by its name so that none is forgotten. Linking takes longer
# than compiling, so most are one executable, `unit-tests`, which runs the one that its argument names: their mains get the
# names of their files. Those of MILLRACE_OWN_TESTS replace symbols, and are executables by themselves.
set(MILLRACE_OWN_TESTS out_of_memory_test)

# What two threads meet in: these run under the thread sanitizer in each run (ctest -L threads); all of them do by hand.
set(MILLRACE_THREADS "pthread|mr_thread|_Atomic|atomic_|flow/pipeline\\.h|control/http\\.h|control/monitor\\.h|log_writer\\.h|\
profiler/profiler\\.h|base/ring\\.h|mailbox\\.h|testing/stage\\.h|testing/replay\\.h|rdkafka_mock\\.h")

# Of several at once, these begin first.
set(MILLRACE_LONG_TESTS config_test convert_test kafka_session_test out_of_memory_test pipeline_test prof_test)

function(millrace_add_test name source)
    add_test(NAME ${name} COMMAND ${ARGN})
    file(STRINGS ${source} found REGEX "${MILLRACE_THREADS}")
    set(labels unit)
    if(found)
        list(APPEND labels threads)
    endif()
    # A limit for what hangs, also where eight builds run beside it.
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 600 ENVIRONMENT
        "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
    if(name IN_LIST MILLRACE_LONG_TESTS)
        set_tests_properties(${name} PROPERTIES COST 10)
    endif()
endfunction()

function(millrace_test_target target)
    millrace_compile_options(${target})
    target_compile_definitions(${target} PRIVATE MR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} PRIVATE mr_cli mr_verify PkgConfig::CMOCKA)
endfunction()

function(add_millrace_tests)
    file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/testing/*.c)
    add_library(mr_testing OBJECT ${support})
    millrace_test_target(mr_testing)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_test.c)
    if(NOT MILLRACE_PROFILING)
        list(FILTER tests EXCLUDE REGEX "/src/profiler/[a-z_]*\\.c$")
    endif()
    set(together)
    set(rows)
    foreach(test_source ${tests})
        get_filename_component(name ${test_source} NAME_WE)
        if(name IN_LIST MILLRACE_OWN_TESTS)
            add_executable(${name} ${test_source})
            millrace_test_target(${name})
            target_link_libraries(${name} PRIVATE mr_testing)
            millrace_add_test(${name} ${test_source} ${name})
        else()
            set_source_files_properties(${test_source} PROPERTIES COMPILE_DEFINITIONS main=mr_main_of_${name})
            list(APPEND together ${test_source})
            string(APPEND rows "TEST(${name})\n")
            millrace_add_test(${name} ${test_source} unit-tests ${name})
        endif()
    endforeach()
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/unit_tests.def CONTENT "${rows}")
    add_executable(unit-tests ${CMAKE_SOURCE_DIR}/src/testing/runner/unit_tests.c ${together})
    millrace_test_target(unit-tests)
    target_compile_options(unit-tests PRIVATE -Wno-missing-prototypes)
    target_include_directories(unit-tests PRIVATE ${CMAKE_BINARY_DIR})
    target_link_libraries(unit-tests PRIVATE mr_testing)
endfunction()
