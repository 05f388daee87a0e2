# src/profiler: the profiler with what it is made of; and what draws, which needs no library. Our own text is the sampling; unwinding, packing and compression are libraries'.
add_millrace_module(profiler/draw NAME draw LINK mr_base)
millrace_embed(draw profiler/draw flame.css flame.js)

if(NOT MILLRACE_PROFILING)
    return()
endif()

pkg_check_modules(LIBDW REQUIRED IMPORTED_TARGET libdw>=0.188)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_program(PROTOC_C protoc-c REQUIRED)

set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated}/profiler)
add_custom_command(
    OUTPUT ${generated}/profiler/profile.pb-c.c ${generated}/profiler/profile.pb-c.h
    COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/src --c_out=${generated} profiler/profile.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/src/profiler/profile.proto)
# Not our text: our warnings don't apply, but what hardens the binary does.
add_library(mr_profile_proto STATIC ${generated}/profiler/profile.pb-c.c ${generated}/profiler/profile.pb-c.h)
millrace_compile_options(mr_profile_proto)
target_compile_options(mr_profile_proto PRIVATE -w)
target_include_directories(mr_profile_proto PUBLIC ${generated})
target_link_libraries(mr_profile_proto PUBLIC PkgConfig::PROTOBUF_C)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/profiler/*.c)
# heap_conf.c is for the program alone.
list(FILTER sources EXCLUDE REGEX "_test\\.c$|/heap_conf\\.c$|/example\\.c$")
add_millrace_module(profiler ONLY ${sources} LINK mr_base mr_draw mr_profile_proto PkgConfig::LIBDW PkgConfig::ZLIB m)

add_executable(profiler-example ${CMAKE_SOURCE_DIR}/src/profiler/example.c)
millrace_compile_options(profiler-example)
target_link_libraries(profiler-example PRIVATE mr_profiler PkgConfig::MICROHTTPD)

# jemalloc complains at each start of options that it was built without: Debian's for arm64 has no heap profiles. What
# can't be asked, because it is another machine's, is taken for one that has none.
include(CheckCSourceRuns)
function(millrace_ask_for_heap_profiles target)
    if(MILLRACE_JEMALLOC AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
        set(CMAKE_REQUIRED_LIBRARIES PkgConfig::JEMALLOC)
        check_c_source_runs("#include <jemalloc/jemalloc.h>
int main(void) { char has = 0; size_t len = 1; return mallctl(\"config.prof\", &has, &len, 0, 0) != 0 || !has; }"
                            MILLRACE_JEMALLOC_PROFILES)
        if(MILLRACE_JEMALLOC_PROFILES)
            target_compile_definitions(${target} PRIVATE MILLRACE_HEAP_PROFILES)
        endif()
    endif()
endfunction()
