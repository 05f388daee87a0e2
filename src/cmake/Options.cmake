# Build options and the flags that all of millrace is compiled with.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON) # eventfd, signalfd, __VA_OPT__
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# What hardens the binary is asserted by tests/test_hardening.py.
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # of executables; -fPIE below is for the libraries they are made of
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)

# Level 3 wants GCC from 12 or Clang from 9 on, and a C library that knows it. (-ftrivial-auto-var-init=zero would cost
# an event 1.3 to 1.7 % more instructions in the encoders.)
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
check_c_source_compiles("#include <string.h>
#if __USE_FORTIFY_LEVEL < 3
#error
#endif
int main(void) { return 0; }" MILLRACE_HAS_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
set(MILLRACE_FORTIFY $<IF:$<BOOL:${MILLRACE_HAS_FORTIFY_3}>,3,2>)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

option(MILLRACE_WERROR "Warnings are errors" OFF)
option(MILLRACE_TESTS "Build the unit tests (needs cmocka)" ON)
option(MILLRACE_LOAD "Build what measures and load-tests millrace: millrace-load, millrace-faulty" ON)
option(MILLRACE_JEMALLOC "Link jemalloc, which has heap profiles; OFF: the C library's allocator" ON)
set(MILLRACE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them (address,undefined)")
option(MILLRACE_PROFILING "Build the profiler in (needs elfutils, protobuf-c, zlib)" ON)
option(MILLRACE_COVERAGE "Instrument for gcov" OFF)
option(MILLRACE_FUZZ "Build the libFuzzer targets (needs Clang)" OFF)

# Symbols stay in: profiles and crash addresses name functions; stripping is the packager's choice.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g")
# Under the thread sanitizer and the fuzzers; names and lines are enough for their reports. Compiling takes two thirds of -O2 -g.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
# libdw finds an address' unit, and so its file and line, by a table that Clang leaves out unless asked.
if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-gdwarf-aranges)
endif()

function(millrace_compile_options target)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE MR_VERSION="${PROJECT_VERSION}")
    # A callback need not use all that it gets.
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wno-unused-parameter -Wshadow -Wpointer-arith -Wvla -Wformat=2 -Werror=format-security
        $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings>
        -fPIE -fno-omit-frame-pointer -fstack-protector-strong -fstack-clash-protection
        $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-fcf-protection=full>
        $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>:-mbranch-protection=standard>)
    if(MILLRACE_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    if(MILLRACE_SANITIZE)
        target_compile_options(${target} PRIVATE -fsanitize=${MILLRACE_SANITIZE}
                               -fno-sanitize-recover=undefined)
        target_link_options(${target} PRIVATE -fsanitize=${MILLRACE_SANITIZE})
    else()
        target_compile_options(${target} PRIVATE
            $<$<CONFIG:Release>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${MILLRACE_FORTIFY}>
            $<$<COMPILE_LANGUAGE:CXX>:-D_GLIBCXX_ASSERTIONS>)
    endif()
    if(MILLRACE_COVERAGE)
        target_compile_definitions(${target} PRIVATE MILLRACE_COVERAGE) # its files are written at the end, beside the objects
        target_compile_options(${target} PRIVATE --coverage -fprofile-update=atomic)
        target_link_options(${target} PRIVATE --coverage)
    endif()
    # Shadow stacks (CET) need nothing of the C library's start files, which Debian builds without the note, so that the
    # linker leaves it out unasked. Landing pads for jumps (IBT) they don't have: the note comes where they do. So do aarch64's notes
    # (BTI, PAC); its pointer authentication needs none.
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--build-id
                        $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-Wl,-z,shstk> -Wl,--as-needed)
endfunction()

# What reads and writes bytes of others converts no number silently. (Includes of libraries are system's, and not judged.)
set(MILLRACE_EXACT_FOLDERS base confine event encode kafka metrics postgres record sink stream)

# add_millrace_module(FOLDER [NAME name] [ONLY sources...] [LINK targets...]): src/FOLDER/*.c, without its tests, or
# only these sources, as library mr_FOLDER or mr_name.
function(add_millrace_module folder)
    cmake_parse_arguments(arg "" "NAME" "ONLY;LINK" ${ARGN})
    if(NOT arg_NAME)
        set(arg_NAME ${folder})
    endif()
    set(sources ${arg_ONLY})
    if(NOT sources)
        file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.c
             ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
        list(FILTER sources EXCLUDE REGEX "_test\\.c$")
    endif()
    add_library(mr_${arg_NAME} STATIC ${sources})
    millrace_compile_options(mr_${arg_NAME})
    if(folder IN_LIST MILLRACE_EXACT_FOLDERS)
        target_compile_options(mr_${arg_NAME} PRIVATE -Wconversion -Wsign-conversion)
    endif()
    target_link_libraries(mr_${arg_NAME} PUBLIC ${arg_LINK})
endfunction()

# millrace_embed(MODULE FOLDER FILES...): src/FOLDER/name.ext becomes the function mr_name_ext() of mr_MODULE,
# declared in FOLDER/name.h.
function(millrace_embed module folder)
    set(script ${CMAKE_SOURCE_DIR}/src/cmake/EmbedFile.cmake)
    foreach(file ${ARGN})
        get_filename_component(stem ${file} NAME_WE)
        get_filename_component(function ${file} NAME)
        string(REPLACE "." "_" function ${function})
        set(input ${CMAKE_SOURCE_DIR}/src/${folder}/${file})
        set(output ${CMAKE_BINARY_DIR}/embedded/${function}.c)
        add_custom_command(OUTPUT ${output} DEPENDS ${input} ${script}
            COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAME=mr_${function}
                    -DHEADER=${folder}/${stem}.h -P ${script})
        target_sources(mr_${module} PRIVATE ${output})
    endforeach()
endfunction()

# tests/placed_faults.c over what it wraps.
function(millrace_place_faults target)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/placed_faults.c)
    foreach(function mr_pg_payload_take mr_encode_change mr_record_headers_format mr_sink_counts_acked mr_batch_commit
                     mr_ack_add)
        target_link_options(${target} PRIVATE -Wl,--wrap=${function})
    endforeach()
endfunction()
